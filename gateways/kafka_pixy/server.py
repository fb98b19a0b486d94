"""The service: requests in, answers and status codes out."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from bus.api import Bus, GroupRecord
from candlewright.wire.errors import BusError, InvalidRequest
from core.background import awaited_task, only_noted, start_task
from core.log import get_logger
from core.settings_gateways import KafkaPixySettings
from gateways import records
from gateways.kafka_pixy import metrics
from gateways.kafka_pixy.bus_calls import BusCalls
from gateways.kafka_pixy.consumer import Consumer
from gateways.kafka_pixy.feed import Feed
from gateways.kafka_pixy.instances import BEAT_SECONDS, Instances
from gateways.kafka_pixy.producer import Producer
from gateways.service import handlers_of
from protobuf import kafkapixy_pb2 as pixy

MAX_REQUEST_BYTES = 1 << 20
#: Size limit of a produced message, key included.
MAX_MESSAGE_BYTES = 1_000_000
_MESSAGE_OVERHEAD_BYTES = 26
MAX_GROUP_BYTES = 249
#: Groups on topics served at the same time, and calls in total.
MAX_LINES = 10_000
MAX_CALLS = 20_000
#: Bytes of messages in calls waiting for their write.
MAX_PRODUCE_BYTES = 256 << 20
#: A line without a call for this long ends; its group stays.
_LINE_SECONDS = 20.0
_STOP_SECONDS = 5.0
_LARGEST_OFFSET = (1 << 53) - 1
Code = grpc.StatusCode
log = get_logger()


class _Refused(Exception):
    """An answer with this status."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class KafkaPixy:
    """See `gateways.gateway.Gateway`."""

    name = "kafka_pixy"

    def __init__(self, settings: KafkaPixySettings, bus: Bus, max_ahead_ns: int = records.MAX_AHEAD_NS) -> None:
        self._settings = settings
        self._max_ahead_ns = max_ahead_ns
        self._bus = bus
        self._instances = Instances(bus)
        self._consumers: dict[tuple[str, str], Consumer] = {}
        self._by_topic: dict[str, set[Consumer]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._produce_bytes = 0
        self._problem = ""
        self._address = ""
        self._returning: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    # ---- life
    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = BusCalls()
        self._producer = Producer(self._bus, self._calls, self._settings.partitions, on_written=self._arrived)
        self._feed = Feed(self._bus, self._tell)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=MAX_CALLS,
        )
        behaviours: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "Produce": self._produce,
            "ConsumeNAck": self._consume,
            "Ack": self._ack,
        }
        service = pixy.DESCRIPTOR.services_by_name["KafkaPixy"]
        self._server.add_generic_rpc_handlers(
            (handlers_of(service, {name: _answering(name, behaviour) for name, behaviour in behaviours.items()}),)
        )
        try:
            port = self._server.add_insecure_port(self._settings.bind)
        except RuntimeError as error:
            raise OSError(f"gateways.kafka_pixy.bind: cannot listen on {self._settings.bind}") from error
        self._address = f"{self._settings.bind.rpartition(':')[0]}:{port}"
        try:
            await self._calls.run(self._instances.beat)
        except BusError as error:
            raise OSError(f"the bus does not answer: {error}") from error
        self._feed.start()
        self._tasks = [
            start_task(self._live, "kafka-pixy beat"),
            start_task(self._keep_up, "kafka-pixy lines", restarts_after=BEAT_SECONDS),
        ]
        await self._server.start()

    async def stop(self) -> None:
        """Refuse new calls, end waiting ones, write asynchronous messages, give back records that no client saw."""
        self._is_stopping = True
        stopping = awaited_task(self._server.stop(_STOP_SECONDS))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(consumer.close() for consumer in self._consumers.values()))
        await stopping
        lost = await self._producer.flush(self._settings.flush_seconds)
        if lost:
            metrics.DROPPED.labels("stop").inc(lost)
            log.error("messages_not_written", messages=lost)
        await asyncio.to_thread(self._feed.close)
        try:
            await self._calls.run(self._instances.leave)
        except BusError as error:
            log.warning("bus_unavailable", error=str(error))
        await asyncio.to_thread(self._calls.close)

    def problems(self) -> tuple[str, ...]:
        ended = tuple("a background task has ended" for task in self._tasks if task.done())
        return (*ended, self._problem) if self._problem else ended

    def details(self) -> Mapping[str, Any]:
        consumers = list(self._consumers.values())
        return {
            "address": self._address,
            "lines": len(consumers),
            "waiting_calls": sum(consumer.waiting for consumer in consumers),
        }

    async def _live(self) -> None:
        """Beat from a thread with no other work: a gateway that is silent for a few seconds is taken for dead."""
        while True:
            try:
                await asyncio.to_thread(self._instances.beat)
                await asyncio.to_thread(self._producer.clocks.publish_due)
                self._problem = ""
            except Exception as error:  # The outermost loop of the task.
                self._problem = f"the bus does not answer: {error}"
                metrics.BUS_FAILURES.labels("beat").inc()
            await asyncio.sleep(BEAT_SECONDS)

    async def _keep_up(self) -> None:
        """End lines without calls."""
        while True:
            oldest = time.monotonic() - _LINE_SECONDS
            ending = [place for place, own in self._consumers.items() if own.is_idle and own.used_at < oldest]
            for topic, group in ending:
                self._by_topic[topic].discard(self._consumers[topic, group])
                if not self._by_topic[topic]:
                    del self._by_topic[topic]
            await asyncio.gather(*(self._consumers.pop(place).close() for place in ending))
            self._watch()
            metrics.LINES.set(len(self._consumers))
            metrics.WAITING_CALLS.set(sum(consumer.waiting for consumer in self._consumers.values()))
            await asyncio.sleep(BEAT_SECONDS)

    def _watch(self) -> None:
        self._feed.watch(frozenset(self._by_topic))

    def _tell(self, topic: str) -> None:
        self._loop.call_soon_threadsafe(self._arrived, topic)

    def _arrived(self, topic: str) -> None:
        for consumer in self._by_topic.get(topic, ()):
            consumer.arrived()

    # ---- the three methods
    async def _produce(self, request: pixy.ProdRq) -> pixy.ProdRs:
        self._check_cluster(request.cluster)
        key = None if request.key_undefined else request.key_value
        try:
            record = records.record_of(request.topic, request.message, key=key, max_ahead_ns=self._max_ahead_ns)
        except InvalidRequest as error:
            raise _Refused(Code.INVALID_ARGUMENT, str(error)) from error
        size = len(request.message) + len(key or b"") + _MESSAGE_OVERHEAD_BYTES
        if size > MAX_MESSAGE_BYTES:
            if not request.async_mode:
                raise _Refused(Code.INTERNAL, f"a message has at most {MAX_MESSAGE_BYTES} bytes; this one has {size}")
            metrics.DROPPED.labels("size").inc()
            return pixy.ProdRs(partition=-1, offset=-1)
        if self._produce_bytes + size > MAX_PRODUCE_BYTES:
            raise _Refused(Code.RESOURCE_EXHAUSTED, "too many messages wait to be written; try again later")
        self._produce_bytes += size
        try:
            if request.async_mode:
                await self._producer.accept(request.topic, record)
                return pixy.ProdRs(partition=-1, offset=-1)
            written = await self._producer.write(request.topic, record)
        except BusError as error:
            raise _Refused(Code.INTERNAL, f"the message was not written: {error}") from error
        finally:
            self._produce_bytes -= size
        return pixy.ProdRs(partition=written.partition, offset=written.offset)

    async def _consume(self, request: pixy.ConsNAckRq) -> pixy.ConsRs:
        arrived = time.monotonic()
        self._check_cluster(request.cluster)
        is_explicit = not request.no_ack and not request.auto_ack
        if is_explicit and (request.ack_partition < 0 or request.ack_offset < 0):
            raise _Refused(
                Code.INVALID_ARGUMENT, f"invalid ack: ({request.ack_partition}, {request.ack_offset}) is below zero"
            )
        consumer = await self._consumer(request.topic, request.group, arrived)
        if is_explicit and request.ack_offset <= _LARGEST_OFFSET:
            acked = consumer.acks.begin(request.ack_partition, request.ack_offset)
            if not consumer.acks.knows(request.ack_partition, request.ack_offset):
                # It may be of a record that no client has, so it must not affect the record that this call is given.
                await asyncio.wait([acked], timeout=arrived + self._settings.long_polling_seconds - time.monotonic())
        offered = await self._next(consumer, arrived)
        record = offered.record
        if request.auto_ack and not request.no_ack:
            await self._ack_unseen(consumer, offered)
        return pixy.ConsRs(
            partition=record.partition,
            offset=record.offset,
            key_value=record.key or b"",
            key_undefined=record.key is None,
            message=records.as_published(record),
        )

    async def _ack_unseen(self, consumer: Consumer, offered: GroupRecord) -> None:
        try:
            await consumer.acks.begin(offered.record.partition, offered.record.offset, offered.life)
        except BusError as error:
            # The message is answered anyway, and is offered again after its timeout.
            log.info("answered_unacknowledged", topic=consumer.topic, group=consumer.group, error=str(error))
        except asyncio.CancelledError:
            # No client saw it. Any acknowledgement already sent completes before the next call gets the message.
            self._returning = {task for task in self._returning if not task.done()}
            # After a failure the record returns when its time is up.
            returning = start_task(lambda: _return(consumer, offered), "kafka-pixy return", on_failure=only_noted)
            self._returning.add(returning)
            raise

    async def _next(self, consumer: Consumer, arrived: float) -> GroupRecord:
        call = consumer.join(arrived)
        if call is None:
            raise _Refused(Code.RESOURCE_EXHAUSTED, "too many requests wait for this group and topic")
        try:
            # Awaiting a separate future keeps a cancelled call from discarding the record.
            await asyncio.wait([call.outcome])
        except asyncio.CancelledError:
            consumer.leave(call)
            raise
        offered = call.outcome.result()
        if offered is not None:
            return offered
        if consumer.problem:
            raise _Refused(Code.INTERNAL, f"the group cannot be read: {consumer.problem}")
        raise _Refused(Code.NOT_FOUND, "long polling timeout")

    async def _consumer(self, topic: str, group: str, arrived: float) -> Consumer:
        if not group or len(group.encode()) > MAX_GROUP_BYTES or not group.isprintable():
            raise _Refused(Code.INVALID_ARGUMENT, f"{group!r} is not a valid group name")
        if not records.is_named(topic):
            await asyncio.sleep(arrived + self._settings.long_polling_seconds - time.monotonic())
            raise _Refused(Code.NOT_FOUND, "long polling timeout")
        found = self._consumers.get((topic, group))
        if self._is_stopping:
            raise _Refused(Code.UNAVAILABLE, "this gateway is being stopped")
        if found is None:
            if len(self._consumers) >= MAX_LINES:
                raise _Refused(Code.RESOURCE_EXHAUSTED, "too many groups are served; try again later")
            found = Consumer(self._bus, self._calls, topic, group=group, settings=self._settings, me=self._instances)
            self._consumers[topic, group] = found
            self._by_topic.setdefault(topic, set()).add(found)
            self._watch()
        return found

    async def _ack(self, request: pixy.AckRq) -> pixy.AckRs:
        self._check_cluster(request.cluster)
        if request.partition < 0 or request.offset < 0:
            raise _Refused(Code.INVALID_ARGUMENT, f"invalid ack: ({request.partition}, {request.offset}) is below zero")
        try:
            if not await self._calls.run(lambda: self._is_served(request)):
                raise _Refused(Code.INTERNAL, "this partition was never served to this group")
            consumer = self._consumers.get((request.topic, request.group))
            if consumer is not None and request.offset <= _LARGEST_OFFSET:
                await consumer.acks.begin(request.partition, request.offset)
            elif request.offset <= _LARGEST_OFFSET:
                await self._calls.run(
                    lambda: self._bus.acknowledge(
                        request.topic, request.group, request.partition, offsets=[request.offset]
                    )
                )
        except BusError as error:
            raise _Refused(Code.INTERNAL, f"the acknowledgement was not written: {error}") from error
        return pixy.AckRs()

    def _is_served(self, request: pixy.AckRq) -> bool:
        """Including by another gateway, or by this one before a restart."""
        if not records.is_visible(request.topic) or request.partition >= self._bus.partitions(request.topic):
            return False
        is_open = (request.topic, request.group) in self._consumers
        return is_open or request.group in self._bus.groups(request.topic)

    def _check_cluster(self, name: str) -> None:
        if name and name != self._settings.cluster:
            raise _Refused(Code.INVALID_ARGUMENT, f"proxy `{name}` does not exist")


async def _return(consumer: Consumer, offered: GroupRecord) -> None:
    await consumer.acks.flush()
    consumer.take_back(offered)


def _answering(
    method: str, behaviour: Callable[..., Awaitable[Any]]
) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]:
    async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            found = await behaviour(request)
        except _Refused as refused:
            metrics.CALLS.labels(method, refused.code.name).inc()
            await context.abort(refused.code, refused.text)
        except asyncio.CancelledError:
            metrics.CALLS.labels(method, Code.CANCELLED.name).inc()
            raise
        metrics.CALLS.labels(method, Code.OK.name).inc()
        return found

    return answer
