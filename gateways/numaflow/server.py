"""The gRPC server of the source: streams become fetches and acknowledgements, decided by the state."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from bus.api import Bus
from core.errors import BusError, BusUnavailable, ConfigurationError
from core.log import get_logger
from core.settings_gateways import NumaflowSettings
from gateways.numaflow import listening, metrics, server_info
from gateways.numaflow.message import MAX_MESSAGE_BYTES, result_of
from gateways.numaflow.partitions import RecordId, record_id
from gateways.numaflow.reader import GroupReader
from gateways.numaflow.state import CLOCK_SECONDS, Fetch, FetchAgain, FetchExpired, FetchNew, FetchOwn, SourceState
from gateways.records import is_visible
from gateways.service import handlers_of
from protobuf import source_superset_pb2 as source

log = get_logger()

Result = TypeVar("Result")
Message = TypeVar("Message", source.ReadRequest, source.AckRequest)
Context = grpc.aio.ServicerContext[Any, Any]

#: Read from the bus and kept in memory at a time; a read of more is sent piece by piece.
_PIECE = 500
_MAX_READ = 10_000
#: A thread that waits for records looks up so often: the client may be gone, or the process about to stop.
_WAIT_SECONDS = 0.5
_PROBE_SECONDS = 2.0
#: Acknowledgements that wait for the bus; more are not read from the socket.
_MAX_WAITING_ACKS = 1_000
_MAX_CALLS = 64
#: Room for what stands around a result in its message.
_MESSAGE_MARGIN = 1_024
_WHY: Mapping[type[Fetch], str] = {FetchOwn: "reconnected", FetchAgain: "refused", FetchExpired: "expired"}


class NumaflowSource:
    """A `gateways.gateway.Gateway`. Reads and acknowledgements have threads of their own: neither waits for the
    other.
    """

    name = "numaflow"

    def __init__(self, settings: NumaflowSettings, bus: Bus) -> None:
        """Raises ConfigurationError for topics that clients of gateways may not see."""
        hidden = [topic for topic in settings.topic if not is_visible(topic)]
        if hidden:
            raise ConfigurationError(f"gateways.numaflow.topic: there is no topic {', '.join(hidden)} to be read")
        self._settings = settings
        self._socket = Path(settings.socket)
        self._info = Path(settings.server_info)
        self._state = SourceState(settings.redeliver_seconds)
        self._reader = GroupReader(
            bus, settings.topic, settings.group, settings.consumer, at_end=settings.start == "end"
        )
        self._fetching = ThreadPoolExecutor(4, thread_name_prefix="numaflow")
        self._acking = ThreadPoolExecutor(2, thread_name_prefix="numaflow-ack")
        self._waiting = ThreadPoolExecutor(4, thread_name_prefix="numaflow-wait")
        self._one_fetch = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self._probe: asyncio.Future[bool] | None = None
        self._server: grpc.aio.Server | None = None
        self._own_files: list[tuple[Path, tuple[int, int] | None]] = []
        self._streams = {"ReadFn": 0, "AckFn": 0}
        self._problem = ""

    # ---- the gateway

    async def start(self) -> None:
        await self._on_bus(self._fetching, self._reader.open)
        listening.make_way(self._socket)
        # One from a dead process would be believed.
        self._info.unlink(missing_ok=True)
        limits = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
        self._server = grpc.aio.server(options=limits, maximum_concurrent_rpcs=_MAX_CALLS)
        behaviours: Mapping[str, Callable[..., Any]] = {
            "ReadFn": self._read,
            "AckFn": self._acknowledge,
            "NackFn": self._refuse,
            "PendingFn": self._pending,
            "PartitionsFn": self._partitions,
            "IsReady": self._is_ready,
        }
        service = source.DESCRIPTOR.services_by_name["Source"]
        self._server.add_generic_rpc_handlers((handlers_of(service, behaviours),))
        try:
            self._server.add_insecure_port(f"unix:{self._socket}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._socket}: {error}") from error
        await self._server.start()
        self._own_files.append((self._socket, listening.identity(self._socket)))
        server_info.write(self._info, server_info.OURS)
        self._own_files.append((self._info, listening.identity(self._info)))

    async def stop(self) -> None:
        """The reads under way end with what they have; then acknowledgements have the grace time."""
        self._stopping.set()
        self._freed.set()
        if self._server is not None:
            until = time.monotonic() + self._settings.grace_seconds
            while self._is_busy() and time.monotonic() < until:
                await asyncio.sleep(0.02)
            await self._server.stop(0.2)
        for path, own in self._own_files:
            with contextlib.suppress(OSError):
                listening.remove_own(path, own)
        for pool in (self._fetching, self._acking, self._waiting):
            pool.shutdown(wait=False, cancel_futures=True)

    def _is_busy(self) -> bool:
        return self._streams["ReadFn"] > 0 or (self._streams["AckFn"] > 0 and self._state.outstanding > 0)

    def problems(self) -> tuple[str, ...]:
        return (self._problem,) if self._problem else ()

    def details(self) -> Mapping[str, Any]:
        return {
            "socket": str(self._socket),
            "server_info": str(self._info),
            "topics": list(self._settings.topic),
            "group": self._settings.group,
            "replica": self._settings.consumer,
            "partitions": self._reader.partition_ids,
            "outstanding": self._state.outstanding,
            "streams": dict(self._streams),
        }

    # ---- ReadFn

    async def _read(
        self, requests: AsyncIterator[source.ReadRequest], context: Context
    ) -> AsyncIterator[source.ReadResponse]:
        self._streams["ReadFn"] += 1
        try:
            if not await self._shook_hands("ReadFn", requests, context):
                return
            async with self._one_fetch:
                self._state.session_opened(time.monotonic())
                await asyncio.sleep(2 * CLOCK_SECONDS)
            yield source.ReadResponse(
                status=source.ReadResponse.Status(eot=False), handshake=source.Handshake(sot=True)
            )
            while (message := await self._next(requests)) is not None:
                if not message.HasField("request"):
                    await self._bad_call("ReadFn", context, "a read has a request")
                async for result in self._batch(message.request, context):
                    yield source.ReadResponse(result=result, status=source.ReadResponse.Status())
                yield source.ReadResponse(status=source.ReadResponse.Status(eot=True))
        finally:
            self._streams["ReadFn"] -= 1

    async def _batch(
        self, request: source.ReadRequest.Request, context: Context
    ) -> AsyncIterator[source.ReadResponse.Result]:
        """At most as many records as asked for. Waits for the first ones only."""
        until = time.monotonic() + request.timeout_in_ms / 1_000
        asked = min(request.num_records, _MAX_READ)
        room = self._state.room(asked)
        if asked and not room:
            metrics.HELD_BACK.inc()
        piece: Sequence[source.ReadResponse.Result] = ()
        while asked:
            if room:
                piece = await self._survived(context, "ReadFn", self._take(min(room, _PIECE)))
            left = until - time.monotonic()
            if piece or left <= 0 or self._stopping.is_set():
                break
            if room:
                await self._survived(context, "ReadFn", self._news(left))
            else:
                await self._room_made(left)
            room = self._state.room(asked)
        while piece:
            for result in piece:
                yield result
            room -= len(piece)
            is_all = len(piece) < _PIECE or self._stopping.is_set()
            piece = (
                [] if is_all or room <= 0 else await self._survived(context, "ReadFn", self._take(min(room, _PIECE)))
            )

    async def _take(self, count: int) -> list[source.ReadResponse.Result]:
        """The next records, by now those of the client. Goes on where the caller is cancelled, so that whoever opens
        the next session waits for what this one was given.
        """
        taking = asyncio.ensure_future(self._take_alone(count))
        taking.add_done_callback(_looked_at)
        return await asyncio.shield(taking)

    async def _take_alone(self, count: int) -> list[source.ReadResponse.Result]:
        results: list[source.ReadResponse.Result] = []
        async with self._one_fetch:
            for kind in self._state.fetches(time.monotonic()):
                while (fetch := self._state.fetch(kind, count - len(results), time.monotonic())) is not None:
                    results += await self._carried_out(fetch)
                    if kind is FetchNew:
                        break
        metrics.OUTSTANDING.set(self._state.outstanding)
        return results

    async def _carried_out(self, fetch: Fetch) -> list[source.ReadResponse.Result]:
        fetched = await self._on_bus(self._fetching, self._reader.fetch, fetch)
        chosen = set(self._state.fetched(fetch, [found for found, _ in fetched], time.monotonic()))
        results: list[source.ReadResponse.Result] = []
        too_large: list[RecordId] = []
        for found, record in fetched:
            if found.record not in chosen:
                continue
            result = result_of(record, found.record)
            if result.ByteSize() > MAX_MESSAGE_BYTES - _MESSAGE_MARGIN:
                too_large.append(found.record)
                continue
            results.append(result)
            metrics.DELIVERED.labels(record.topic).inc()
        if (why := _WHY.get(type(fetch))) is not None and results:
            metrics.REDELIVERED.labels(why).inc(len(results))
        if too_large:
            await self._give_up(too_large, "too_large", f"it is larger than {MAX_MESSAGE_BYTES} bytes")
        return results

    async def _news(self, seconds: float) -> None:
        due = self._state.due_at
        if due is not None:
            seconds = min(seconds, max(0.0, due - time.monotonic()))
        await self._on_bus(self._waiting, self._reader.wait, min(seconds, _WAIT_SECONDS))

    async def _room_made(self, seconds: float) -> None:
        self._freed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._freed.wait(), min(seconds, _WAIT_SECONDS))

    # ---- AckFn, NackFn

    async def _acknowledge(
        self, requests: AsyncIterator[source.AckRequest], context: Context
    ) -> AsyncIterator[source.AckResponse]:
        self._streams["AckFn"] += 1
        feeder: asyncio.Task[None] | None = None
        try:
            if not await self._shook_hands("AckFn", requests, context):
                return
            answer = source.AckResponse(handshake=source.Handshake(sot=True))
            answer.result.success.SetInParent()
            yield answer
            answer.ClearField("handshake")
            queue: asyncio.Queue[source.AckRequest | None] = asyncio.Queue(_MAX_WAITING_ACKS)
            feeder = asyncio.create_task(_feed(requests, queue))
            is_over = False
            while not is_over:
                # All that have come are acknowledged together: single offsets would wait for the disk one by one.
                waiting = [await queue.get()]
                while not queue.empty():
                    waiting.append(queue.get_nowait())
                good: list[source.AckRequest] = []
                for message in waiting:
                    if message is None:
                        is_over = True
                    elif not message.HasField("request"):
                        break
                    else:
                        good.append(message)
                await self._survived(context, "AckFn", self._acknowledge_all(good))
                for _ in good:
                    yield answer
                if len(good) + is_over < len(waiting):
                    await self._bad_call("AckFn", context, "an acknowledgement has a request")
        finally:
            if feeder is not None:
                feeder.cancel()
            self._streams["AckFn"] -= 1

    async def _acknowledge_all(self, messages: Iterable[source.AckRequest]) -> None:
        records = self._records_of("AckFn", (offset for each in messages for offset in each.request.offsets))
        if not records:
            return
        count = await self._on_bus(self._acking, self._reader.acknowledge, records)
        metrics.ACKNOWLEDGED.inc(count)
        metrics.REPEATED_ACKS.inc(len(records) - count)
        self._let_go(records)

    async def _refuse(self, request: source.NackRequest, context: Context) -> source.NackResponse:
        at = time.monotonic()
        for each in request.request:
            options = each.nack_options
            again, given_up = self._state.refused(
                self._records_of("NackFn", each.offsets), at, options.delay / 1_000, options.max_deliveries
            )
            metrics.REFUSED.inc(again + len(given_up))
            if given_up:
                await self._survived(
                    context, "NackFn", self._give_up(given_up, "refused", options.reason or "refused too often")
                )
        self._freed.set()
        response = source.NackResponse()
        response.result.success.SetInParent()
        return response

    async def _give_up(self, records: Sequence[RecordId], why: str, reason: str) -> None:
        """They stay on their topic; the group is not offered them again."""
        await self._on_bus(self._acking, self._reader.acknowledge, records)
        metrics.GIVEN_UP.labels(why).inc(len(records))
        log.error("records_given_up", why=why, reason=reason, records=[list(record) for record in records[:20]])
        self._let_go(records)

    def _let_go(self, records: Iterable[RecordId]) -> None:
        self._state.acknowledged(records)
        self._freed.set()
        metrics.OUTSTANDING.set(self._state.outstanding)

    @staticmethod
    def _records_of(call: str, offsets: Iterable[source.Offset]) -> list[RecordId]:
        """Those that are this source's. What is none of them is no error: it is acknowledged as far as can be."""
        records = []
        for offset in offsets:
            record = record_id(offset.offset)
            if record is None:
                metrics.FOREIGN_OFFSETS.labels(call).inc()
            else:
                records.append(record)
        return records

    # ---- the unary calls

    async def _pending(self, request: object, context: Context) -> source.PendingResponse:
        try:
            count = await self._on_bus(self._fetching, self._reader.backlog)
        except BusError:
            metrics.BUS_FAILURES.labels("PendingFn").inc()
            count = -1
        return source.PendingResponse(result=source.PendingResponse.Result(count=count))

    async def _partitions(self, request: object, context: Context) -> source.PartitionsResponse:
        # Every replica reads all of them.
        ids = self._reader.partition_ids
        return source.PartitionsResponse(
            result=source.PartitionsResponse.Result(partitions=ids, total_partitions=len(ids))
        )

    async def _is_ready(self, request: object, context: Context) -> source.ReadyResponse:
        # Numaflow takes any answer for a yes: a no is an error.
        if self._stopping.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the source is stopping")
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(self._on_bus(self._fetching, self._reader.is_ready))
        try:
            is_ready = await asyncio.wait_for(asyncio.shield(self._probe), _PROBE_SECONDS)
        except (BusError, TimeoutError):
            is_ready = False
        if not is_ready:
            metrics.BUS_FAILURES.labels("IsReady").inc()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the bus or its consumer group is not there")
        return source.ReadyResponse(ready=True)

    # ---- inside

    async def _shook_hands(self, call: str, requests: AsyncIterator[Message], context: Context) -> bool:
        """False where the client left without a word; ends the call for anything but a handshake."""
        if self._stopping.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the source is stopping")
        first = await self._next(requests)
        if first is None:
            return False
        if not first.handshake.sot:
            await self._bad_call(call, context, "the first message is a handshake with sot")
        metrics.SESSIONS.labels(call).inc()
        return True

    async def _next(self, requests: AsyncIterator[Message]) -> Message | None:
        """None when the client has closed its side, or the process is to stop."""
        coming = asyncio.ensure_future(anext(requests, None))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            stopping.cancel()

    async def _bad_call(self, call: str, context: Context, text: str) -> None:
        metrics.BAD_CALLS.labels(call).inc()
        log.warning("bad_call", call=call, text=text)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{call}: {text}")

    async def _survived(self, context: Context, call: str, work: Any) -> Any:
        """What `work` returns; ends the call where the bus fails: the client connects anew and gets all of it again."""
        try:
            return await work
        except BusError as error:
            metrics.BUS_FAILURES.labels(call).inc()
            log.error("bus_failed", call=call, error=str(error))
            code = grpc.StatusCode.UNAVAILABLE if error.retryable else grpc.StatusCode.INTERNAL
            await context.abort(code, str(error))

    async def _on_bus(self, pool: ThreadPoolExecutor, call: Callable[..., Result], *arguments: Any) -> Result:
        """Raises BusError. A group that expired, or whose topic was dropped, is made anew once."""
        loop = asyncio.get_running_loop()
        try:
            try:
                result = await loop.run_in_executor(pool, call, *arguments)
            except BusUnavailable:
                raise
            except BusError as error:
                metrics.GROUPS_MADE_ANEW.inc()
                log.warning("group_made_anew", error=str(error))
                await loop.run_in_executor(pool, self._reader.open)
                result = await loop.run_in_executor(pool, call, *arguments)
        except BusError as error:
            self._problem = str(error)
            raise
        self._problem = ""
        return result


async def _feed(requests: AsyncIterator[source.AckRequest], queue: "asyncio.Queue[source.AckRequest | None]") -> None:
    """All that come, and None behind the last one."""
    async for message in requests:
        await queue.put(message)
    await queue.put(None)


def _looked_at(task: "asyncio.Future[Any]") -> None:
    """A failure that nobody waits for any more was told to somebody else: the next call of the bus fails too."""
    if not task.cancelled():
        task.exception()
