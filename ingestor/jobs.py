"""Runs one job, from its dispatch to the messages that answer it."""

from collections.abc import Callable, Mapping

from google.protobuf.message import Message

from bus import Bus
from candlewright.wire import candlewright_pb2 as cw
from ingestor.candles import Candles
from ingestor.events import Job, Kind
from ingestor.exchange.client import VenueClient
from ingestor.exchange.pages import source_of
from ingestor.exchange.snapshot import fetch_snapshot
from ingestor.history.fetch import HistoryFetch, HistoryJob, HistorySummary
from ingestor.history.publisher import PagePublisher
from ingestor.history.quiet import QuietBook
from ingestor.history.trade_candles import older_candles_of
from ingestor.progress import Progress
from ingestor.realtime.service import RealtimeService
from ingestor.threads import BusThreads


class JobRunner:
    """Runs jobs of any kind; a cancelled job leaves nothing running."""

    def __init__(
        self,
        bus: Bus,
        threads: BusThreads,
        clients: Mapping[str, VenueClient],
        *,
        patience: float,
        realtime: RealtimeService,
    ) -> None:
        self._bus = bus
        self._threads = threads
        self._clients = clients
        self._patience = patience
        self._realtime = realtime
        self._quiet = QuietBook(bus, threads)

    async def run(self, job: Job, progress: Progress, on_published: Callable[[int], None]) -> tuple[Message, ...]:
        """Run the job; returns the messages to send to the broker before WorkComplete.

        Raises ExchangeError, LeaseLost, BusError.
        """
        client = self._clients[job.venue]
        if job.kind is Kind.HISTORICAL:
            return (await self._history(client, job, progress, on_published),)
        if job.kind is Kind.SNAPSHOT:
            snapshot = await fetch_snapshot(
                client, ticker=job.ticker, symbol=job.symbol, request_id=job.request_id, progress=progress
            )
            return (snapshot,)
        await self._realtime.run(client, job, progress)
        return ()

    async def _history(
        self, client: VenueClient, job: Job, progress: Progress, on_published: Callable[[int], None]
    ) -> cw.HistoryEnd:
        publisher = PagePublisher(
            self._bus,
            self._threads,
            progress,
            request_id=job.client_request_id,
            job_id=job.job_id,
            ticker=job.ticker,
            period_seconds=job.period_seconds,
            patience=self._patience,
            on_published=on_published,
        )

        async def emit(candles: Candles, source: str) -> None:
            await publisher.add(candles, source)

        wanted = HistoryJob(job.symbol, job.period_seconds, job.start, job.end, job.limit)
        fetch = HistoryFetch(
            client,
            source_of(client),
            wanted,
            progress=progress,
            emit=emit,
            older=older_candles_of(client),
            quiet=self._quiet,
            ticker=job.ticker,
        )
        try:
            summary = await fetch.run()
            partition, spans = await publisher.finish()
        except BaseException:
            await publisher.abandon()
            raise
        return history_end(job.job_id, summary, partition, spans=spans)


def history_end(job_id: str, summary: HistorySummary, partition: int, *, spans: list[cw.Span]) -> cw.HistoryEnd:
    return cw.HistoryEnd(
        job_id=job_id,
        partition=partition,
        spans=spans,
        rows=summary.rows,
        expected=summary.expected,
        holes=[cw.TimeRange(start_time=start, end_time=end) for start, end in summary.holes],
        exchange_time=summary.exchange_time,
        first_open_time=summary.first_open,
        last_open_time=summary.last_open,
        reason=summary.reason,
        closed_until=summary.closed_until,
    )
