"""Publishes a job's pages to the bus, a few at a time, while the next ones are fetched."""

import asyncio
from collections.abc import Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from bus import Log, Position, Record
from bus.topics import HISTORY
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusFull, BusRefusing, BusUnavailable
from core.background import awaited_task
from core.log import get_logger
from ingestor import metrics
from ingestor.candles import Candles
from ingestor.history.page_record import page_record
from ingestor.progress import Progress
from ingestor.threads import BusThreads

log = get_logger()

#: Rows queued while a publish is running; beyond this, the fetch waits for the bus.
MAX_WAITING_ROWS = 16_000


class PagePublisher:
    """Publishes in order, one bus call at a time. A call with an unknown outcome is repeated; the copy that may be on
    the bus is in none of the spans, so no reader uses it.
    """

    def __init__(
        self,
        bus: Log,
        threads: BusThreads,
        progress: Progress,
        *,
        request_id: str,
        job_id: str,
        ticker: str,
        period_seconds: int,
        patience: float,
        on_published: Callable[[int], None],
    ) -> None:
        self._bus = bus
        self._threads = threads
        self._progress = progress
        self._request_id = request_id
        self._job_id = job_id
        self._ticker = ticker
        self._period_seconds = period_seconds
        self._patience = patience
        self._on_published = on_published
        self._waiting: list[Record] = []
        self._waiting_rows = 0
        self._flight: asyncio.Task[None] | None = None
        self._positions: list[Position] = []
        self._rows = 0

    async def add(self, candles: Candles, source: str) -> None:
        """Queue a page; raises the error of an earlier publish (LeaseLost, BusError)."""
        record = page_record(
            candles,
            request_id=self._request_id,
            job_id=self._job_id,
            ticker=self._ticker,
            period_seconds=self._period_seconds,
            source=source,
        )
        self._waiting.append(record)
        self._waiting_rows += len(candles)
        if self._flight is not None and (self._flight.done() or self._waiting_rows >= MAX_WAITING_ROWS):
            await self._land()
        if self._flight is None:
            self._take_off()

    async def finish(self) -> tuple[int, list[cw.Span]]:
        """Publish the queued pages; returns the partition and the spans of offsets that hold this job's pages."""
        while self._flight is not None or self._waiting:
            if self._flight is None:
                self._take_off()
            await self._land()
        partition = self._positions[0].partition if self._positions else 0
        return partition, spans(self._positions)

    async def abandon(self) -> None:
        """Wait for the running call, whatever its outcome, and drop the rest."""
        self._waiting.clear()
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.wait([self._flight])
            if not self._flight.cancelled():
                self._flight.exception()
            self._flight = None

    def _take_off(self) -> None:
        records, rows = self._waiting, self._waiting_rows
        self._waiting, self._waiting_rows = [], 0
        self._flight = awaited_task(self._publish(records, rows))

    async def _land(self) -> None:
        assert self._flight is not None
        try:
            await self._flight
        finally:
            if self._flight.done():
                self._flight = None

    async def _publish(self, records: list[Record], rows: int) -> None:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type((BusFull, BusUnavailable)),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=self._is_enough,
            sleep=self._progress.sleep,
            before_sleep=self._count_wait,
            reraise=True,
        )

        async def publish() -> list[Position]:
            return await self._threads.run(
                lambda: self._bus.publish(HISTORY, records, lease=self._job_id), self._progress
            )

        positions: list[Position] = await attempts(publish)
        self._positions.extend(positions)
        self._rows += rows
        self._on_published(self._rows)

    def _is_enough(self, state: RetryCallState) -> bool:
        # A full bus drains as its readers advance, so waiting is bounded by the request's deadline. If the bus cannot
        # be reached, the job is given up.
        error = state.outcome.exception() if state.outcome else None
        is_lost = isinstance(error, BusUnavailable) and not isinstance(error, BusRefusing)
        return is_lost and (state.seconds_since_start or 0.0) > self._patience

    def _count_wait(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        metrics.BUS_WAITS.labels(type(error).__name__).inc()
        log.info("publish_delayed", job_id=self._job_id, attempt=state.attempt_number, error=str(error))


def spans(positions: list[Position]) -> list[cw.Span]:
    """The runs of consecutive offsets, both ends included."""
    runs: list[cw.Span] = []
    for position in positions:
        if runs and position.offset == runs[-1].last_offset + 1:
            runs[-1].last_offset = position.offset
        else:
            runs.append(cw.Span(first_offset=position.offset, last_offset=position.offset))
    return runs
