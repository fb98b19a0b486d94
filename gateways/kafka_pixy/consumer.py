"""One group on one topic: reads from the bus while calls wait.

A record's acknowledgement timeout starts when it is read. Records are read for a waiting call, or at most a tenth of a
second ahead of one; records without a call are given back.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bus.api import NOBODY, Bus, GroupRecord, Record, StoredRecord
from candlewright.wire.errors import BusError
from core.background import start_task
from core.log import get_logger
from core.settings_gateways import KafkaPixySettings
from gateways.kafka_pixy import metrics
from gateways.kafka_pixy.acks import Ack, AckLane
from gateways.kafka_pixy.bus_calls import BusCalls, make_topic
from gateways.kafka_pixy.holders import Holders
from gateways.kafka_pixy.instances import Instances
from gateways.kafka_pixy.line import READ_AHEAD_SECONDS, Line

#: How often to look for expired records while calls wait.
_LOOK_SECONDS = 1.0
#: The same if nothing can expire: no record is out, and there is no other gateway.
_QUIET_LOOK_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_CLOSE_SECONDS = 5.0
#: Records per look.
_CLAIM_RECORDS = 1_000
#: Within this time a dead letter is written once, however often the write is retried.
_DEAD_LETTER_SECONDS = 86_400.0
_REGISTRY = "kafka_pixy_dead_letters"
log = get_logger()


@dataclass(eq=False, slots=True)
class Call:
    """A waiting consume call; `outcome` is None when its time is up."""

    arrived: float
    deadline: float
    outcome: "asyncio.Future[GroupRecord | None]"


@dataclass(slots=True)
class _Claimed:
    pending: dict[int, dict[str, int]]
    records: list[GroupRecord] = field(default_factory=list)


class Consumer:
    """Create and close it on the event loop. It survives all bus errors: calls then wait until their time is up."""

    def __init__(
        self, bus: Bus, calls: BusCalls, topic: str, *, group: str, settings: KafkaPixySettings, me: Instances
    ) -> None:
        self.topic = topic
        self.group = group
        self.used_at = time.monotonic()
        self._holders = Holders(settings.ack_timeout_seconds)
        self.acks = AckLane(bus, calls, topic, group=group, holders=self._holders, on_done=self._acknowledged)
        #: The bus's error while the group cannot be made; until it is made, nothing is promised.
        self.problem = "the group has not been made yet"
        self._bus = bus
        self._calls = calls
        self._settings = settings
        self._me = me
        self._line: Line[Call] = Line(
            capacity=settings.channel_buffer_size + 1,
            max_pending=settings.max_pending_messages,
            max_retries=settings.max_retries,
        )
        self._wake = asyncio.Event()
        self._has_more = True
        self._looked_at = -math.inf
        self._is_closing = False
        self._task = start_task(self._run, "kafka-pixy consumer")

    @property
    def waiting(self) -> int:
        """Calls in the line."""
        return len(self._line)

    @property
    def is_idle(self) -> bool:
        return not self._line and not self._line.buffered and not self.acks.is_busy

    # ---- calls
    def join(self, arrived: float) -> Call | None:
        """None if too many calls wait."""
        self.used_at = arrived
        loop = asyncio.get_running_loop()
        call = Call(arrived, arrived + self._settings.long_polling_seconds, loop.create_future())
        if not self._line.join(call, call.deadline):
            return None
        if self._line.buffered:
            self._hand_out()
        if not call.outcome.done():
            timer = loop.call_later(call.deadline - time.monotonic(), self._time_is_up, call)
            call.outcome.add_done_callback(lambda _: timer.cancel())
            self._wake.set()
        return call

    def leave(self, call: Call) -> None:
        """The client is gone: its record goes to the next call."""
        self._line.leave(call)
        if call.outcome.done() and (offered := call.outcome.result()) is not None:
            self.take_back(offered)

    def take_back(self, offered: GroupRecord) -> None:
        """Return a record that was given to a call, but not sent in its answer."""
        self._line.take_back(offered)
        self._hand_out()
        self._wake.set()

    def arrived(self) -> None:
        """There may be new records."""
        self._has_more = True
        if self._line:
            self._wake.set()

    async def close(self) -> None:
        """Give back records that no client has seen; waiting calls end as if their time were up."""
        self._is_closing = True
        for call in self._line.calls:
            self._time_is_up(call)
        # Wait for the read under way, or its records would have no owner.
        self._wake.set()
        await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.acks.flush()
        try:
            await self._give_back(self._line.clear())
            if not self.problem:
                await self._calls.run(lambda: self._bus.forget_consumer(self.topic, self.group, self._me.name))
        except BusError as error:
            self._note("give_back", error)

    def _time_is_up(self, call: Call) -> None:
        if self._line.leave(call) and not call.outcome.done():
            call.outcome.set_result(None)

    def _hand_out(self) -> None:
        now = time.monotonic()
        for given in self._line.hand_out(now):
            if given.call.outcome.done():
                self._line.take_back(given.offered)
                continue
            given.call.outcome.set_result(given.offered)
            self._holders.given(given.offered, now)
            metrics.HANDED_OUT.inc()
            metrics.WAIT_SECONDS.observe(now - given.call.arrived)
            if given.offered.deliveries > 1:
                metrics.REDELIVERED.inc()

    def _acknowledged(self, acks: Sequence[Ack], done: dict[int, int]) -> None:
        was_held_back = self._line.is_held_back
        self._line.acknowledged(acks)
        for partition, records in done.items():
            self._line.add_pending(partition, -records)
        if was_held_back:
            self.arrived()

    # ---- the loop
    async def _run(self) -> None:
        while not self._is_closing:
            try:
                if self.problem:
                    await self._make()
                await self._round()
            except Exception as error:  # The outermost loop of a line: if it ended, no one could read from the group.
                self._note("consume", error)
                # The failed call may have taken effect: ask the bus.
                self._has_more, self._looked_at = True, -math.inf
                if self.problem or not (isinstance(error, BusError) and error.retryable):
                    # Also when the group expired or was deleted: it is made again.
                    self.problem = str(error) or repr(error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _make(self) -> None:
        """Make the group at the end of the topic with its first call, whatever happens to that call."""

        def make() -> int:
            count = make_topic(self._bus, self.topic, self._settings.partitions)
            self._bus.create_group(self.topic, self.group, at_end=True)
            return count

        self._line.partitions = await self._calls.run(make)
        self.problem = ""

    async def _round(self) -> None:
        if not self._line:
            await self._rest()
            return
        now = time.monotonic()
        if self._until_look(now) <= 0 and not await self._look():
            return
        self._hand_out()
        self._line.reads_ahead = self._me.is_alone
        want = self._line.want(time.monotonic()) if self._has_more else None
        if want is not None:
            self._has_more = False
            found = await self._calls.run(
                lambda: self._bus.read_group(
                    self.topic, self.group, self._me.name, partitions=want.partitions, max_records=want.records
                )
            )
            for partition, count in Counter(offered.record.partition for offered in found).items():
                self._line.add_pending(partition, count)
            self._line.offer(found, time.monotonic())
            self._hand_out()
            # Nothing arrived: `arrived` signals the next record.
            self._has_more |= bool(found)
            if found:
                return
        if self._line.buffered:
            # Every call has its record or is out of time, and its timer is due.
            await asyncio.sleep(0)
        elif self._line:
            await self._sleep(min(_LOOK_SECONDS, self._until_look(time.monotonic())))

    async def _rest(self) -> None:
        """No call waits: keep what was read ahead for a moment."""
        if not self._line.buffered:
            await self._sleep(None)
            return
        await self._sleep(READ_AHEAD_SECONDS)
        await self._give_back(self._line.give_up(time.monotonic()))

    async def _sleep(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        self._wake.clear()

    async def _look(self) -> bool:
        """Look for records that timed out, and records of dead gateways: they go ahead of all new ones.

        False if there are more than could be taken now.
        """
        wanted = min(_CLAIM_RECORDS, max(1, self._line.missing(time.monotonic())))
        found = await self._calls.run(lambda: self._claim(wanted))
        now = time.monotonic()
        self._line.set_pending({partition: sum(own.values()) for partition, own in found.pending.items()})
        spent = self._line.offer_again(found.records, now)
        if spent:
            await self._calls.run(lambda: self._bury(spent))
        # Another gateway's acknowledgements also make room.
        self._has_more = True
        self._hand_out()
        if len(found.records) >= wanted:
            return False
        self._looked_at = now
        return True

    def _until_look(self, now: float) -> float:
        """Seconds until the next look for expired records."""
        is_quiet = self._me.is_alone and not self._line.has_pending
        pause = _QUIET_LOOK_SECONDS if is_quiet else min(_LOOK_SECONDS, self._settings.ack_timeout_seconds / 2)
        return self._looked_at + pause - now

    def _claim(self, wanted: int) -> _Claimed:
        """On a thread."""
        found = _Claimed(self._bus.pending_by_consumer(self.topic, self.group))
        names = {name for own in found.pending.values() for name in own}
        # Ask who is alive after asking who holds what, so that a gateway that has just started does not look dead.
        gone = self._me.ended(names)
        if names:
            found.records += self._claim_of(None, self._settings.ack_timeout_seconds, wanted)
        # Records that were given back are newer than records that a consumer had.
        for name in (*sorted(gone), *(names & {NOBODY})):
            if len(found.records) < wanted:
                claimed = self._claim_of(name, 0.0, wanted - len(found.records))
                found.records += claimed
                if name != NOBODY:
                    metrics.TAKEN_OVER.inc(len(claimed))
                    self._bus.forget_consumer(self.topic, self.group, name)
        return found

    def _claim_of(self, name: str | None, min_idle_seconds: float, wanted: int) -> list[GroupRecord]:
        return self._bus.claim_expired(
            self.topic,
            self.group,
            self._me.name,
            min_idle_seconds=min_idle_seconds,
            max_records=wanted,
            of_consumer=name,
        )

    def _bury(self, spent: Sequence[GroupRecord]) -> None:
        """On a thread: write the records to the stream of dead letters, and only then remove them from the group."""
        for offered in spent:
            record = offered.record
            self._bus.publish_once(
                f"{self.topic}.{self.group}.dead",
                _dead_letter(record, self.group, offered.deliveries - 1),
                registry=_REGISTRY,
                name=f"{self.topic}/{self.group}/{record.partition}/{record.offset}/{offered.life}",
                content=b"",
                keep_seconds=_DEAD_LETTER_SECONDS,
            )
            lives = {record.offset: offered.life}
            self._bus.acknowledge(self.topic, self.group, record.partition, offsets=[record.offset], lives=lives)
            metrics.DEAD_LETTERS.inc()
            log.warning(
                "message_dropped",
                topic=self.topic,
                group=self.group,
                partition=record.partition,
                offset=record.offset,
                offers=offered.deliveries - 1,
            )

    async def _give_back(self, records: Sequence[GroupRecord]) -> None:
        if records:
            await self._calls.run(lambda: self._bus.give_back(self.topic, self.group, records))
            metrics.GIVEN_BACK.inc(len(records))
            self._looked_at = -math.inf

    def _note(self, where: str, error: Exception) -> None:
        metrics.BUS_FAILURES.labels(where).inc()
        log.warning("consumer_delayed", topic=self.topic, group=self.group, error=repr(error))


def _dead_letter(record: StoredRecord, group: str, offers: int) -> Record:
    """The message unchanged, with its origin in its headers."""
    origin = {"topic": record.topic, "group": group, "partition": str(record.partition), "offset": str(record.offset)}
    return Record(record.value, record.key, {**record.headers, **origin, "offers": str(offers)})
