"""One source: sessions with it, each from the socket to the acknowledgements, and what comes between them."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from bus import topics
from bus.api import Bus, Record
from core.errors import BusError, BusFull, BusUnavailable, InvalidRequest
from core.log import get_logger
from core.settings_gateways import NumaflowSourceSettings
from gateways.numaflow import server_info
from gateways.numaflow.message import MAX_MESSAGE_BYTES
from gateways.numaflow_sources import metrics
from gateways.numaflow_sources.journal import Journal, has_records
from gateways.numaflow_sources.mapping import PayloadMapping
from gateways.numaflow_sources.state import (
    PIECE_BYTES,
    PIECE_RECORDS,
    ReaderState,
    Result,
    SourceHalted,
    SourceRefused,
    acknowledges_lists,
    checked,
    key_of,
)
from gateways.tick_clocks import TickClocks
from gateways.tick_storage import TickStorage
from protobuf import source_superset_pb2 as source

log = get_logger()

Returned = TypeVar("Returned")

_SOT = source.Handshake(sot=True)
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_READY_SECONDS = 1.0
_INFO_SECONDS = 0.2
_EMPTY_SECONDS = 0.02
_ANSWER_SECONDS = 10.0
#: Beyond the time that a read may take: a source that says nothing for so long is connected to anew.
_SILENCE_SECONDS = 60.0
_PENDING_SECONDS = 10.0
_MAX_PAUSE_SECONDS = 10.0
#: After what only a change of the source, or of us, can mend.
_REFUSED_PAUSE_SECONDS = 30.0


class SourceGone(Exception):
    """The source ended a stream, or says nothing any more."""


_PASSING = (SourceGone, grpc.aio.AioRpcError, OSError, BusError, TimeoutError)


class SourceReader:
    """`run` until `stop`. What it has published it acknowledges; what it has not comes again."""

    def __init__(
        self, name: str, settings: NumaflowSourceSettings, bus: Bus, threads: ThreadPoolExecutor, clocks: TickClocks
    ) -> None:
        """`clocks` is told of ticks. Raises ConfigurationError."""
        self.name = name
        self._settings = settings
        self._mapping = PayloadMapping(name, settings)
        self._journal = Journal(bus, name, self._mapping.topic, self._mapping.dead_letters)
        self._threads = threads
        self._storage = TickStorage(bus)
        self._clocks = clocks
        self._state: ReaderState | None = None
        self._stopping = asyncio.Event()
        self._doing = "not started"
        self.problem = ""
        self._batches = 0
        self._records = 0
        self._unfit = 0

    def stop(self) -> None:
        """The batch under way is finished first."""
        self._stopping.set()

    def details(self) -> dict[str, Any]:
        return {
            "socket": self._settings.socket,
            "topic": self._mapping.topic,
            "dead_letters": self._mapping.dead_letters,
            "doing": self._doing,
            "published": self._records,
            "unfit": self._unfit,
        }

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._sessions()
            except SourceHalted as error:
                self._doing, self.problem = "stopped", str(error)
                log.error("source_halted", source=self.name, error=str(error))
                return
            except SourceRefused as error:
                self.problem = str(error)
                log.error("source_refused", source=self.name, error=str(error))
                metrics.RECONNECTS.labels(self.name, "refused").inc()
                await self._pause(_REFUSED_PAUSE_SECONDS)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.problem = f"unexpected: {error!r}"
                log.exception("source_reader_broke", source=self.name)
                metrics.FAILURES.labels(self.name).inc()
                self._state = None
                await self._pause(_MAX_PAUSE_SECONDS)
        self._doing = "stopped"

    async def _sessions(self) -> None:
        """Until one has read something and then broke, or `stop`; between failures pauses grow."""
        before = self._batches
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_PASSING)
                & retry_if_exception(lambda _: self._batches == before and not self._stopping.is_set()),
                wait=wait_random_exponential(multiplier=0.1, max=_MAX_PAUSE_SECONDS),
                sleep=self._pause,
                before_sleep=self._broke,
                reraise=True,
            ):
                with attempt:
                    await self._session()
        except _PASSING as error:
            # The next ones begin with short pauses again.
            self._tell(error)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _broke(self, state: RetryCallState) -> None:
        self._tell(state.outcome.exception() if state.outcome else None)

    def _tell(self, error: BaseException | None) -> None:
        why = error.code().name if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
        metrics.RECONNECTS.labels(self.name, why).inc()
        log.warning("source_session_ended", source=self.name, why=why, error=str(error))
        self._doing = "connecting again"
        if isinstance(error, BusError):
            self.problem = str(error)
            if not error.retryable:
                # A later start publishes for this source: what this one remembers is not the newest any more.
                self._state = None

    # ---- a session

    async def _session(self) -> None:
        if self._state is None:
            self._state = await self._on_threads(self._begin)
        async with grpc.aio.insecure_channel(f"unix:{self._settings.socket}", options=_OPTIONS) as channel:
            if not await self._is_ready(channel):
                return
            info = await self._server_info()
            if info is None:
                return
            lists = acknowledges_lists(info)
            reads = await self._opened(channel, "ReadFn", source.ReadRequest, source.ReadResponse)
            acks = await self._opened(channel, "AckFn", source.AckRequest, source.AckResponse)
            log.info("source_opened", source=self.name, language=info.language, version=info.version, lists=lists)
            self._doing = "reading"
            self.problem = ""
            asking = asyncio.create_task(self._ask_pending(channel))
            try:
                while not self._stopping.is_set():
                    is_busy = await self._batch(reads, acks, lists, self._state)
                    self._batches += 1
                    if not is_busy:
                        # Not every source waits as long as it is asked to.
                        await self._pause(_EMPTY_SECONDS)
            finally:
                asking.cancel()
            for stream in (reads, acks):
                with contextlib.suppress(asyncio.InvalidStateError):
                    await stream.done_writing()

    async def _is_ready(self, channel: grpc.aio.Channel) -> bool:
        """Wait for the socket and a yes; False when stopped meanwhile."""
        self._doing = f"waiting for {self._settings.socket}"
        while not self._stopping.is_set():
            try:
                answer = await _unary(channel, "IsReady", source.ReadyResponse)(Empty(), timeout=_ANSWER_SECONDS)
                if answer.ready:
                    return True
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                    raise SourceRefused(f"{self._settings.socket} is no Numaflow source: it has no IsReady") from error
            await self._pause(_READY_SECONDS)
        return False

    async def _server_info(self) -> server_info.ServerInfo | None:
        """Wait for the file to be complete; None when stopped meanwhile."""
        path = Path(self._settings.server_info)
        self._doing = f"waiting for {path}"
        while not self._stopping.is_set():
            try:
                info = server_info.parse(path.read_text())
            except FileNotFoundError:
                info = None
            except ValueError as error:
                raise SourceRefused(f"{path} is no server info: {error}") from error
            if info is not None:
                return info
            await self._pause(_INFO_SECONDS)
        return None

    async def _opened(self, channel: grpc.aio.Channel, name: str, request: Any, response: Any) -> Any:
        stream = channel.stream_stream(
            f"/source.v1.Source/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )()
        await _write(stream, request(handshake=_SOT))
        answer = await _next(stream, _ANSWER_SECONDS)
        if not answer.handshake.sot:
            raise SourceRefused(f"the source does not answer the handshake of {name}")
        return stream

    async def _batch(self, reads: Any, acks: Any, lists: bool, state: ReaderState) -> bool:
        """One read, published piece by piece, and then the acknowledgements; whether there were records."""
        count, timeout_ms = state.batch_records, self._settings.timeout_ms
        await _write(
            reads, source.ReadRequest(request=source.ReadRequest.Request(num_records=count, timeout_in_ms=timeout_ms))
        )
        offsets: list[source.Offset] = []
        piece: list[Result] = []
        size = 0
        halted: SourceHalted | None = None
        while not (answer := await _next(reads, timeout_ms / 1_000 + _SILENCE_SECONDS)).status.eot:
            result = checked(answer)
            metrics.READ.labels(self.name).inc()
            if halted is not None:
                continue
            weight = result.ByteSize()
            state.weighed(weight)
            piece.append(result)
            size += weight
            if size >= PIECE_BYTES or len(piece) >= PIECE_RECORDS:
                halted = await self._publish(piece, state, offsets)
                piece, size = [], 0
        if piece and halted is None:
            halted = await self._publish(piece, state, offsets)
        if offsets:
            await (_acknowledge_list if lists else _acknowledge_singly)(acks, offsets)
            metrics.ACKNOWLEDGED.labels(self.name).inc(len(offsets))
            await self._on_threads(self._durably, self._journal.close)
        if halted is not None:
            raise halted
        return bool(offsets)

    async def _ask_pending(self, channel: grpc.aio.Channel) -> None:
        call = _unary(channel, "PendingFn", source.PendingResponse)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer = await call(Empty(), timeout=_ANSWER_SECONDS)
                metrics.PENDING.labels(self.name).set(answer.result.count)
            await asyncio.sleep(_PENDING_SECONDS)

    # ---- the bus

    async def _on_threads(self, call: Callable[..., Returned], *arguments: Any) -> Returned:
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(call, *arguments))

    def _begin(self) -> ReaderState:
        """What the last start was about to publish when it ended is published, once."""
        epoch, chunks = self._journal.begin()
        state = ReaderState(epoch, self._settings.max_records)
        pieces = [(chunk.number, [Result.FromString(each) for each in chunk.results]) for chunk in chunks]
        state.restore(pieces)
        if chunks and has_records(chunks[-1]):
            number, results = pieces[-1]
            records, dead, _ = self._mapped(results, halts=False)
            self._durably(lambda: self._to_bus(number, records, dead))
        return state

    async def _publish(
        self, piece: Sequence[Result], state: ReaderState, offsets: list[source.Offset]
    ) -> SourceHalted | None:
        """Publish what is not on the bus; `offsets` grows by those that may be acknowledged."""
        fresh = state.fresh(piece)
        metrics.REPEATED.labels(self.name).inc(len(piece) - len(fresh))
        records, dead, halted = self._mapped(fresh, halts=self._settings.unfit == "stop")
        done = fresh[: len(records) + len(dead)]
        if done:
            number = state.next_number()

            def publish() -> None:
                self._journal.write_down(number, done)
                self._to_bus(number, records, dead)

            await self._on_threads(self._durably, publish)
            state.published(done)
            self._records += len(records)
            self._unfit += len(dead)
            metrics.PUBLISHED.labels(self.name).inc(len(records))
            metrics.UNFIT.labels(self.name, "dead_letter").inc(len(dead))
        stays_behind = {key_of(result.offset) for result in fresh[len(done) :]}
        offsets += [result.offset for result in piece if key_of(result.offset) not in stays_behind]
        return halted

    def _to_bus(self, number: int, records: Sequence[Record], dead: Sequence[Record]) -> None:
        is_ticks = self._mapping.topic == topics.TICKS
        if is_ticks:
            self._storage.want(record.key.decode() for record in records if record.key is not None)
        self._journal.publish(number, records, dead)
        if is_ticks:
            self._clocks.published(records)

    def _mapped(
        self, results: Sequence[Result], *, halts: bool
    ) -> tuple[list[Record], list[Record], SourceHalted | None]:
        """(records, dead letters, why not all of `results` are among them)."""
        records: list[Record] = []
        dead: list[Record] = []
        for result in results:
            try:
                records.append(self._mapping.record(result))
            except InvalidRequest as error:
                where = f"{result.offset.partition_id}/{result.offset.offset!r}"
                if halts:
                    metrics.UNFIT.labels(self.name, "stop").inc()
                    return records, dead, SourceHalted(f"reading {self.name} stopped before offset {where}: {error}")
                log.warning("payload_unfit", source=self.name, offset=where, reason=str(error))
                dead.append(self._mapping.dead_letter(result, str(error)))
        return records, dead, None

    def _durably(self, call: Callable[[], None]) -> None:
        """A full or absent bus is waited for: nothing more is read meanwhile."""
        Retrying(
            retry=retry_if_exception_type((BusFull, BusUnavailable)),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            stop=lambda _: self._stopping.is_set(),
            before_sleep=self._count_wait,
            reraise=True,
        )(call)

    def _count_wait(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.problem = str(error)
        metrics.BUS_WAITS.labels(self.name, type(error).__name__).inc()


def _unary(channel: grpc.aio.Channel, name: str, response: Any) -> Any:
    return channel.unary_unary(
        f"/source.v1.Source/{name}",
        request_serializer=Empty.SerializeToString,
        response_deserializer=response.FromString,
    )


async def _write(stream: Any, message: Any) -> None:
    """Raises SourceGone where the stream has ended, AioRpcError where it ends now."""
    try:
        await stream.write(message)
    except asyncio.InvalidStateError as error:
        raise SourceGone(
            f"the source ended the stream: {await stream.details() or (await stream.code()).name}"
        ) from error


async def _next(stream: Any, seconds: float) -> Any:
    """Raises SourceGone at the end of the stream, TimeoutError after `seconds`, AioRpcError for its failure."""
    answer = await asyncio.wait_for(stream.read(), seconds)
    if answer is grpc.aio.EOF:
        raise SourceGone(f"the source ended the stream: {await stream.details() or (await stream.code()).name}")
    return answer


async def _acknowledge_list(acks: Any, offsets: Sequence[source.Offset]) -> None:
    await _write(acks, source.AckRequest(request=source.AckRequest.Request(offsets=offsets)))
    await _next(acks, _SILENCE_SECONDS)


async def _acknowledge_singly(acks: Any, offsets: Sequence[source.Offset]) -> None:
    """One offset a request, one answer each; answers are read while requests are written."""

    async def write() -> None:
        for offset in offsets:
            await _write(acks, source.AckRequest(request=source.AckRequest.Request(offsets=[offset])))

    writing = asyncio.create_task(write())
    try:
        for _ in offsets:
            await _next(acks, _SILENCE_SECONDS)
        await writing
    finally:
        writing.cancel()
