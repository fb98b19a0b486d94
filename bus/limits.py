"""Bounds of the bus, and the counters of what they cost."""

from core.log import get_logger
from core.metrics import REGISTRY, Counter

DEFAULT_MAX_BYTES = 1 << 30
DEFAULT_GROUP_EXPIRY_SECONDS = 168 * 3600.0

TRIMMED = Counter(
    "candlewright_bus_trimmed_records_total", "Records dropped by retention", ["topic"], registry=REGISTRY
)
EXPIRED_GROUPS = Counter(
    "candlewright_bus_expired_groups_total", "Consumer groups dropped after idle time", ["topic"], registry=REGISTRY
)
REFUSED = Counter(
    "candlewright_bus_refused_publishes_total", "Publishes refused by back-pressure", ["topic"], registry=REGISTRY
)
RETRIES = Counter("candlewright_bus_retries_total", "Calls repeated after a connection error", registry=REGISTRY)
LOST_PENDING = Counter(
    "candlewright_bus_lost_pending_total",
    "Pending records of a group that no longer exist",
    ["topic"],
    registry=REGISTRY,
)

log = get_logger()


def trim_goal(max_bytes: int) -> int:
    """How far a full topic is cut back, so that not every publish has to trim."""
    return max_bytes // 4 * 3


def group_expired(topic: str, group: str) -> None:
    EXPIRED_GROUPS.labels(topic).inc()
    log.warning("bus_group_expired", topic=topic, group=group)


def count_trimmed(topic: str, records: int) -> None:
    if records:
        TRIMMED.labels(topic).inc(records)


def pending_lost(topic: str, group: str, records: int) -> None:
    LOST_PENDING.labels(topic).inc(records)
    log.error("bus_pending_records_lost", topic=topic, group=group, records=records)
