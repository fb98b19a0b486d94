"""What the readers of Numaflow sources count."""

from core.metrics import REGISTRY, Counter, Gauge

READ = Counter("candlewright_numaflow_sources_read_total", "Records that a source sent", ["source"], registry=REGISTRY)
PUBLISHED = Counter(
    "candlewright_numaflow_sources_published_total", "Records published to their topic", ["source"], registry=REGISTRY
)
REPEATED = Counter(
    "candlewright_numaflow_sources_repeated_total",
    "Records dropped and acknowledged again, because they are already on the bus",
    ["source"],
    registry=REGISTRY,
)
UNFIT = Counter(
    "candlewright_numaflow_sources_unfit_total",
    "Payloads that do not fit their topic, by outcome",
    ["source", "fate"],
    registry=REGISTRY,
)
ACKNOWLEDGED = Counter(
    "candlewright_numaflow_sources_acknowledged_total", "Offsets acknowledged", ["source"], registry=REGISTRY
)
RECONNECTS = Counter(
    "candlewright_numaflow_sources_reconnects_total",
    "Sessions ended, by reason",
    ["source", "why"],
    registry=REGISTRY,
)
BUS_WAITS = Counter(
    "candlewright_numaflow_sources_bus_waits_total", "Publishes repeated", ["source", "why"], registry=REGISTRY
)
FAILURES = Counter(
    "candlewright_numaflow_sources_failures_total",
    "Unexpected failures, logged and survived",
    ["source"],
    registry=REGISTRY,
)
PENDING = Gauge(
    "candlewright_numaflow_sources_pending",
    "Records waiting at the source; -1 if it does not report them",
    ["source"],
    registry=REGISTRY,
)
