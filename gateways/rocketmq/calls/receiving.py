"""Delivers messages to groups, hides each for a time, and settles them."""

import asyncio
import itertools
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from bus.messaging import Claim, Delivery, Received, Settled
from candlewright.wire.errors import BusError, BusUnavailable, OffsetOutOfRange
from core.background import awaited_task, only_noted, start_task
from core.log import get_logger
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq.calls.lanes import Lane, Room
from gateways.rocketmq.calls.pulling import first_since
from gateways.rocketmq.calls.sending import QUEUE, Sending
from gateways.rocketmq.calls.waiting import MAX_BATCH, PATIENCE_SECONDS, REPLY_BYTES, Waiting
from gateways.rocketmq.clients.clients import Clients
from gateways.rocketmq.clients.members import DEFAULT_MAX_ATTEMPTS
from gateways.rocketmq.door.status import INVALID_ARGUMENT, NOT_FOUND, Refused, common
from gateways.rocketmq.messages import handles, messages
from gateways.rocketmq.messages.delays import nack_delay
from gateways.rocketmq.messages.filters import Filter, filter_of
from gateways.rocketmq.messages.message_groups import message_group_partition
from gateways.rocketmq.messages.names import dead_letter_topic, group_of, topic_of
from gateways.rocketmq.metrics import DEAD, DELIVERED, FAILURES, FILTERED, REDELIVERED, SETTLED
from gateways.rocketmq.store import Store, set_within
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

log = get_logger()

_MAX_HIDE_SECONDS = 12 * 3_600.0
#: For records that group members received over another protocol.
_OTHERS_SECONDS = 300.0
#: How long a held call waits between looks if others may have settled or postponed messages.
_LOOK_SECONDS = 1.0
_PAGE = 256
_GONE_PAUSE_SECONDS = 0.2

_Answer = service.AckMessageRequest | service.NackMessageRequest | service.ForwardMessageToDeadLetterQueueRequest


