"""What the Kafka-Pixy gateway counts."""

from core.metrics import REGISTRY, Counter, Gauge, Histogram

_PART = "candlewright_kafka_pixy"
CALLS = Counter(f"{_PART}_calls_total", "Answers, by method and status code", ["method", "code"], registry=REGISTRY)
PRODUCED = Counter(f"{_PART}_produced_total", "Messages written", registry=REGISTRY)
PUBLISHES = Counter(f"{_PART}_publishes_total", "Writes to the bus, each of several messages", registry=REGISTRY)
DROPPED = Counter(
    f"{_PART}_dropped_total", "Asynchronous messages that were not written", ["reason"], registry=REGISTRY
)
WAITING_MESSAGES = Gauge(f"{_PART}_waiting_messages", "Messages waiting to be written", registry=REGISTRY)
HANDED_OUT = Counter(f"{_PART}_handed_out_total", "Messages given to consumers", registry=REGISTRY)
REDELIVERED = Counter(f"{_PART}_redelivered_total", "Messages given to consumers more than once", registry=REGISTRY)
TAKEN_OVER = Counter(f"{_PART}_taken_over_total", "Messages taken over from gateways that ended", registry=REGISTRY)
GIVEN_BACK = Counter(
    f"{_PART}_given_back_total", "Messages read ahead and given back, because no call came for them", registry=REGISTRY
)
DEAD_LETTERS = Counter(
    f"{_PART}_dead_letters_total", "Messages moved to dead letters after their last retry", registry=REGISTRY
)
ACKNOWLEDGED = Counter(f"{_PART}_acknowledged_total", "Acknowledgements that took effect", registry=REGISTRY)
IGNORED_ACKS = Counter(
    f"{_PART}_ignored_acks_total", "Acknowledgements of messages that were not pending", registry=REGISTRY
)
DOUBTFUL_ACKS = Counter(
    f"{_PART}_doubtful_acks_total",
    "Acknowledgements ignored because they may be of a message that the store has lost",
    registry=REGISTRY,
)
BUS_FAILURES = Counter(f"{_PART}_bus_failures_total", "Failed calls to the bus", ["where"], registry=REGISTRY)
LINES = Gauge(f"{_PART}_lines", "Groups on topics with active consumers", registry=REGISTRY)
WAITING_CALLS = Gauge(f"{_PART}_waiting_calls", "Consume calls waiting for a message", registry=REGISTRY)
WAIT_SECONDS = Histogram(f"{_PART}_wait_seconds", "Time from a consume call to its message", registry=REGISTRY)
