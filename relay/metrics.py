"""What the relay counts."""

from core.metrics import REGISTRY, Counter, Gauge, Histogram

MESSAGES = Counter("candlewright_relay_messages_total", "Messages of clients, by type", ["type"], registry=REGISTRY)
BAD_FRAMES = Counter("candlewright_relay_bad_frames_total", "Frames refused as malformed", ["code"], registry=REGISTRY)
SUBMISSIONS = Counter(
    "candlewright_relay_submissions_total", "Answers to submitted requests, by status", ["status"], registry=REGISTRY
)
ERRORS = Counter("candlewright_relay_errors_total", "Error messages sent to clients", ["code"], registry=REGISTRY)
DROPPED_ANSWERS = Counter(
    "candlewright_relay_dropped_answers_total",
    "Answers that were not sent: the client is gone, or reads nothing",
    ["reason"],
    registry=REGISTRY,
)
WAITING_ANSWER_BYTES = Gauge(
    "candlewright_relay_waiting_answer_bytes",
    "Bytes of answers that wait for their clients, large ones in the socket included",
    registry=REGISTRY,
)
BUS_FAILURES = Counter(
    "candlewright_relay_bus_failures_total", "Calls of the bus that failed", ["where"], registry=REGISTRY
)
FAILURES = Counter(
    "candlewright_relay_failures_total", "Unexpected failures, logged and survived", ["where"], registry=REGISTRY
)
PUBLISHED = Counter(
    "candlewright_relay_published_total", "Messages sent to topics, by kind of topic", ["kind"], registry=REGISTRY
)
REPLAYED = Counter("candlewright_relay_replayed_total", "Kept finals sent again to late subscribers", registry=REGISTRY)
OVERFLOWS = Counter(
    "candlewright_relay_subscriber_overflows_total",
    "Times that a slow subscriber's queue was found full; it then loses messages until it has read half of it",
    registry=REGISTRY,
)
REFUSED_SUBSCRIPTIONS = Counter(
    "candlewright_relay_refused_subscriptions_total", "Subscriptions and frames that were refused", registry=REGISTRY
)
REFUSED_KEYS = Counter(
    "candlewright_relay_refused_keys_total",
    "Connections refused: they showed no key, or an unknown one",
    registry=REGISTRY,
)
DROPPED_REPLAYS = Counter(
    "candlewright_relay_dropped_replays_total", "Replays not made: too many were asked for", registry=REGISTRY
)
BAD_RECORDS = Counter(
    "candlewright_relay_bad_records_total", "Records of the bus that could not be read", ["topic"], registry=REGISTRY
)
UNREAD_RECORDS = Counter(
    "candlewright_relay_unread_records_total",
    "Records of the bus trimmed before they were read",
    ["topic"],
    registry=REGISTRY,
)
FORGOTTEN_FINALS = Counter(
    "candlewright_relay_forgotten_finals_total", "Kept finals that the full index dropped", registry=REGISTRY
)
SUBSCRIBED = Counter("candlewright_relay_subscribed_total", "Subscriptions taken, repeated ones too", registry=REGISTRY)
SUBSCRIPTIONS = Gauge("candlewright_relay_subscriptions", "Topics and prefixes with subscribers", registry=REGISTRY)
INDEXED = Gauge("candlewright_relay_indexed_finals", "Finals of client topics ready for replay", registry=REGISTRY)
LIVE_TOPICS = Gauge(
    "candlewright_relay_live_topics", "Topics of ticks and bars with a realtime request of ours", registry=REGISTRY
)
UNSERVED_TOPICS = Counter(
    "candlewright_relay_unserved_topics_total",
    "Times that a subscription started nothing, by reason",
    ["reason"],
    registry=REGISTRY,
)
PASSED_OVER = Counter(
    "candlewright_relay_passed_over_total", "Live records read that have no subscriber", ["topic"], registry=REGISTRY
)
TRIGGERS = Gauge("candlewright_relay_triggers", "Registered triggers, by state", ["state"], registry=REGISTRY)
TRIGGER_ACKS = Counter(
    "candlewright_relay_trigger_acks_total", "Acknowledgements to clients, by status", ["status"], registry=REGISTRY
)
TRIGGER_BACKLOG = Gauge(
    "candlewright_relay_trigger_backlog", "Requests about triggers that wait for a check", registry=REGISTRY
)
TRIGGERS_WAITING = Gauge(
    "candlewright_relay_triggers_waiting", "Requests about triggers that wait for the pipeline", registry=REGISTRY
)
TRIGGER_CHECK_SECONDS = Histogram(
    "candlewright_relay_trigger_check_seconds", "Time to check one text", registry=REGISTRY
)
REPEATED_EVENTS = Counter(
    "candlewright_relay_repeated_trigger_events_total",
    "Trigger events sent again to subscribers that came back after a start",
    registry=REGISTRY,
)
WAITING = Gauge("candlewright_relay_waiting_reads", "OHLCRequests that wait for their final", registry=REGISTRY)
ROUND_SECONDS = Histogram(
    "candlewright_relay_round_seconds", "Time from a batch of client messages to its answers", registry=REGISTRY
)
