"""The state of one bus partition's triggers as named parts of bytes, and as one file of all parts."""

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from triggers.packing import squeezed, unsqueezed
from triggers.running.registry import Registry
from triggers.running.streams import Saved
from triggers.running.trigger import Trigger

__all__ = ["SavedRegistry", "archive_of", "parts_of", "read_meta", "written_meta"]


class SavedRegistry:
    """Writes a registry. An unchanged part is the same object as before."""

    def __init__(self) -> None:
        self._written: tuple[int, bytes] | None = None

    def parts(self, registry: Registry) -> dict[str, bytes]:
        if self._written is None or self._written[0] != registry.version:
            written = json.dumps([_written(trigger) for trigger in registry.triggers.values()]).encode()
            self._written = registry.version, squeezed(written)
        found = {"triggers": self._written[1]}
        found.update(registry.views.save())
        for number, shard in registry.shards.items():
            found |= {f"{number}/{part}": content for part, content in shard.save().items()}
        return found

    @staticmethod
    def meta(registry: Registry) -> dict[str, Any]:
        """The part that changes most often."""
        histories = {trigger.trigger_id: own for trigger in registry.triggers.values() if (own := _history(trigger))}
        return {"next_shard": registry.next_shard, "histories": histories}

    @staticmethod
    def read_triggers(registry: Registry, written: bytes, meta: Mapping[str, Any]) -> None:
        registry.triggers = {trigger.trigger_id: trigger for trigger in _read(json.loads(unsqueezed(written)))}
        for trigger_id, history in meta["histories"].items():
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


def _written(trigger: Trigger) -> list[Any]:
    """The fields that depend only on the registration."""
    return [
        trigger.trigger_id, trigger.version, trigger.sql, trigger.parameters, trigger.tickers, trigger.ticks_from,
        trigger.bars_from, trigger.registered_ns, trigger.asked_ns, trigger.views,
        trigger.events_from,
    ]  # fmt: skip


def _read(written: list[list[Any]]) -> Iterator[Trigger]:
    for trigger_id, version, sql, parameters, tickers, ticks_from, bars_from, registered_ns, *later in written:
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
        )


def _history(trigger: Trigger) -> list[Any] | None:
    """What has happened to a trigger since its registration; None for nothing."""
    found = [trigger.reason, trigger.events, trigger.suppressed, trigger.fired, trigger.silent]
    return found if any(found) else None


def _remember(trigger: Trigger, history: list[Any]) -> None:
    trigger.reason, trigger.events, trigger.suppressed, trigger.fired, trigger.silent = history