class Receiving:
    """`store_host`: reported to clients as the host that stores the messages."""

    def __init__(
        self,
        settings: RocketMQSettings,
        store: Store,
        sending: Sending,
        *,
        clients: Clients,
        waiting: Waiting,
        store_host: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._sending = sending
        self._clients = clients
        self._waiting = waiting
        self._store_host = store_host
        self._turn = itertools.count()
        #: Groups known to exist; an expired one is made again when that is noticed.
        self._joined: set[tuple[str, str]] = set()
        #: References that keep tasks alive until they end.
        self._afterwork: set[asyncio.Task[None]] = set()
        self._acknowledging = Lane[Claim, Settled](lambda claims: store.run(store.queue.acknowledge, claims), Room())

    async def receive(
        self, request: service.ReceiveMessageRequest, hold_seconds: float
    ) -> service.ReceiveMessageResponse:
        topic, group = topic_of(request.partition.topic), group_of(request.group)
        accepts = filter_of(request.filter_expression)
        count = await self._sending.partitions(topic)
        # Some servers use pseudo partition -1 for any partition.
        asked = list(range(count)) if request.partition.id == -1 else [request.partition.id]
        if not 0 <= asked[0] < count:
            raise Refused(NOT_FOUND, f"topic {topic} has no partition {request.partition.id}: there are {count}")
        await self.join(topic, group, request.consume_policy, request=request)
        hide = min(request.invisible_duration.ToMilliseconds() / 1_000, _MAX_HIDE_SECONDS)
        hide = hide if hide > 0 else self._settings.invisible_seconds
        most = max(1, min(request.batch_size, MAX_BATCH))
        until = time.monotonic() + hold_seconds
        places = [(topic, partition) for partition in asked]
        in_order_of = group if request.fifo_flag else None
        with self._waiting.held(request.client_id, places, in_order_of) as arrived:
            while True:
                if self._clients.is_gone(request.client_id):
                    # The client could not settle what it was given.
                    taken: list[definition.Message] = []
                    await asyncio.sleep(min(_GONE_PAUSE_SECONDS, max(0.0, until - time.monotonic())))
                    break
                self._store.watch(places, arrived)
                found, due = await self._look(topic, group, asked, request, hide, most)
                try:
                    taken = await self._select(topic, group, found, accepts, request.partition.topic, hide)
                except BaseException:
                    # The caller hung up, or the store is not responding.
                    self._later(self._undo(topic, group, found))
                    raise
                left = until - time.monotonic()
                if taken or left <= 0 or self._waiting.is_over:
                    break
                if found:
                    # Every message was filtered out: more may be available immediately.
                    continue
                pause = min(left, PATIENCE_SECONDS) if due is None else min(left, due, _LOOK_SECONDS)
                await set_within(arrived, pause)
        reply = service.ReceiveMessageResponse(common=common(), messages=taken)
        reply.delivery_timestamp.FromMilliseconds(round(time.time() * 1_000))
        reply.invisible_duration.FromMilliseconds(round(hide * 1_000))
        return reply

    async def join(
        self, topic: str, group: str, policy: int, *, request: service.ReceiveMessageRequest | None = None
    ) -> None:
        """Make the group if it does not exist, positioned as its consume policy says."""
        if (topic, group) in self._joined:
            return
        if group in await self._store.run(self._store.bus.groups, topic):
            self._joined.add((topic, group))
            return
        at_end = policy in (definition.RESUME, definition.DISCARD)
        await self._store.run(self._store.bus.create_group, topic, group, at_end=at_end)
        if policy == definition.TARGET_TIMESTAMP and request is not None:
            start_ms = request.initialization_timestamp.ToMilliseconds()
            await self._store.run(self._pass_over, topic, group, start_ms)
        self._joined.add((topic, group))

    async def acknowledge(self, request: service.AckMessageRequest) -> service.AckMessageResponse:
        if request.WhichOneof("handle") == "offset":
            raise Refused(
                INVALID_ARGUMENT, "an offset without a partition does not identify a message: send the receipt handle"
            )
        claim = self._claim(request)
        self._settled("ack", await self._acknowledging.do(claim), claim)
        return service.AckMessageResponse(common=common())

    async def refuse(self, request: service.NackMessageRequest) -> service.NackMessageResponse:
        claim = self._claim(request)
        attempt = max(request.delivery_attempt, claim.attempt)
        most = request.max_delivery_attempts
        if most <= 0:
            most = await self._clients.max_attempts(claim.group) or DEFAULT_MAX_ATTEMPTS
        if attempt >= most:
            await self._bury(claim, attempt, "attempts")
        else:
            delay = nack_delay(self._settings.nack_delays_seconds, attempt)
            self._settled("nack", await self._store.run(self._store.queue.postpone, claim, delay), claim)
        return service.NackMessageResponse(common=common())

    async def forward(
        self, request: service.ForwardMessageToDeadLetterQueueRequest
    ) -> service.ForwardMessageToDeadLetterQueueResponse:
        claim = self._claim(request)
        await self._bury(claim, max(request.delivery_attempt, claim.attempt), "forwarded")
        return service.ForwardMessageToDeadLetterQueueResponse(common=common())

    async def drain(self) -> None:
        if self._afterwork:
            await asyncio.wait(self._afterwork, timeout=5.0)

    # ---- inside
    async def _look(
        self,
        topic: str,
        group: str,
        partitions: Sequence[int],
        request: service.ReceiveMessageRequest,
        hide: float,
        most: int,
    ) -> tuple[list[Delivery], float | None]:
        """The messages available now, and the seconds until a hidden one is due."""
        found: list[Delivery] = []
        due: float | None = None
        start = next(self._turn) % len(partitions)
        for partition in [*partitions[start:], *partitions[:start]]:
            call = awaited_task(
                self._store.run(
                    self._store.queue.receive,
                    topic,
                    group,
                    request.client_id or "rocketmq",
                    partition=partition,
                    max_records=most - len(found),
                    hide_seconds=hide,
                    default_hide_seconds=max(hide, _OTHERS_SECONDS),
                    in_order=request.fifo_flag,
                )
            )
            try:
                received = await asyncio.shield(call)
            except asyncio.CancelledError:
                self._later(self._give_back_when_done(call, topic, group, found))
                raise
            except BusUnavailable:
                if found:
                    return found, due
                raise
            except BusError:
                if group in await self._store.run(self._store.bus.groups, topic):
                    raise
                # The group expired or was deleted, so its position is unknown.
                self._joined.discard((topic, group))
                await self.join(topic, group, definition.PLAYBACK)
                continue
            found += received.deliveries
            if received.next_due_seconds is not None:
                due = received.next_due_seconds if due is None else min(due, received.next_due_seconds)
            if len(found) >= most:
                break
        return found, due

    async def _select(
        self,
        topic: str,
        group: str,
        found: Sequence[Delivery],
        accepts: Filter,
        resource: definition.Resource,
        hide: float,
    ) -> list[definition.Message]:
        """The messages for the reply; the rest of what was found is settled or given back."""
        taken: list[definition.Message] = []
        dropped: list[Claim] = []
        back: list[Delivery] = []
        size = 0
        most = await self._clients.max_attempts(group) if found else None
        until_ms = round((time.time() + hide) * 1_000)
        for delivery in found:
            message = messages.from_record(delivery.record, resource, self._store_host)
            claim = _claim(topic, group, delivery)
            if not accepts(message):
                dropped.append(claim)
                continue
            if most is not None and delivery.attempt > most:
                await self._bury(claim, delivery.attempt - 1, "never_answered")
                continue
            size += message.ByteSize()
            if back or (taken and size > REPLY_BYTES):
                back.append(delivery)
                continue
            system = message.system_attribute
            system.receipt_handle = handles.text_of(claim, until_ms)
            system.delivery_attempt = delivery.attempt
            system.invisible_period.FromMilliseconds(round(hide * 1_000))
            taken.append(message)
        if dropped:
            # Otherwise they would stay pending for this group forever.
            await self._store.run(self._store.queue.acknowledge, dropped)
            FILTERED.inc(len(dropped))
        if back:
            await self._store.run(self._give_back, topic, group, back)
        DELIVERED.inc(len(taken))
        REDELIVERED.inc(sum(message.system_attribute.delivery_attempt > 1 for message in taken))
        return taken

    async def undeliver(self, reply: service.ReceiveMessageResponse) -> None:
        """The caller hung up before the reply: undo the delivery."""
        claims = [handles.parse(message.system_attribute.receipt_handle) for message in reversed(reply.messages)]
        await self._store.run(self._store.queue.give_back, claims)

    async def _bury(self, claim: Claim, attempts: int, reason: str) -> None:
        """Move the message to the group's dead letters; repeating this changes nothing.

        `attempts`: the number of attempts, as the client counts them.
        """
        topic, group, partition, offset, *_ = claim
        if partition >= await self._sending.partitions(topic):
            raise Refused(INVALID_ARGUMENT, "the receipt handle does not belong to a message")
        try:
            (record,) = await self._store.run(self._store.bus.read, topic, partition, offset, max_records=1)
        except (OffsetOutOfRange, ValueError):
            # Trimmed, or never existed.
            (outcome,) = await self._store.run(self._store.queue.acknowledge, [claim])
            self._settled("bury", outcome, claim)
            return
        target = dead_letter_topic(group)
        count = await self._store.run(self._store.bus.create_topic, target)
        message = messages.from_record(record, definition.Resource(name=target), self._store_host)
        system = message.system_attribute
        message.user_attribute[messages.REAL_TOPIC] = topic
        message.user_attribute[messages.REAL_QUEUE] = f"{partition}:{offset}"
        message.user_attribute[messages.ORIGIN_ID] = system.message_id
        message.user_attribute[messages.ATTEMPTS] = str(attempts)
        system.partition_id = (
            message_group_partition(system.message_group, count) if system.message_group else offset % count
        )
        # The outcome of the first delivery no longer applies.
        system.ClearField("timed_delivery")
        system.message_type = definition.FIFO if system.message_group else definition.NORMAL
        id = f"dead/{group}/{topic}/{partition}/{offset}"
        payload = message.SerializeToString()
        outcome = await self._store.run(self._store.queue.bury, claim, queue=QUEUE, id=id, payload=payload)
        if outcome is Settled.DONE:
            DEAD.labels(reason).inc()
            await self._sending.release(id, payload)
        self._settled("bury", outcome, claim)

    def _claim(self, request: _Answer) -> Claim:
        """Raises Refused for a malformed handle, or one of a different topic or group than the call names."""
        claim = handles.parse(request.receipt_handle)
        if claim.topic != topic_of(request.topic) or claim.group != group_of(request.group):
            raise Refused(INVALID_ARGUMENT, "the receipt handle belongs to another topic or group")
        return claim._replace(consumer=request.client_id)

    def _settled(self, what: str, outcome: Settled, claim: Claim) -> None:
        SETTLED.labels(what, outcome.value).inc()
        if outcome is Settled.STALE:
            raise Refused(
                INVALID_ARGUMENT, "the receipt handle is out of date: the message has been delivered again since"
            )
        if outcome is Settled.UNKNOWN:
            raise Refused(INVALID_ARGUMENT, "the receipt handle does not belong to a message")
        # In ordered mode later messages may be free now; a postponed one may be due before waiting calls look again.
        if what == "nack" or self._waiting.is_in_order(claim.topic, claim.group, claim.partition):
            self._store.nudge([(claim.topic, claim.partition)])

    def _pass_over(self, topic: str, group: str, since_ms: int) -> None:
        """Position a new group at the first record at or after a time."""
        for partition, bounds in enumerate(self._store.bus.state(topic)):
            start = first_since(
                self._store.bus, topic, partition, first=bounds.first, end=bounds.end, wanted_ms=since_ms
            )
            at = bounds.first
            while at < start:
                found = self._store.bus.read_group(
                    topic, group, "rocketmq", partitions=[partition], max_records=min(_PAGE, start - at)
                )
                if not found:
                    break
                at = found[-1].record.offset + 1
                self._store.bus.acknowledge(topic, group, partition, offsets=[entry.record.offset for entry in found])

    def _give_back(self, topic: str, group: str, deliveries: Sequence[Delivery]) -> None:
        self._store.queue.give_back([_claim(topic, group, delivery) for delivery in reversed(deliveries)])

    async def _give_back_when_done(
        self, call: "asyncio.Future[Received]", topic: str, group: str, found: Sequence[Delivery]
    ) -> None:
        deliveries = list(found)
        try:
            deliveries += (await call).deliveries
        except BusError as error:
            log.warning("rocketmq_receive_failed", topic=topic, group=group, error=str(error))
        await self._undo(topic, group, deliveries)

    async def _undo(self, topic: str, group: str, deliveries: Sequence[Delivery]) -> None:
        """Undo the delivery of all of them; settled ones stay settled."""
        try:
            await self._store.run(self._give_back, topic, group, deliveries)
            self._store.nudge({(topic, delivery.record.partition) for delivery in deliveries})
        except BusError as error:
            FAILURES.labels("give_back").inc()
            log.warning("rocketmq_give_back_failed", topic=topic, group=group, error=str(error))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        # A message that is not given back returns after its time.
        task = start_task(lambda: work, "rocketmq give-back", on_failure=only_noted)
        self._afterwork.add(task)
        task.add_done_callback(self._afterwork.discard)


def _claim(topic: str, group: str, delivery: Delivery) -> Claim:
    record = delivery.record
    return Claim(topic, group, record.partition, record.offset, delivery.attempt, life=delivery.life)
