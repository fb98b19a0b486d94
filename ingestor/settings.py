"""The settings that an ingestor reads, and fixed times."""

from dataclasses import dataclass

from core.settings import Settings


@dataclass(kw_only=True, frozen=True, slots=True)
class IngestorConfig:
    """All durations in seconds.

    `patience`: how long one call to an exchange is retried before the job is given back. `grace`: how long a shutdown
    waits for jobs to stop.
    """

    brokers: tuple[str, ...]
    venues: tuple[str, ...]
    slots_historical: int
    slots_realtime: int
    heartbeat: float
    lease: float
    silence: float
    request_timeout: float
    budget_share: float
    rate_limit: bool
    background_share: float = 0.5
    bar_check_share: float = 0.0
    max_ahead_ns: int = 5_000_000_000
    silence_floor: float = 2.0
    patience: float = 60.0
    grace: float = 5.0
    venue_keep: float = 900.0
    venue_refresh: float = 300.0
    markets_refresh: float = 3_600.0

    @classmethod
    def of(cls, settings: Settings) -> "IngestorConfig":
        broker, own = settings.broker, settings.ingestor
        return cls(
            brokers=_listed(own.broker) or (_reachable(broker.bind),),
            venues=own.venues,
            slots_historical=own.slots_historical,
            slots_realtime=own.slots_realtime,
            heartbeat=min(broker.heartbeat_seconds, broker.lease_seconds / 3),
            lease=broker.lease_seconds,
            silence=3 * broker.heartbeat_seconds,
            request_timeout=own.request_timeout_seconds,
            budget_share=own.budget_share,
            rate_limit=own.rate_limit,
            background_share=own.background_share,
            bar_check_share=own.bar_check_share,
            max_ahead_ns=settings.ticks.max_ahead_ns,
            silence_floor=own.silence_floor_seconds,
        )


def _listed(brokers: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(brokers, str):
        return (brokers,) if brokers else ()
    return brokers


def _reachable(bind: str) -> str:
    """The address to connect to; an address bound to every interface becomes loopback."""
    scheme, _, address = bind.partition("://")
    host, _, port = address.rpartition(":")
    return f"{scheme}://127.0.0.1:{port}" if host in ("*", "0.0.0.0", "[::]") else bind
