"""Reads messages by offset, without a group."""

import time

from bus.api import Log, TopicPartition
from candlewright.wire.errors import OffsetOutOfRange
from gateways.rocketmq.calls.sending import Sending
from gateways.rocketmq.calls.waiting import MAX_BATCH, PATIENCE_SECONDS, REPLY_BYTES, Waiting
from gateways.rocketmq.clients.clients import Clients
from gateways.rocketmq.door.status import INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, Refused, common
from gateways.rocketmq.messages import messages
from gateways.rocketmq.messages.filters import Filter, filter_of
from gateways.rocketmq.messages.names import topic_of
from gateways.rocketmq.metrics import DELIVERED, FILTERED
from gateways.rocketmq.store import Store, set_within
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

_PAGE = 256


class Pulling:
    """`store_host`: reported to clients as the host that stores the messages."""

    def __init__(self, store: Store, sending: Sending, *, clients: Clients, waiting: Waiting, store_host: str) -> None:
        self._store = store
        self._sending = sending
        self._clients = clients
        self._waiting = waiting
        self._store_host = store_host

    async def offset(self, request: service.QueryOffsetRequest) -> service.QueryOffsetResponse:
        topic, partition = await self._place(request.partition)
        first, end = await self._bounds(topic, partition)
        if request.policy == definition.BEGINNING:
            found = first
        elif request.policy == definition.END:
            found = end
        elif not request.HasField("time_point"):
            raise Refused(INVALID_ARGUMENT, "the time_point is missing")
        else:
            wanted = request.time_point.ToMilliseconds()
            found = await self._store.run(
                first_since, self._store.bus, topic, partition, first=first, end=end, wanted_ms=wanted
            )
        return service.QueryOffsetResponse(common=common(), offset=found)

    async def pull(self, request: service.PullMessageRequest, hold_seconds: float) -> service.PullMessageResponse:
        topic, partition = await self._place(request.partition)
        accepts = filter_of(request.filter_expression)
        most = max(1, min(request.batch_size, MAX_BATCH))
        until = time.monotonic() + hold_seconds
        at = request.offset
        places = [(topic, partition)]
        with self._waiting.held(request.client_id, places) as arrived:
            while True:
                self._store.watch(places, arrived)
                first, end = await self._bounds(topic, partition)
                reply = service.PullMessageResponse(common=common(), min_offset=first, max_offset=end)
                if not first <= at <= end:
                    reply.common.CopyFrom(common(OUT_OF_RANGE, f"offset {at} is not within {first} and {end}"))
                    reply.next_offset = min(max(at, first), end)
                    return reply
                reply.next_offset = await self._page(topic, partition, at, most, accepts, request.partition, reply)
                left = until - time.monotonic()
                is_gone = self._clients.is_gone(request.client_id)
                if reply.messages or left <= 0 or is_gone or self._waiting.is_over:
                    return reply
                if reply.next_offset > at:
                    at = reply.next_offset
                    continue
                await set_within(arrived, min(left, PATIENCE_SECONDS))

    # ---- inside
    async def _place(self, partition: definition.Partition) -> TopicPartition:
        topic = topic_of(partition.topic)
        await self._sending.partitions(topic)
        count = await self._store.run(self._store.bus.create_topic, topic)
        if not 0 <= partition.id < count:
            raise Refused(NOT_FOUND, f"topic {topic} has no partition {partition.id}: there are {count}")
        return topic, partition.id

    async def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        bounds = (await self._store.run(self._store.bus.state, topic))[partition]
        return bounds.first, bounds.end

    async def _page(
        self,
        topic: str,
        partition: int,
        at: int,
        most: int,
        accepts: Filter,
        resource: definition.Partition,
        reply: service.PullMessageResponse,
    ) -> int:
        """Put messages into `reply`; returns the offset after the last one examined."""
        size = 0
        try:
            records = await self._store.run(
                self._store.bus.read, topic, partition, at, max_records=_PAGE, max_bytes=2 * REPLY_BYTES
            )
        except OffsetOutOfRange:
            # Trimmed between the two reads; the next call reports it.
            return at
        for record in records:
            message = messages.from_record(record, resource.topic, self._store_host)
            if accepts(message):
                size += message.ByteSize()
                if reply.messages and size > REPLY_BYTES:
                    break
                reply.messages.append(message)
                DELIVERED.inc()
            else:
                FILTERED.inc()
            at = record.offset + 1
            if len(reply.messages) == most:
                break
        return at


def first_since(bus: Log, topic: str, partition: int, *, first: int, end: int, wanted_ms: int) -> int:
    """The first offset, from `first` on, whose record was stored at that time or later, else `end`."""
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        try:
            (record,) = bus.read(topic, partition, middle, max_records=1)
        except OffsetOutOfRange as error:
            # Trimmed meanwhile.
            low = max(low, error.first)
            continue
        low, high = (middle + 1, high) if record.timestamp_ms < wanted_ms else (low, middle)
    return low
