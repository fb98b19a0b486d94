"""Acknowledgements on their way to the bus: those that arrive during a call go out together in the next one."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from bus.api import Bus
from candlewright.wire.errors import BusError
from core.background import start_task
from core.log import get_logger
from gateways.kafka_pixy import metrics
from gateways.kafka_pixy.bus_calls import BusCalls
from gateways.kafka_pixy.holders import Holders

Ack = tuple[int, int]
log = get_logger()


class AckLane:
    """The acknowledgements of one group on one topic. `on_done` gets what was acknowledged, and how many were pending
    by partition. `holders`: identifies the record of each acknowledgement.

    Bounded by the consumers' calls under way, each of which carries one.
    """

    def __init__(
        self,
        bus: Bus,
        calls: BusCalls,
        topic: str,
        *,
        group: str,
        holders: Holders,
        on_done: Callable[[Sequence[Ack], dict[int, int]], None],
    ) -> None:
        self._bus = bus
        self._calls = calls
        self._topic = topic
        self._group = group
        self._holders = holders
        self._on_done = on_done
        self._waiting: list[tuple[Ack, str | None, asyncio.Future[None]]] = []
        self._flight: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._flight is not None or bool(self._waiting)

    def begin(self, partition: int, offset: int, life: str | None = None) -> asyncio.Future[None]:
        """Done once durable; fails with BusError if the bus could not take it. Awaiting it is optional.

        `life`: that of the record, if the caller knows it. Without it, an acknowledgement that may be of a record that
        the store has lost is ignored. An acknowledgement cancelled before its turn is not carried out.
        """
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(_note_failure)
        if life is None:
            life = self._life_of(partition, offset)
        self._waiting.append(((partition, offset), life, future))
        if self._flight is None:
            self._flight = start_task(self._run, "kafka-pixy acks")
        return future

    def knows(self, partition: int, offset: int) -> bool:
        """Whether a call here was given this record, and it is not acknowledged yet."""
        return self._holders.life_of(partition, offset, time.monotonic()) != ""

    async def flush(self) -> None:
        """Returns when nothing is under way."""
        if self._flight is not None:
            await asyncio.wait([self._flight])

    async def _run(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = [each for each in self._waiting if not each[-1].cancelled()], []
                lives = {ack: life for ack, life, _ in taken if life is not None}
                acks = [*lives]
                try:
                    done = await self._calls.run(lambda lives=lives: self._acknowledge(lives))  # type: ignore[misc]
                except Exception as error:  # The outermost loop of a line's acknowledgements: callers get the error.
                    failure = error if isinstance(error, BusError) else BusError(repr(error))
                    for _, _, future in taken:
                        if not future.done():
                            future.set_exception(failure)
                    continue
                for ack in acks:
                    self._holders.acknowledged(*ack)
                self._on_done(acks, done)
                for _, _, future in taken:
                    if not future.done():
                        future.set_result(None)
        finally:
            self._flight = None

    def _life_of(self, partition: int, offset: int) -> str | None:
        life = self._holders.life_of(partition, offset, time.monotonic())
        if life is None:
            metrics.DOUBTFUL_ACKS.inc()
            log.warning(
                "doubtful_acknowledgement", topic=self._topic, group=self._group, partition=partition, offset=offset
            )
        return life

    def _acknowledge(self, acks: Mapping[Ack, str]) -> dict[int, int]:
        by_partition: dict[int, dict[int, str]] = {}
        for (partition, offset), life in acks.items():
            by_partition.setdefault(partition, {})[offset] = life
        count = self._bus.partitions(self._topic)
        done: Counter[int] = Counter()
        for partition, lives in by_partition.items():
            if partition < count:
                own = sorted(lives)
                done[partition] = self._bus.acknowledge(self._topic, self._group, partition, offsets=own, lives=lives)
        metrics.ACKNOWLEDGED.inc(done.total())
        metrics.IGNORED_ACKS.inc(len(acks) - done.total())
        return dict(done)


def _note_failure(future: "asyncio.Future[None]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        metrics.BUS_FAILURES.labels("acknowledge").inc()
        log.warning("acknowledgement_failed", error=str(error))
