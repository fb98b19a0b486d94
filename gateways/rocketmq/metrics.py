"""What the gateway counts."""

from core.metrics import REGISTRY, Counter, Gauge, Histogram

CALLS = Counter(
    "candlewright_gateways_rocketmq_calls_total", "Calls, by method and status", ["method", "code"], registry=REGISTRY
)
CALL_SECONDS = Histogram(
    "candlewright_gateways_rocketmq_call_seconds", "Time of a call, holding included", ["method"], registry=REGISTRY
)
SENT = Counter("candlewright_gateways_rocketmq_sent_total", "Messages taken, by kind", ["kind"], registry=REGISTRY)
REPEATED = Counter(
    "candlewright_gateways_rocketmq_repeated_sends_total", "Messages not stored again: their id was known",
    registry=REGISTRY,
)  # fmt: skip
DELIVERED = Counter("candlewright_gateways_rocketmq_delivered_total", "Messages given out", registry=REGISTRY)
REDELIVERED = Counter(
    "candlewright_gateways_rocketmq_redelivered_total", "Of these, not for the first time", registry=REGISTRY
)
FILTERED = Counter(
    "candlewright_gateways_rocketmq_filtered_total", "Messages passed over by a filter", registry=REGISTRY
)
SETTLED = Counter(
    "candlewright_gateways_rocketmq_settled_total",
    "What became of deliveries, and of asking for it twice or late",
    ["what", "outcome"],
    registry=REGISTRY,
)
DEAD = Counter(
    "candlewright_gateways_rocketmq_dead_letters_total", "Messages given up, by reason", ["reason"], registry=REGISTRY
)
RELEASED = Counter(
    "candlewright_gateways_rocketmq_released_total", "Messages for later that were published", registry=REGISTRY
)
RELEASE_FAILURES = Counter(
    "candlewright_gateways_rocketmq_release_failures_total",
    "Messages for later that could not be published now and stay",
    registry=REGISTRY,
)
TRANSACTIONS = Counter(
    "candlewright_gateways_rocketmq_transactions_total", "Half messages, by what happened", ["what"], registry=REGISTRY
)
COMMANDS = Counter(
    "candlewright_gateways_rocketmq_commands_total", "Commands handed to clients, by kind", ["kind"], registry=REGISTRY
)
REPORTS = Counter(
    "candlewright_gateways_rocketmq_reports_total", "Reports of clients, by kind", ["kind"], registry=REGISTRY
)
CONFLICTS = Counter(
    "candlewright_gateways_rocketmq_subscription_conflicts_total",
    "Heartbeats whose subscription differs from another member's of the group",
    registry=REGISTRY,
)
WAITING = Gauge("candlewright_gateways_rocketmq_waiting_polls", "Calls that are held", registry=REGISTRY)
KEPT = Gauge(
    "candlewright_gateways_rocketmq_kept_bytes", "Messages for later and half messages, on the bus", registry=REGISTRY
)
FAILURES = Counter(
    "candlewright_gateways_rocketmq_failures_total", "Unexpected failures, survived", ["where"], registry=REGISTRY
)
