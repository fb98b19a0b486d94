"""Messages on their way to the bus: sent together and in order, and what happens if the bus does not accept them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from bus.api import Position, Record
from candlewright.wire.errors import BusError, BusFull, BusUnavailable
from gateways.kafka_pixy import producer as module
from gateways.kafka_pixy.bus_calls import BusCalls
from gateways.kafka_pixy.producer import Producer
from tests.fresh_bus import FreshBus


class Bus(FreshBus):
    """Publishes while `open_` is set; `errors`: raised by the next calls, None for a call that succeeds."""

    def __init__(self) -> None:
        super().__init__(partitions=1)
        self.open_ = threading.Event()
        self.open_.set()
        self.errors: list[Exception | None] = []
        self.sizes: list[int] = []

    def publish(self, topic: str, records: Sequence[Record], *, lease: str | None = None) -> list[Position]:
        assert self.open_.wait(10)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.sizes.append(len(records))
        return super().publish(topic, records, lease=lease)

    def values(self, topic: str = "t") -> list[int]:
        return [int(record.value) for record in self.read(topic, 0, 0)]


def run(scenario: Callable[[Producer, Bus], Awaitable[None]]) -> Bus:
    bus = Bus()

    async def main() -> None:
        calls = BusCalls()
        try:
            await asyncio.wait_for(scenario(Producer(bus, calls), bus), 20)
        finally:
            bus.open_.set()
            calls.close()

    asyncio.run(main())
    return bus


def record(number: int) -> Record:
    return Record(b"%d" % number)


def test_messages_that_arrive_during_a_write_go_together_in_the_next() -> None:
    async def scenario(producer: Producer, bus: Bus) -> None:
        bus.open_.clear()
        writes = [asyncio.ensure_future(producer.write("t", record(number))) for number in range(100)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bus.open_.set()
        assert [place.offset for place in await asyncio.gather(*writes)] == list(range(100))
        assert producer.waiting == 0

    bus = run(scenario)
    assert bus.values() == list(range(100))
    assert len(bus.sizes) <= 2


def test_one_topic_does_not_wait_for_another() -> None:
    async def scenario(producer: Producer, bus: Bus) -> None:
        bus.errors = [BusUnavailable("away")]
        first, second = await asyncio.gather(
            producer.write("t", record(0)), producer.write("u", record(0)), return_exceptions=True
        )
        assert sorted([isinstance(first, BusError), isinstance(second, BusError)]) == [False, True]

    run(scenario)


def test_a_failed_write_is_reported_and_the_next_one_succeeds() -> None:
    async def scenario(producer: Producer, bus: Bus) -> None:
        bus.errors = [BusUnavailable("away")]
        with pytest.raises(BusUnavailable):
            await producer.write("t", record(0))
        assert (await producer.write("t", record(1))).offset == 0

    assert run(scenario).values() == [1]


def test_asynchronous_messages_wait_for_a_full_topic_and_synchronous_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FULL_PAUSE_SECONDS", 0.01)

    async def scenario(producer: Producer, bus: Bus) -> None:
        bus.open_.clear()
        bus.errors = [None, BusFull("t", 2, 1), BusFull("t", 2, 1)]
        await producer.accept("t", record(0))
        await asyncio.sleep(0)
        # The first is under way; the next two go together.
        await producer.accept("t", record(1))
        refused = asyncio.ensure_future(producer.write("t", record(2)))
        await asyncio.sleep(0)
        bus.open_.set()
        with pytest.raises(BusFull):
            await refused
        assert await producer.flush(10) == 0

    bus = run(scenario)
    assert (bus.values(), bus.errors) == ([0, 1], [])


def test_a_flush_ends_in_time_and_counts_unwritten_messages() -> None:
    async def scenario(producer: Producer, bus: Bus) -> None:
        bus.open_.clear()
        for number in range(3):
            await producer.accept("t", record(number))
        assert await producer.flush(0.05) == 3

    run(scenario)


def test_a_call_beyond_the_limit_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING", 2)

    async def scenario(producer: Producer, bus: Bus) -> None:
        bus.open_.clear()
        accepted = [asyncio.ensure_future(producer.accept("t", record(number))) for number in range(4)]
        await asyncio.sleep(0.01)
        assert [each.done() for each in accepted] == [True, True, False, False]
        bus.open_.set()
        await asyncio.gather(*accepted)
        assert await producer.flush(10) == 0

    assert run(scenario).values() == [0, 1, 2, 3]


def test_a_write_that_breaks_is_reported_and_the_next_one_succeeds() -> None:
    async def scenario(producer: Producer, bus: Bus) -> None:
        bus.errors = [ValueError("a fault"), ValueError("a fault")]
        with pytest.raises(BusError, match="a fault"):
            await producer.write("t", record(0))
        await producer.accept("t", record(1))
        assert await producer.flush(10) == 0
        assert (await producer.write("t", record(2))).offset == 0

    assert run(scenario).values() == [2]
