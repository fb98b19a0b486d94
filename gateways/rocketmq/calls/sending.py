"""Accepts immediate, timed and transactional messages, and runs the tasks that publish timed ones and query senders."""

import asyncio
import time
import uuid
from typing import Protocol

from google.protobuf.message import DecodeError

from bus.api import Record
from bus.dead_letters import Letter, put_aside
from candlewright.wire.errors import BusError
from core.log import get_logger
from core.settings_gateways import RocketMQSettings
from gateways.records import MAX_AHEAD_NS
from gateways.rocketmq.calls.publishing import Publisher
from gateways.rocketmq.door.status import INVALID_ARGUMENT, NOT_FOUND, Refused, common
from gateways.rocketmq.messages import delays, messages
from gateways.rocketmq.messages.message_groups import message_group_partition
from gateways.rocketmq.messages.names import HOLDING_TOPIC, full_name, is_writable, topic_of
from gateways.rocketmq.metrics import FAILURES, KEPT, RELEASE_FAILURES, RELEASED, REPEATED, SENT, TRANSACTIONS
from gateways.rocketmq.store import Store, set_within
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

log = get_logger()

#: The queue of timed and half messages, and the registries that make sure each is published once.
QUEUE = "rocketmq"
REGISTRY = "rocketmq_released"
SENT_REGISTRY = "rocketmq_sent"
_KEEP_SECONDS = 7 * 86_400.0
_LEASE_SECONDS = 30.0
_CLAIM = 64
#: Keeps many messages whose senders are gone permanently cheap.
_ASK_PAUSE_SECONDS = 0.05
#: The longest pause of the task: messages may be added at another gateway.
_PAUSE_SECONDS = 0.2

COMMIT, ROLLBACK, GIVEN_UP = "commit", "rollback", "given up"


class Ask(Protocol):
    async def __call__(self, group: str, message: definition.Message, transaction_id: str, *, asked: int) -> bool:
        """Asks a live producer of the group to decide the message; False if there is none."""
        ...


