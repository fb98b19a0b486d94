"""Outcomes are in the log once, whatever happened to the bus's answers."""

from collections.abc import Sequence

import pytest

from broker.journal.writer import OutcomeLog
from bus import topics
from bus.api import Position, Record
from candlewright.wire.errors import BusUnavailable
from tests.fresh_bus import FreshBus


class LossyBus(FreshBus):
    """Writes, and loses the answer where `loses` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.loses = False

    def publish_as(
        self, topic: str, records: Sequence[Record], *, writer: str, number: int, lease: str | None = None
    ) -> list[Position]:
        positions = super().publish_as(topic, records, writer=writer, number=number, lease=lease)
        if self.loses:
            raise BusUnavailable("the connection broke")
        return positions


def outcomes(*values: bytes) -> list[Record]:
    return [Record(value, key=b"A/B.TEST") for value in values]


def test_outcomes_whose_answer_was_lost_are_written_once() -> None:
    bus = LossyBus()
    bus.create_topic(topics.HISTORY_OUTCOMES, 1)
    log = OutcomeLog(bus, {0: 0})
    log.publish(outcomes(b"first"))
    bus.loses = True
    for _ in range(2):
        with pytest.raises(BusUnavailable):
            log.publish(outcomes(b"second", b"third"))
    assert log.ends == {0: 1}
    bus.loses = False
    log.publish(outcomes(b"second", b"third"))
    assert log.ends == {0: 3}
    log.publish(outcomes(b"second"))
    assert log.ends == {0: 4}
    written = [record.value for record in bus.read(topics.HISTORY_OUTCOMES, 0, 0)]
    assert written == [b"first", b"second", b"third", b"second"]


def test_a_restarted_broker_writes_under_its_own_numbers() -> None:
    bus = FreshBus()
    bus.create_topic(topics.HISTORY_OUTCOMES, 1)
    for value in (b"before", b"after"):
        OutcomeLog(bus, {0: 0}).publish(outcomes(value))
    assert [record.value for record in bus.read(topics.HISTORY_OUTCOMES, 0, 0)] == [b"before", b"after"]
