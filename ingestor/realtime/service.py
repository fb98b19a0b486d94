"""All realtime jobs of an ingestor, which share one feed per venue and one publisher."""

from collections.abc import Callable

from bus import Bus
from candlewright.wire.errors import NotOffered
from ingestor.events import Job
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.realtime.feed import Feed
from ingestor.realtime.handover import Tails
from ingestor.realtime.job import Surroundings, TickJob
from ingestor.realtime.lanes import LanePublisher
from ingestor.settings import IngestorConfig
from ingestor.threads import BusThreads


class RealtimeService:
    """`url_of` returns the server to use for a venue, or an empty string for the exchange itself. The first job creates
    sockets and threads.
    """

    def __init__(self, bus: Bus, threads: BusThreads, config: IngestorConfig, *, url_of: Callable[[str], str]) -> None:
        self._bus = bus
        self._threads = threads
        self._config = config
        self._url_of = url_of
        self._feeds: dict[str, Feed] = {}
        self._around: Surroundings | None = None
        self._jobs: dict[str, TickJob] = {}

    async def run(self, client: VenueClient, job: Job, progress: Progress) -> None:
        """Run the job until cancelled. Raises NotOffered for a venue that cannot be streamed, LeaseLost, ExchangeError,
        BusError.
        """
        running = self._jobs[job.ticker] = TickJob(
            self._surroundings(), client, self._feed(client), job=job, progress=progress
        )
        try:
            await running.run()
        finally:
            # Another job may own the ticker by now.
            if self._jobs.get(job.ticker) is running:
                del self._jobs[job.ticker]

    def ages(self) -> dict[str, float]:
        """By live ticker, the seconds since its last frame of trades."""
        return {ticker: age for feed in list(self._feeds.values()) for ticker, age in feed.ages().items()}

    def rates(self, at: float) -> dict[str, float]:
        """By live ticker, its recent trades per second."""
        return {ticker: job.rate.per_second(at) for ticker, job in list(self._jobs.items())}

    def _surroundings(self) -> Surroundings:
        if self._around is None:
            config = self._config
            publisher = LanePublisher(self._bus)
            tails = Tails(self._bus, config.max_ahead_ns)
            self._around = Surroundings(
                tails=tails,
                threads=self._threads,
                publisher=publisher,
                heartbeat=config.heartbeat,
                sample=config.bar_check_share,
                max_ahead_ns=config.max_ahead_ns,
                silence_floor=config.silence_floor,
            )
        return self._around

    def _feed(self, client: VenueClient) -> Feed:
        feed = self._feeds.get(client.venue)
        if feed is None:
            stream = client.description.stream
            if stream is None:
                raise NotOffered(f"{client.venue} cannot be streamed")
            config = self._config
            feed = self._feeds[client.venue] = Feed(
                client,
                stream,
                url=self._url_of(client.venue),
                request_timeout=config.request_timeout,
                patience=config.patience,
            )
        return feed

    async def close(self) -> None:
        for feed in self._feeds.values():
            await feed.close()
        if self._around is not None:
            self._around.publisher.close()
