"""Identifies the record of an acknowledgement: Kafka-Pixy's names only the offset, and a store that lost its newest
records assigns their offsets again. Pure; times are monotonic seconds.
"""

from dataclasses import dataclass

from bus.api import GroupRecord

__all__ = ["Holders"]

#: The most records remembered per line. The oldest are forgotten, and acknowledgements of their records are accepted
#: unchecked.
_MAX_KNOWN = 10_000


@dataclass(slots=True)
class _Given:
    """`doubtful_until`: until then, a client that was given the lost record with this offset may acknowledge that
    one.
    """

    life: str
    until: float
    doubtful_until: float = 0.0


class Holders:
    """The records that calls were given and have not acknowledged."""

    def __init__(self, ack_timeout_seconds: float) -> None:
        self._timeout = ack_timeout_seconds
        self._given: dict[tuple[int, int], _Given] = {}

    def given(self, offered: GroupRecord, now: float) -> None:
        place = offered.record.partition, offered.record.offset
        new = _Given(offered.life, now + self._timeout)
        if (old := self._given.pop(place, None)) is not None:
            new.doubtful_until = old.doubtful_until if old.life == new.life else old.until
        self._given[place] = new
        if len(self._given) > _MAX_KNOWN:
            del self._given[next(iter(self._given))]

    def life_of(self, partition: int, offset: int, now: float) -> str | None:
        """The life of the acknowledged record, empty if it is not known here.

        None: it may be the lost record. The record that has its offset is then offered again, as if this answer had
        been lost.
        """
        given = self._given.get((partition, offset))
        if given is None:
            return ""
        return None if now < given.doubtful_until else given.life

    def acknowledged(self, partition: int, offset: int) -> None:
        self._given.pop((partition, offset), None)
