"""What the Numaflow source counts."""

from core.metrics import REGISTRY, Counter, Gauge

DELIVERED = Counter("candlewright_numaflow_delivered_total", "Records sent to Numaflow", ["topic"], registry=REGISTRY)
REDELIVERED = Counter(
    "candlewright_numaflow_redelivered_total",
    "Records sent again, by reason: the client reconnected, refused them, or another replica left them unacknowledged",
    ["why"],
    registry=REGISTRY,
)
ACKNOWLEDGED = Counter("candlewright_numaflow_acknowledged_total", "Records acknowledged", registry=REGISTRY)
REPEATED_ACKS = Counter(
    "candlewright_numaflow_repeated_acks_total",
    "Acknowledged offsets that were not pending",
    registry=REGISTRY,
)
FOREIGN_OFFSETS = Counter(
    "candlewright_numaflow_foreign_offsets_total",
    "Offsets that do not belong to this source",
    ["call"],
    registry=REGISTRY,
)
REFUSED = Counter("candlewright_numaflow_refused_total", "Records that Numaflow gave back", registry=REGISTRY)
GIVEN_UP = Counter(
    "candlewright_numaflow_given_up_total",
    "Records given up, by reason: refused too often, or larger than a message may be",
    ["why"],
    registry=REGISTRY,
)
UNREADABLE = Counter(
    "candlewright_numaflow_unreadable_records_total",
    "Records sent with the bus's time, because they do not fit their topic",
    ["topic"],
    registry=REGISTRY,
)
TRIMMED = Counter(
    "candlewright_numaflow_trimmed_records_total",
    "Records to be sent again that are no longer on the bus",
    ["topic"],
    registry=REGISTRY,
)
HELD_BACK = Counter(
    "candlewright_numaflow_held_back_total",
    "Reads left empty because too many records are unacknowledged",
    registry=REGISTRY,
)
BAD_CALLS = Counter(
    "candlewright_numaflow_bad_calls_total",
    "Streams ended because the client sent an invalid message",
    ["call"],
    registry=REGISTRY,
)
BUS_FAILURES = Counter(
    "candlewright_numaflow_bus_failures_total", "Calls ended because the bus failed", ["call"], registry=REGISTRY
)
GROUPS_MADE_ANEW = Counter(
    "candlewright_numaflow_groups_made_anew_total", "Times the group had expired or been deleted", registry=REGISTRY
)
SESSIONS = Counter("candlewright_numaflow_sessions_total", "Handshakes, by call", ["call"], registry=REGISTRY)
OUTSTANDING = Gauge("candlewright_numaflow_outstanding", "Records sent and not acknowledged", registry=REGISTRY)
