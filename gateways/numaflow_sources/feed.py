"""Reads one source: publishes its records, then acknowledges them; pauses between sessions."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
import grpc.aio
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from bus.api import Bus, Record
from candlewright.wire.errors import BusError, BusFull, BusUnavailable, InvalidRequest
from core.background import start_task
from core.log import get_logger
from core.settings_gateways import NumaflowSourceSettings
from gateways.numaflow_sources import metrics
from gateways.numaflow_sources.journal import Journal, has_records
from gateways.numaflow_sources.mapping import PayloadMapping
from gateways.numaflow_sources.pieces import (
    PIECE_BYTES,
    PIECE_RECORDS,
    PIECES_UNACKNOWLEDGED,
    PublishedPieces,
    key_of,
)
from gateways.numaflow_sources.protocol import Result, SourceHalted, SourceRefused
from gateways.numaflow_sources.session import SourceGone, SourceSession, opened, pause
from gateways.records import MAX_AHEAD_NS
from gateways.tick_clocks import TickClocks
from gateways.tick_storage import TickStorage
from protobuf import source_superset_pb2 as source

log = get_logger()

Returned = TypeVar("Returned")

#: Pause after a read without records.
_EMPTY_SECONDS = 0.02
_PENDING_SECONDS = 10.0
_MAX_PAUSE_SECONDS = 10.0
#: Pause after an error that only a change of the source or the settings can fix.
_REFUSED_PAUSE_SECONDS = 30.0


_PASSING = (SourceGone, grpc.aio.AioRpcError, OSError, BusError, TimeoutError)


class SourceFeed:
    """`run` until `stop`. It acknowledges what it has published; the source sends the rest again."""

    def __init__(
        self,
        name: str,
        settings: NumaflowSourceSettings,
        bus: Bus,
        *,
        threads: ThreadPoolExecutor,
        clocks: TickClocks,
        max_ahead_ns: int = MAX_AHEAD_NS,
    ) -> None:
        """`clocks` gets the published ticks. Raises ConfigurationError."""
        self.name = name
        self._settings = settings
        self._mapping = PayloadMapping(name, settings, max_ahead_ns)
        self._journal = Journal(bus, name, self._mapping.topic, dead_letters=self._mapping.dead_letters)
        self._threads = threads
        self._storage = TickStorage(bus)
        self._clocks = clocks
        self._published: PublishedPieces | None = None
        self._stopping = asyncio.Event()
        self._doing = "not started"
        self.problem = ""
        self._batches = 0
        self._records = 0
        self._unfit = 0

    def stop(self) -> None:
        """Finish the batch under way first."""
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
            except (SourceRefused, SourceHalted) as error:
                why = "refused" if isinstance(error, SourceRefused) else "halted"
                self._doing, self.problem = why, str(error)
                log.error(f"source_{why}", source=self.name, error=str(error))
                metrics.RECONNECTS.labels(self.name, why).inc()
                await self._pause(_REFUSED_PAUSE_SECONDS)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.problem = f"unexpected: {error!r}"
                log.exception("source_reader_failed", source=self.name)
                metrics.FAILURES.labels(self.name).inc()
                self._published = None
                await self._pause(_MAX_PAUSE_SECONDS)
        self._doing = "stopped"

    async def _sessions(self) -> None:
        """Try sessions until one that has read something breaks, or until `stop`; pauses between failures grow."""
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
            # Later failures start with short pauses again.
            self._tell(error)

    async def _pause(self, seconds: float) -> None:
        await pause(self._stopping, seconds)

    def _does(self, what: str) -> None:
        self._doing = what

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
                # A later start publishes for this source, so this one's memory is out of date.
                self._published = None

    # ---- a session

    async def _session(self) -> None:
        if self._published is None:
            self._published = await self._on_threads(self._begin)
        async with opened(self._settings, self._stopping, self._does) as session:
            if session is None:
                return
            log.info("source_opened", source=self.name, language=session.info.language, version=session.info.version)
            self._does("reading")
            asking = start_task(
                lambda: self._ask_pending(session), f"pending of {self.name}", restarts_after=_PENDING_SECONDS
            )
            try:
                while not self._stopping.is_set():
                    is_busy = await self._batch(session, self._published)
                    self._batches += 1
                    self.problem = ""
                    if not is_busy:
                        # Not every source waits for the whole requested time.
                        await self._pause(_EMPTY_SECONDS)
            finally:
                asking.cancel()

    async def _batch(self, session: SourceSession, published: PublishedPieces) -> bool:
        """One read, published piece by piece and then acknowledged; returns whether there were records."""
        offsets: list[source.Offset] = []
        piece: list[Result] = []
        size = pieces = 0
        has_records = False
        halted: SourceHalted | None = None
        async for result in session.read(published.batch_records, self._settings.timeout_ms):
            has_records = True
            metrics.READ.labels(self.name).inc()
            if halted is not None:
                continue
            weight = result.ByteSize()
            published.weighed(weight)
            piece.append(result)
            size += weight
            if size >= PIECE_BYTES or len(piece) >= PIECE_RECORDS:
                halted = await self._publish(piece, published, offsets)
                piece, size, pieces = [], 0, pieces + 1
                if pieces % PIECES_UNACKNOWLEDGED == 0:
                    await self._acknowledge(session, offsets)
                    offsets = []
        if piece and halted is None:
            halted = await self._publish(piece, published, offsets)
        await self._acknowledge(session, offsets)
        if halted is not None:
            raise halted
        return has_records

    async def _acknowledge(self, session: SourceSession, offsets: Sequence[source.Offset]) -> None:
        if offsets:
            await session.acknowledge(offsets)
            metrics.ACKNOWLEDGED.labels(self.name).inc(len(offsets))
            await self._on_threads(self._durably, self._journal.close)

    async def _ask_pending(self, session: SourceSession) -> None:
        while True:
            # The answer does not affect reading.
            with contextlib.suppress(grpc.aio.AioRpcError, SourceRefused):
                metrics.PENDING.labels(self.name).set(await session.pending())
            await asyncio.sleep(_PENDING_SECONDS)

    # ---- the bus

    async def _on_threads(self, call: Callable[..., Returned], *arguments: Any) -> Returned:
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(call, *arguments))

    def _begin(self) -> PublishedPieces:
        """Publish, once, the piece that the last start was about to publish when it ended."""
        epoch, chunks = self._journal.begin()
        published = PublishedPieces(epoch, self._settings.max_records)
        pieces = [(chunk.number, [Result.FromString(each) for each in chunk.results]) for chunk in chunks]
        published.restore(pieces)
        if chunks and has_records(chunks[-1]):
            number, results = pieces[-1]
            records, dead, _ = self._mapped(results, halts=False)
            self._durably(lambda: self._to_bus(number, records, dead))
        return published

    async def _publish(
        self, piece: Sequence[Result], published: PublishedPieces, offsets: list[source.Offset]
    ) -> SourceHalted | None:
        """Publish what is not on the bus yet; adds to `offsets` those that may be acknowledged."""
        fresh = published.fresh(piece)
        metrics.REPEATED.labels(self.name).inc(len(piece) - len(fresh))
        records, dead, halted = self._mapped(fresh, halts=self._settings.unfit == "stop")
        done = fresh[: len(records) + len(dead)]
        if done:
            number = published.next_number()

            def publish() -> None:
                self._journal.write_down(number, done)
                self._to_bus(number, records, dead)

            await self._on_threads(self._durably, publish)
            published.add(done)
            self._records += len(records)
            self._unfit += len(dead)
            metrics.PUBLISHED.labels(self.name).inc(len(records))
            metrics.UNFIT.labels(self.name, "dead_letter").inc(len(dead))
        stays_behind = {key_of(result.offset) for result in fresh[len(done) :]}
        offsets += [result.offset for result in piece if key_of(result.offset) not in stays_behind]
        return halted

    def _to_bus(self, number: int, records: Sequence[Record], dead: Sequence[Record]) -> None:
        self._storage.expect(self._mapping.topic, records)
        self._journal.publish(number, records, dead)
        self._clocks.published(self._mapping.topic, records)

    def _mapped(
        self, results: Sequence[Result], *, halts: bool
    ) -> tuple[list[Record], list[Record], SourceHalted | None]:
        """(records, dead letters, the reason if some of `results` are in neither)."""
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
        """Wait while the bus is full or down; nothing more is read meanwhile."""
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
