"""Acknowledgements on their way to the bus: those that arrive during a call go out together in the next one."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from bus.api import Bus
from candlewright.wire.errors import BusError
from core.background import start_task
from core.log import get_logger
from gateways.kafka_pixy import metrics
from gateways.kafka_pixy.bus_calls import BusCalls

Ack = tuple[int, int]
log = get_logger()


class AckLane:
    """Of one group on one topic. `on_done` gets what was acknowledged, and how many were pending by partition.

    Bounded by the consumers' calls under way, each of which carries one.
    """

    def __init__(
        self,
        bus: Bus,
        calls: BusCalls,
        topic: str,
        group: str,
        on_done: Callable[[Sequence[Ack], dict[int, int]], None],
    ) -> None:
        self._bus = bus
        self._calls = calls
        self._topic = topic
        self._group = group
        self._on_done = on_done
        self._waiting: list[tuple[Ack, asyncio.Future[None]]] = []
        self._flight: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._flight is not None or bool(self._waiting)

    def begin(self, partition: int, offset: int) -> asyncio.Future[None]:
        """Done once durable; fails with BusError if the bus could not take it. Awaiting it is optional.

        An acknowledgement cancelled before its turn is not carried out.
        """
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(_note_failure)
        self._waiting.append(((partition, offset), future))
        if self._flight is None:
            self._flight = start_task(self._run, "kafka-pixy acks")
        return future

    async def flush(self) -> None:
        """Returns when nothing is under way."""
        if self._flight is not None:
            await asyncio.wait([self._flight])

    async def _run(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = [each for each in self._waiting if not each[1].cancelled()], []
                acks = [ack for ack, _ in taken]
                try:
                    done = await self._calls.run(lambda acks=acks: self._acknowledge(acks))  # type: ignore[misc]
                except Exception as error:  # The outermost loop of a line's acknowledgements: callers get the error.
                    failure = error if isinstance(error, BusError) else BusError(repr(error))
                    for _, future in taken:
                        if not future.done():
                            future.set_exception(failure)
                    continue
                self._on_done(acks, done)
                for _, future in taken:
                    if not future.done():
                        future.set_result(None)
        finally:
            self._flight = None

    def _acknowledge(self, acks: Sequence[Ack]) -> dict[int, int]:
        offsets: dict[int, set[int]] = {}
        for partition, offset in acks:
            offsets.setdefault(partition, set()).add(offset)
        count = self._bus.partitions(self._topic)
        done: Counter[int] = Counter()
        for partition, own in offsets.items():
            if partition < count:
                done[partition] = self._bus.acknowledge(self._topic, self._group, partition, sorted(own))
        metrics.ACKNOWLEDGED.inc(done.total())
        metrics.IGNORED_ACKS.inc(len(acks) - done.total())
        return dict(done)


def _note_failure(future: "asyncio.Future[None]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        metrics.BUS_FAILURES.labels("acknowledge").inc()
        log.warning("acknowledgement_failed", error=str(error))
