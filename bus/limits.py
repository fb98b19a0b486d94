"""Bounds of the bus, and counters of entries beyond them."""

from dataclasses import dataclass

from core.log import get_logger
from core.metrics import REGISTRY, Counter

DEFAULT_MAX_BYTES = 1 << 30
DEFAULT_GROUP_EXPIRY_SECONDS = 168 * 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of everything stored besides the records of topics; docs/operations.md lists all.

    `names`: of a registry of `publish_once` and `publish_new`; the oldest are removed, except for `requests`, where new
    ones are refused. `topics`, `groups` (of a topic): further ones are refused. `rows`: of a table whose rows expire;
    those that would expire first are removed. `sequence_seconds`: a sequence unused for this long begins at 1 again.
    """

    names: int = 1_000_000
    topics: int = 10_000
    groups: int = 1_000
    rows: int = 250_000
    sequence_seconds: int = 30 * 86_400


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
REFUSALS = Counter(
    "candlewright_bus_refusals_total",
    "Calls that the server refused for now, by its code: OOM, NOREPLICAS, MISCONF, READONLY and others",
    ["code"],
    registry=REGISTRY,
)
EVICTED = Counter(
    "candlewright_bus_evicted_total",
    "Names of registries and rows of tables that were removed before their time, because there were too many",
    ["of"],
    registry=REGISTRY,
)
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
