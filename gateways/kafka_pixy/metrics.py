"""What the Kafka-Pixy gateway counts."""

from core.metrics import REGISTRY, Counter, Gauge, Histogram

_PART = "candlewright_kafka_pixy"
CALLS = Counter(f"{_PART}_calls_total", "Answers, by method and status code", ["method", "code"], registry=REGISTRY)
PRODUCED = Counter(f"{_PART}_produced_total", "Messages written", registry=REGISTRY)
PUBLISHES = Counter(f"{_PART}_publishes_total", "Writes to the bus, each of many messages", registry=REGISTRY)
DROPPED = Counter(
    f"{_PART}_dropped_total", "Asynchronous messages that were not written", ["reason"], registry=REGISTRY
)
WAITING_MESSAGES = Gauge(f"{_PART}_waiting_messages", "Messages that wait to be written", registry=REGISTRY)
HANDED_OUT = Counter(f"{_PART}_handed_out_total", "Messages given to consumers", registry=REGISTRY)
REDELIVERED = Counter(f"{_PART}_redelivered_total", "Of these, such that were given before", registry=REGISTRY)
TAKEN_OVER = Counter(f"{_PART}_taken_over_total", "Messages of gateways that ended", registry=REGISTRY)
GIVEN_BACK = Counter(f"{_PART}_given_back_total", "Messages read for calls that did not come", registry=REGISTRY)
DEAD_LETTERS = Counter(f"{_PART}_dead_letters_total", "Messages offered often enough", registry=REGISTRY)
ACKNOWLEDGED = Counter(f"{_PART}_acknowledged_total", "Acknowledgements that took effect", registry=REGISTRY)
IGNORED_ACKS = Counter(f"{_PART}_ignored_acks_total", "Those of nothing that was pending", registry=REGISTRY)
BUS_FAILURES = Counter(f"{_PART}_bus_failures_total", "Calls of the bus that failed", ["where"], registry=REGISTRY)
LINES = Gauge(f"{_PART}_lines", "Groups on topics that consumers ask for", registry=REGISTRY)
WAITING_CALLS = Gauge(f"{_PART}_waiting_calls", "Consume calls that wait for a message", registry=REGISTRY)
WAIT_SECONDS = Histogram(f"{_PART}_wait_seconds", "From a consume call to its message", registry=REGISTRY)
