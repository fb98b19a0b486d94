"""The state of one bus partition's triggers as named parts of bytes, and as one file of all parts."""

import io
import json
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from triggers.packing import squeezed, unsqueezed
from triggers.running.registry import Registry
from triggers.running.streams import Saved
from triggers.running.trigger import Trigger

__all__ = ["SavedRegistry", "archive_of", "parts_of", "read_meta", "written_meta"]


#: A change of a trigger has those saved with it written again, so each is saved with a few others.
_PARTS = 64
_TRIGGERS, _HISTORIES = "triggers/", "histories/"


class SavedRegistry:
    """Writes a registry. An unchanged part is the same object as before."""

    def __init__(self) -> None:
        #: The triggers of each part.
        self._ids: dict[int, set[str]] = {}
        self._written: dict[str, bytes] = {}

    def parts(self, registry: Registry) -> dict[str, bytes]:
        changed, lived = registry.take_changes()
        for trigger_id in changed:
            ids = self._ids.setdefault(_part_of(trigger_id), set())
            (ids.add if trigger_id in registry.triggers else ids.discard)(trigger_id)
        for part in {_part_of(trigger_id) for trigger_id in changed}:
            rows = [_written(registry.triggers[trigger_id]) for trigger_id in sorted(self._ids[part])]
            self._put(f"{_TRIGGERS}{part}", rows)
        for part in {_part_of(trigger_id) for trigger_id in (*changed, *lived)}:
            known = {trigger_id: _history(registry.triggers[trigger_id]) for trigger_id in sorted(self._ids[part])}
            self._put(f"{_HISTORIES}{part}", {trigger_id: own for trigger_id, own in known.items() if own})
        found = dict(self._written)
        found.update(registry.views.save())
        for number, shard in registry.shards.items():
            found |= {f"{number}/{part}": content for part, content in shard.save().items()}
        return found

    def _put(self, name: str, rows: Collection[Any]) -> None:
        if rows:
            self._written[name] = squeezed(json.dumps(rows).encode())
        else:
            self._written.pop(name, None)

    @staticmethod
    def read_triggers(registry: Registry, parts: dict[str, bytes], meta: Mapping[str, Any]) -> None:
        """Remove the triggers from `parts` of a state, and put them into the registry."""
        rows: list[list[Any]] = []
        histories: dict[str, list[Any]] = {}
        for name in [name for name in parts if name.startswith(_TRIGGERS)]:
            rows += json.loads(unsqueezed(parts.pop(name)))
        for name in [name for name in parts if name.startswith(_HISTORIES)]:
            histories |= json.loads(unsqueezed(parts.pop(name)))
        # States of older versions have all triggers in one part, and their histories beside it.
        if written := parts.pop("triggers", b""):
            rows, histories = json.loads(unsqueezed(written)), meta["histories"]
        registry.put(_read(rows))
        for trigger_id, history in histories.items():
            _remember(registry.triggers[trigger_id], history)

    @staticmethod
    def read_shards(parts: Mapping[str, bytes]) -> Iterable[tuple[int, Saved]]:
        """`parts`: only those of shards."""
        shards: dict[int, dict[str, bytes]] = {}
        for name, content in parts.items():
            of_shard, part = name.split("/", 1)
            shards.setdefault(int(of_shard), {})[part] = content
        return [(number, Saved.of(own)) for number, own in sorted(shards.items())]


def archive_of(parts: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def parts_of(archived: bytes) -> dict[str, bytes]:
    """The named parts of such a file. Raises ValueError for invalid bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(archived)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise ValueError(f"not the state of a trigger partition: {error}") from error


def written_meta(meta: Mapping[str, Any]) -> bytes:
    return squeezed(json.dumps(meta).encode())


def read_meta(written: bytes) -> dict[str, Any]:
    return dict(json.loads(unsqueezed(written)))


def _part_of(trigger_id: str) -> int:
    return zlib.crc32(trigger_id.encode()) % _PARTS


def _written(trigger: Trigger) -> list[Any]:
    """The fields that depend only on the registration."""
    return [
        trigger.trigger_id, trigger.version, trigger.sql, trigger.parameters, trigger.tickers, trigger.ticks_from,
        trigger.bars_from, trigger.registered_ns, trigger.asked_ns, trigger.views,
        trigger.events_from, trigger.place,
    ]  # fmt: skip


def _read(written: Iterable[list[Any]]) -> Iterator[Trigger]:
    for number, row in enumerate(written):
        trigger_id, version, sql, parameters, tickers, ticks_from, bars_from, registered_ns, *later = row
        # States of older versions end here.
        asked_ns = later[0] if later else registered_ns
        views, events_from = later[1:3] if len(later) > 1 else ({}, 0)
        yield Trigger(
            trigger_id=trigger_id,
            version=version,
            sql=sql,
            parameters=parameters,
            tickers=tuple(tickers),
            ticks_from=ticks_from,
            bars_from=bars_from,
            registered_ns=registered_ns,
            asked_ns=asked_ns,
            views=views,
            events_from=events_from,
            place=later[3] if len(later) > 3 else number,
        )


def _history(trigger: Trigger) -> list[Any] | None:
    """What has happened to a trigger since its registration; None for nothing."""
    found = [trigger.reason, trigger.events, trigger.suppressed, trigger.fired, trigger.silent]
    return found if any(found) else None


def _remember(trigger: Trigger, history: list[Any]) -> None:
    trigger.reason, trigger.events, trigger.suppressed, trigger.fired, trigger.silent = history
