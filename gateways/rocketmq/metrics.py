"""What the gateway counts."""

from core.metrics import REGISTRY, Counter, Gauge, Histogram

CALLS = Counter(
    "candlewright_gateways_rocketmq_calls_total", "Calls, by method and status", ["method", "code"], registry=REGISTRY
)
CALL_SECONDS = Histogram(
    "candlewright_gateways_rocketmq_call_seconds",
    "Duration of a call, including the time it was held",
    ["method"],
    registry=REGISTRY,
)
SENT = Counter("candlewright_gateways_rocketmq_sent_total", "Messages accepted, by kind", ["kind"], registry=REGISTRY)
REPEATED = Counter(
    "candlewright_gateways_rocketmq_repeated_sends_total", "Messages not stored again, because their id was known",
    registry=REGISTRY,
)  # fmt: skip
DELIVERED = Counter("candlewright_gateways_rocketmq_delivered_total", "Messages delivered", registry=REGISTRY)
REDELIVERED = Counter("candlewright_gateways_rocketmq_redelivered_total", "Messages delivered again", registry=REGISTRY)
FILTERED = Counter("candlewright_gateways_rocketmq_filtered_total", "Messages dropped by a filter", registry=REGISTRY)
SETTLED = Counter(
    "candlewright_gateways_rocketmq_settled_total",
    "Outcomes of deliveries, including repeated and late requests",
    ["what", "outcome"],
    registry=REGISTRY,
)
DEAD = Counter(
    "candlewright_gateways_rocketmq_dead_letters_total", "Messages given up, by reason", ["reason"], registry=REGISTRY
)
RELEASED = Counter("candlewright_gateways_rocketmq_released_total", "Timed messages published", registry=REGISTRY)
RELEASE_FAILURES = Counter(
    "candlewright_gateways_rocketmq_release_failures_total",
    "Failed attempts to publish a timed message, which is kept and retried",
    registry=REGISTRY,
)
TRANSACTIONS = Counter(
    "candlewright_gateways_rocketmq_transactions_total", "Half messages, by outcome", ["what"], registry=REGISTRY
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
WAITING = Gauge("candlewright_gateways_rocketmq_waiting_polls", "Calls held", registry=REGISTRY)
KEPT = Gauge(
    "candlewright_gateways_rocketmq_kept_bytes", "Bytes of timed and half messages on the bus", registry=REGISTRY
)
FAILURES = Counter(
    "candlewright_gateways_rocketmq_failures_total", "Unexpected failures, survived", ["where"], registry=REGISTRY
)
