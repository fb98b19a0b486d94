"""ReadFn: the records of each request."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping

from core.background import awaited_task
from core.log import get_logger
from gateways.numaflow import metrics
from gateways.numaflow.acks import Acks
from gateways.numaflow.group_calls import GroupCalls, looked_at
from gateways.numaflow.message import MAX_MESSAGE_BYTES, response_of
from gateways.numaflow.partitions import RecordId
from gateways.numaflow.state import (
    CLOCK_SECONDS,
    Fetch,
    FetchAgain,
    FetchExpired,
    FetchOwn,
    ReadBegan,
    RecordsFetched,
    RecordsWanted,
    Send,
    SessionOpened,
    SourceState,
)
from gateways.numaflow.streams import Context, Streams
from protobuf import source_superset_pb2 as source

log = get_logger()

#: Records read from the bus and kept in memory at a time; a larger read is sent in pieces. Large records make pieces
#: smaller.
_PIECE_RECORDS = 500
_PIECE_BYTES = 64 << 20
_FIRST_PIECE = 100
_MAX_READ = 10_000
#: While a read waits, records of another replica may expire.
_LOOK_SECONDS = 0.5
_WHY: Mapping[type[Fetch], str] = {FetchOwn: "reconnected", FetchAgain: "refused", FetchExpired: "expired"}


class Reads:
    """One fetch at a time, however many streams there are: each record goes to one of them."""

    def __init__(self, state: SourceState, calls: GroupCalls, streams: Streams, *, acks: Acks) -> None:
        self._state = state
        self._calls = calls
        self._streams = streams
        self._acks = acks
        self._one_fetch = asyncio.Lock()
        self._piece = _FIRST_PIECE

    async def serve(
        self, requests: AsyncIterator[source.ReadRequest], context: Context
    ) -> AsyncIterator[source.ReadResponse]:
        async with self._streams.opened("ReadFn", requests, context) as stream:
            if stream is None:
                return
            async with self._one_fetch:
                self._state.handle(SessionOpened(time.monotonic()))
                await asyncio.sleep(2 * CLOCK_SECONDS)
            yield source.ReadResponse(status=source.ReadResponse.Status(), handshake=source.Handshake(sot=True))
            end = source.ReadResponse(status=source.ReadResponse.Status(eot=True))
            async for message in stream.requests():
                async for response in self._batch(message.request):
                    yield response
                yield end

    async def _batch(self, request: source.ReadRequest.Request) -> AsyncIterator[source.ReadResponse]:
        """At most as many records as requested. Waits only for the first ones."""
        until = time.monotonic() + request.timeout_in_ms / 1_000
        asked = min(request.num_records, _MAX_READ)
        room = self._state.room(asked)
        if asked and not room:
            metrics.HELD_BACK.inc()
        has_begun = False
        while asked and not self._streams.stopping.is_set():
            size = min(room, self._piece)
            piece = await self._take(size)
            for response in piece:
                yield response
            room -= len(piece)
            has_begun = has_begun or bool(piece)
            if has_begun:
                if room <= 0 or len(piece) < size:
                    return
            elif (left := until - time.monotonic()) <= 0:
                return
            else:
                await self._something(left, has_room=room > 0)
                room = self._state.room(asked)

    async def _something(self, seconds: float, *, has_room: bool) -> None:
        """Wait until there may be something to read, at most `seconds`."""
        changed = awaited_task(self._acks.changed())
        awaited: set[asyncio.Future[None]] = {changed}
        seconds = min(seconds, _LOOK_SECONDS)
        if has_room:
            awaited.add(self._calls.news())
            if (due := self._state.due_at) is not None:
                seconds = min(seconds, max(0.0, due - time.monotonic()))
        try:
            await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    async def _take(self, count: int) -> list[source.ReadResponse]:
        """The next records, which the client then holds. Continues even if the caller is cancelled, so that the next
        session waits for what this one was given. Raises BusError.
        """
        if count <= 0:
            return []
        taking = awaited_task(self._take_alone(count))
        taking.add_done_callback(looked_at)
        return await asyncio.shield(taking)

    async def _take_alone(self, count: int) -> list[source.ReadResponse]:
        responses: list[source.ReadResponse] = []
        async with self._one_fetch:
            self._state.handle(ReadBegan(time.monotonic()))
            while (fetch := self._next_fetch(count - len(responses))) is not None:
                responses += await self._carried_out(fetch)
        metrics.OUTSTANDING.set(self._state.outstanding)
        return responses

    def _next_fetch(self, count: int) -> Fetch | None:
        commands = self._state.handle(RecordsWanted(count, time.monotonic()))
        return next((command for command in commands if isinstance(command, Fetch)), None)

    async def _carried_out(self, fetch: Fetch) -> list[source.ReadResponse]:
        fetched = await self._calls.fetch(fetch)
        event = RecordsFetched(fetch, tuple(found for found, _ in fetched), time.monotonic())
        sends = [command for command in self._state.handle(event) if isinstance(command, Send)]
        chosen = {record for send in sends for record in send.records}
        responses: list[source.ReadResponse] = []
        too_large: list[RecordId] = []
        delivered: Counter[str] = Counter()
        weight = 0
        for found, record in fetched:
            weight += len(record.value)
            if found.record not in chosen:
                continue
            response = response_of(record, found.record)
            if response.ByteSize() > MAX_MESSAGE_BYTES:
                too_large.append(found.record)
                continue
            responses.append(response)
            delivered[record.topic] += 1
        for topic, count in delivered.items():
            metrics.DELIVERED.labels(topic).inc(count)
        if fetched:
            # The next records will be of a similar size.
            self._piece = max(1, min(_PIECE_RECORDS, _PIECE_BYTES * len(fetched) // max(1, weight)))
        if (why := _WHY.get(type(fetch))) is not None and responses:
            metrics.REDELIVERED.labels(why).inc(len(responses))
        if too_large:
            await self._acks.give_up(too_large, "too_large", f"it is larger than {MAX_MESSAGE_BYTES} bytes")
        return responses
