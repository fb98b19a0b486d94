"""AckFn and NackFn: settle the records that the client has."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence

from core.background import awaited_task
from core.log import get_logger
from gateways.numaflow import metrics
from gateways.numaflow.group_calls import GroupCalls
from gateways.numaflow.partitions import RecordId, record_id
from gateways.numaflow.state import (
    GiveBack,
    GiveUp,
    RecordsAcknowledged,
    RecordsGivenBack,
    RecordsRefused,
    SourceState,
)
from gateways.numaflow.streams import Context, Stream, Streams, failures_as_status
from protobuf import source_superset_pb2 as source

log = get_logger()

#: Acknowledgements that may wait for the bus before the socket is no longer read.
_MAX_WAITING = 1_000


class Acks:
    def __init__(self, state: SourceState, calls: GroupCalls, streams: Streams) -> None:
        self._state = state
        self._calls = calls
        self._streams = streams
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait until records are acknowledged or given back, or the process is asked to stop."""
        self._changed.clear()
        await self._changed.wait()

    def wake(self) -> None:
        self._changed.set()

    async def acknowledge(
        self, requests: AsyncIterator[source.AckRequest], context: Context
    ) -> AsyncIterator[source.AckResponse]:
        async with self._streams.opened("AckFn", requests, context) as stream:
            if stream is None:
                return
            success = source.AckResponse()
            success.result.success.SetInParent()
            yield source.AckResponse(handshake=source.Handshake(sot=True), result=success.result)
            async for messages in _together(stream):
                await self._acknowledge_all(messages)
                for _ in messages:
                    yield success

    async def refuse(self, request: source.NackRequest, context: Context) -> source.NackResponse:
        async with failures_as_status("NackFn", context):
            for each in request.request:
                await self._refuse_all(_records_of("NackFn", each.offsets), each.nack_options)
        response = source.NackResponse()
        response.result.success.SetInParent()
        return response

    async def give_up(self, records: Sequence[RecordId], why: str, reason: str) -> None:
        """The records stay on their topic, but the group is not offered them again. Raises BusError."""
        await self._calls.acknowledge(records)
        metrics.GIVEN_UP.labels(why).inc(len(records))
        log.error("records_given_up", why=why, reason=reason, records=[list(record) for record in records[:20]])
        self._release(records)

    async def _acknowledge_all(self, messages: Iterable[source.AckRequest]) -> None:
        records = _records_of("AckFn", (offset for each in messages for offset in each.request.offsets))
        if not records:
            return
        count = await self._calls.acknowledge(records)
        metrics.ACKNOWLEDGED.inc(count)
        metrics.REPEATED_ACKS.inc(len(records) - count)
        self._release(records)

    async def _refuse_all(self, records: Sequence[RecordId], options: source.NackOptions) -> None:
        delay_seconds = options.delay / 1_000
        for command in self._state.handle(RecordsRefused(tuple(records), options.max_deliveries)):
            if isinstance(command, GiveBack):
                due_at = time.monotonic() + delay_seconds
                # Before the client gets its answer, so that a successor after a kill keeps the promise.
                await self._calls.refuse({each.record: each.deliveries for each in command.records}, delay_seconds)
                self._state.handle(RecordsGivenBack(tuple(each.record for each in command.records), due_at))
                self._changed.set()
                metrics.REFUSED.inc(len(command.records))
            elif isinstance(command, GiveUp):
                metrics.REFUSED.inc(len(command.records))
                await self.give_up(command.records, "refused", options.reason or "refused too often")

    def _release(self, records: Iterable[RecordId]) -> None:
        self._state.handle(RecordsAcknowledged(tuple(records)))
        self._changed.set()
        metrics.OUTSTANDING.set(self._state.outstanding)


async def _together(stream: Stream[source.AckRequest]) -> AsyncIterator[list[source.AckRequest]]:
    """Batches the requests that arrive during an acknowledgement: single offsets would each wait for the disk. Raises
    what reading them raises, after yielding those before it.
    """
    queue: asyncio.Queue[source.AckRequest | None] = asyncio.Queue(_MAX_WAITING)

    async def feed() -> None:
        try:
            async for message in stream.rest():
                await queue.put(message)
        finally:
            await queue.put(None)

    feeding = awaited_task(feed())
    try:
        is_over = False
        while not is_over:
            messages = [await queue.get()]
            while not queue.empty():
                messages.append(queue.get_nowait())
            is_over = messages[-1] is None
            yield [message for message in messages if message is not None]
        await feeding
    finally:
        feeding.cancel()


def _records_of(call: str, offsets: Iterable[source.Offset]) -> list[RecordId]:
    """The offsets of this source. Others are not an error: there is nothing to acknowledge."""
    records = []
    for offset in offsets:
        record = record_id(offset.offset)
        if record is None:
            metrics.FOREIGN_OFFSETS.labels(call).inc()
        else:
            records.append(record)
    return records