class Sending:
    """`partitions`: for topics made here."""

    def __init__(
        self, settings: RocketMQSettings, store: Store, partitions: int, *, max_ahead_ns: int = MAX_AHEAD_NS
    ) -> None:
        self._settings = settings
        self._max_ahead_ns = max_ahead_ns
        self._store = store
        self._new_partitions = partitions
        self._publisher = Publisher(store)
        #: Partitions of the topics sent to; they never change.
        self._counts: dict[str, int] = {}
        self._wake = asyncio.Event()
        #: A sentence while the bus is down.
        self.problem = ""

    # ---- calls
    async def send(self, request: service.SendMessageRequest) -> service.SendMessageResponse:
        message = request.message
        system = message.system_attribute
        topic = topic_of(message.topic)
        if not is_writable(topic):
            raise Refused(NOT_FOUND, f"topic {topic} has no writable partition")
        messages.check(message)
        delay = self._delay(system)
        if topic not in self._counts:
            self._counts[topic] = await self._store.run(self._open, topic)
        partition = _partition(topic, request, self._counts[topic])
        # Refuse now what would be refused at release.
        record = messages.to_record(topic, message, partition, max_ahead_ns=self._max_ahead_ns)
        queue = self._store.queue
        reply = service.SendMessageResponse(common=common(), message_id=system.message_id)
        if system.message_type == definition.TRANSACTION:
            reply.transaction_id = uuid.uuid4().hex
            kept, check = _kept(topic, message, partition), self._first_check(system)
            await self._store.run(queue.prepare, QUEUE, reply.transaction_id, kept, ask_after_seconds=check)
            TRANSACTIONS.labels("prepared").inc()
        elif delay > 0:
            kept, id = _kept(topic, message, partition), self._later_id(topic, system)
            is_new = await self._store.run(queue.add, QUEUE, id, kept, delay_seconds=delay)
            (SENT.labels("later") if is_new else REPEATED).inc()
            self._wake.set()
        elif self._settings.deduplication_seconds > 0:
            name, keep_seconds = f"{topic}/{system.message_id}", self._settings.deduplication_seconds
            is_new = await self._store.run(self._publish_once, topic, record, SENT_REGISTRY, name, keep_seconds)
            (SENT.labels("now") if is_new else REPEATED).inc()
        else:
            await self._publisher.publish(topic, record)
            SENT.labels("now").inc()
        return reply

    def _open(self, topic: str) -> int:
        """Make the topic if needed; returns its number of partitions."""
        self._partitions(topic)
        return self._store.bus.partitions(topic) or self._store.bus.create_topic(topic)

    async def end_transaction(self, request: service.EndTransactionRequest) -> service.EndTransactionResponse:
        id = request.transaction_id
        if not id:
            raise Refused(INVALID_ARGUMENT, "the transaction_id is missing")
        is_commit = request.resolution == service.EndTransactionRequest.COMMIT
        wanted = COMMIT if is_commit else ROLLBACK
        queue = self._store.queue
        half = await self._store.run(queue.half, QUEUE, id)
        delay = None
        if is_commit and half is not None:
            delay = self._delay(definition.Message.FromString(half).system_attribute)
        held = await self._store.run(
            queue.resolve, QUEUE, id, wanted, delay_seconds=delay if half is not None else (0.0 if is_commit else None)
        )
        if held != wanted:
            TRANSACTIONS.labels("refused").inc()
            text = f"transaction {id[:64]} ended before: {held}" if held else f"no such transaction: {id[:64]}"
            raise Refused(INVALID_ARGUMENT, text)
        if half is not None:
            TRANSACTIONS.labels(wanted).inc()
            if is_commit and not delay:
                await self.release(id, half)
        self._wake.set()
        return service.EndTransactionResponse(common=common())

    async def partitions(self, topic: str) -> int:
        """How many partitions `topic` has, or will have. Raises Refused NOT_FOUND."""
        return await self._store.run(self._partitions, topic)

    def _partitions(self, topic: str) -> int:
        count = self._store.bus.partitions(topic)
        if not count and not self._settings.create_topics:
            raise Refused(NOT_FOUND, f"there is no topic {topic}")
        return count or self._new_partitions

    async def look(self) -> None:
        """Raises BusUnavailable if the store does not respond."""
        await self._store.run(self._store.queue.next_due, QUEUE)

    # ---- tasks
    async def publish_later(self) -> None:
        """Runs forever: publishes messages that are due."""
        while True:
            self._wake.clear()
            try:
                due = await self._store.run(
                    self._store.queue.claim_due, QUEUE, max_items=_CLAIM, lease_seconds=_LEASE_SECONDS
                )
                for id, payload in due:
                    await self.release(id, payload)
                left = None if due else await self._store.run(self._store.queue.next_due, QUEUE)
                self.problem = ""
            except BusError as error:
                self.problem = f"the bus does not answer: {error}"
                FAILURES.labels("later").inc()
                log.warning("rocketmq_later_failed", error=str(error))
                due, left = [], 1.0
            if not due:
                pause = _PAUSE_SECONDS if left is None else min(left, _PAUSE_SECONDS)
                await set_within(self._wake, pause)

    async def release(self, id: str, payload: bytes) -> None:
        """Publish a timed message, exactly once however often this is repeated, by any gateway. A message that cannot
        be published now is kept.
        """
        message = await self._read(id, payload)
        if message is None:
            return
        topic = message.topic.name
        try:
            record = messages.to_record(
                topic, message, message.system_attribute.partition_id, max_ahead_ns=self._max_ahead_ns
            )
            is_first = await self._store.run(self._release, id, topic, record)
        except (BusError, Refused) as error:
            RELEASE_FAILURES.inc()
            log.warning("rocketmq_release_failed", topic=topic, id=id, error=str(error))
            return
        if is_first:
            RELEASED.inc()

    async def _read(self, id: str, payload: bytes) -> definition.Message | None:
        """None for an invalid message, which is put aside and does not return."""
        try:
            return definition.Message.FromString(payload)
        except DecodeError:
            FAILURES.labels("unreadable").inc()
            await self._store.run(self._drop, id, payload)
            return None

    def _drop(self, id: str, payload: bytes) -> None:
        put_aside(self._store.bus, "gateways", [Letter(QUEUE, payload, "not a timed message", id.encode())])
        self._store.queue.resolve(QUEUE, id, GIVEN_UP)
        self._store.queue.remove(QUEUE, id, registry=REGISTRY)

    def _release(self, id: str, topic: str, record: Record) -> bool:
        """On a thread."""
        once = self._publish_once(topic, record, REGISTRY, id, _KEEP_SECONDS)
        self._store.queue.remove(QUEUE, id, registry=REGISTRY)
        return once

    def _publish_once(self, topic: str, record: Record, registry: str, name: str, keep_seconds: float) -> bool:
        """Whether the name was new."""
        self._publisher.expect(topic, record)
        once = self._store.bus.publish_once(
            topic, record, registry=registry, name=name, content=b"", keep_seconds=keep_seconds
        )
        self._publisher.published(topic, record)
        return once.is_first

    async def every_second(self) -> None:
        """Runs forever: finalises bars of tickers that fell silent, and reports how much is kept."""
        while True:
            await asyncio.sleep(1.0)
            try:
                await self._store.run(self._publisher.tick_clocks.publish_due)
                KEPT.set(await self._store.run(self._store.queue.kept_bytes, QUEUE))
            except BusError as error:
                FAILURES.labels("clocks").inc()
                log.warning("rocketmq_clocks_failed", error=str(error))

    async def ask_senders(self, ask: Ask) -> None:
        """Runs forever: queries the senders of undecided messages, and sets aside those never decided."""
        base = self._settings.transaction_check_seconds
        while True:
            try:
                halves = await self._store.run(
                    self._store.queue.claim_unresolved, QUEUE, max_items=_CLAIM, again_seconds=base
                )
                for half in halves:
                    message = await self._read(half.id, half.payload)
                    if message is None:
                        continue
                    if half.asked >= self._settings.transaction_check_max:
                        await self._put_away(half.id, message)
                    elif await ask(
                        full_name(message.system_attribute.producer_group),
                        self._to_ask(message),
                        half.id,
                        asked=half.asked,
                    ):
                        await self._store.run(
                            self._store.queue.count_asked, QUEUE, half.id, delays.check_delay(base, half.asked)
                        )
                        TRANSACTIONS.labels("asked").inc()
                    else:
                        # There is no producer to query, so this does not count as a check.
                        TRANSACTIONS.labels("nobody").inc()
            except BusError as error:
                FAILURES.labels("transactions").inc()
                log.warning("rocketmq_transaction_check_failed", error=str(error))
                halves = []
            await asyncio.sleep(_ASK_PAUSE_SECONDS if halves else min(0.5, base / 4))

    # ---- inside
    def _delay(self, system: definition.SystemAttribute) -> float:
        """Seconds to wait; 0 or less means now. Raises Refused."""
        if system.HasField("delay_level"):
            if not 0 <= system.delay_level <= len(delays.DELAY_LEVEL_SECONDS):
                raise Refused(INVALID_ARGUMENT, f"the delay_level {system.delay_level} is not between 1 and 18")
            return float(delays.DELAY_LEVEL_SECONDS[system.delay_level - 1]) if system.delay_level else 0.0
        if not system.HasField("delivery_timestamp"):
            return 0.0
        delay = system.delivery_timestamp.ToMilliseconds() / 1_000 - time.time()
        if delay > self._settings.max_delay_hours * 3_600:
            hours = self._settings.max_delay_hours
            raise Refused(INVALID_ARGUMENT, f"the delivery_timestamp is more than {hours:g} hours ahead")
        return delay

    def _first_check(self, system: definition.SystemAttribute) -> float:
        period = system.orphaned_transaction_recovery_period
        return max(0.0, period.ToMilliseconds() / 1_000) or self._settings.transaction_check_seconds

    def _later_id(self, topic: str, system: definition.SystemAttribute) -> str:
        """Identifies a repeated send if repetitions are to be dropped."""
        if self._settings.deduplication_seconds > 0:
            return f"{topic}/{system.message_id}"
        return uuid.uuid4().hex

    def _to_ask(self, message: definition.Message) -> definition.Message:
        """The message as its sender sees it."""
        shown = definition.Message()
        shown.CopyFrom(message)
        digest = shown.system_attribute.body_digest
        digest.checksum = messages.checksum(digest.type, shown.body)
        return shown

    async def _put_away(self, id: str, message: definition.Message) -> None:
        topic = message.topic.name
        message.topic.name = HOLDING_TOPIC
        message.user_attribute[messages.REAL_TOPIC] = topic
        message.system_attribute.partition_id = 0
        await self._store.run(self._store.bus.create_topic, HOLDING_TOPIC)
        payload = message.SerializeToString()
        held = await self._store.run(self._store.queue.resolve, QUEUE, id, GIVEN_UP, payload=payload, delay_seconds=0.0)
        if held == GIVEN_UP:
            TRANSACTIONS.labels("given_up").inc()
            log.warning("rocketmq_transaction_given_up", topic=topic, transaction=id)
            await self.release(id, payload)


def _kept(topic: str, message: definition.Message, partition: int) -> bytes:
    """A timed message, with its destination."""
    kept = definition.Message()
    kept.CopyFrom(message)
    kept.topic.CopyFrom(definition.Resource(name=topic))
    kept.system_attribute.partition_id = partition
    return kept.SerializeToString()


def _partition(topic: str, request: service.SendMessageRequest, count: int) -> int:
    """The partition that the call names, else the message group's, else the message's. Raises Refused NOT_FOUND."""
    system = request.message.system_attribute
    if request.HasField("partition"):
        partition = request.partition.id
    elif system.message_group:
        return message_group_partition(system.message_group, count)
    else:
        partition = system.partition_id
    if not 0 <= partition < count:
        raise Refused(NOT_FOUND, f"topic {topic} has no partition {partition}: there are {count}")
    return partition
