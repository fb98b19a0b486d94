"""Lives of the store, by which a reader notices that the store has gone back to an earlier state.

A store may lose its newest records (a crash with another `bus.fsync` than `always`, a restored copy, a deleted folder)
and then give their offsets to others. So each run of the server has a random id, and each partition remembers at which
offset each life began: `<id>@<offset> <id>@<offset> …`, the newest first. Two histories of one partition agree up to
the smaller of the offsets at which they diverge.
"""

from collections.abc import Iterable, Mapping

from bus.partitions import PartitionState, TopicPartition
from candlewright.wire.errors import RecordsLost
from core.log import get_logger
from core.metrics import REGISTRY, Counter

__all__ = ["LATE_ACKNOWLEDGEMENTS", "Lives", "agreed", "life_of"]

#: The life of records written before lives were counted.
_BEFORE = "-@0"

LOST_RECORDS = Counter(
    "candlewright_bus_lost_records_total",
    "Records that a reader had read and that the store has lost, or replaced by others.",
    ["topic"],
    registry=REGISTRY,
)
LATE_ACKNOWLEDGEMENTS = Counter(
    "candlewright_bus_late_acknowledgements_total",
    "Acknowledgements of records that the store has lost; the records that have their offsets now stay unacknowledged.",
    ["topic"],
    registry=REGISTRY,
)
log = get_logger()


def life_of(history: str, offset: int) -> str:
    """The life of the store in which the record of `offset` was written."""
    return next((name for name, start in _parsed(history) if offset >= start), _BEFORE.partition("@")[0])


def agreed(before: str, now: str, end: int) -> int:
    """The offset up to which a partition still holds the same records as when its history was `before`.

    `now` and `end`: its current history and end. Nothing is known about an empty `before`.
    """
    if not before or before == now:
        return end
    newer = _parsed(now or _of_old(end))
    place_of = {name: place for place, (name, _) in enumerate(newer)}
    older = _parsed(before)
    for at, (name, _) in enumerate(older):
        if (place := place_of.get(name)) is not None:
            parts = [history[index - 1][1] for history, index in ((older, at), (newer, place)) if index]
            return min([end, *parts])
    return 0


class Lives:
    """A reader's knowledge of the partitions that it reads: its positions advance only after `check`.

    `known`: the value of `known` of an earlier object; a partition that it does not name is accepted as it is.
    """

    def __init__(self, known: Mapping[TopicPartition, str] | None = None) -> None:
        self._known = dict(known or {})

    @property
    def known(self) -> Mapping[TopicPartition, str]:
        return self._known

    def check(self, place: TopicPartition, offset: int, history: str, *, end: int) -> None:
        """Raises RecordsLost, until `rewound` is called, if records before `offset` were replaced or lost."""
        known = self._known.get(place)
        if known is not None and known == history and offset <= end:
            return
        kept = agreed(known or "", history, end)
        if offset > kept:
            log.error("bus_lost_records", topic=place[0], partition=place[1], read_to=offset, kept_to=kept)
            raise RecordsLost(place[0], place[1], offset, kept=kept)
        self._known[place] = history or _of_old(end)

    def rewound(self, place: TopicPartition, offset: int, history: str, *, end: int) -> int:
        """Returns `offset`, or the offset of the first record that differs from the one read: from there on, the
        partition is accepted as it is. Losses are counted.
        """
        kept = min(offset, agreed(self._known.get(place, ""), history, end))
        LOST_RECORDS.labels(place[0]).inc(offset - kept)
        self._known[place] = history or _of_old(end)
        return kept

    def check_all(self, topic: str, positions: Mapping[int, int], states: Iterable[PartitionState]) -> None:
        """`check` of every partition of `topic` that has a position."""
        for partition, state in enumerate(states):
            if partition in positions:
                self.check((topic, partition), positions[partition], state.lives, end=state.end)

    def start(self, topic: str, states: Iterable[PartitionState]) -> None:
        """Accept the partitions as they are, because their positions are read again."""
        for partition, state in enumerate(states):
            self._known[topic, partition] = state.lives or _of_old(state.end)


def _of_old(end: int) -> str:
    return _BEFORE if end else ""


def _parsed(history: str) -> list[tuple[str, int]]:
    found = []
    for word in history.split():
        name, _, start = word.partition("@")
        found.append((name, int(start)))
    return found
