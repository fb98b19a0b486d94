"""Counters and gauges of an ingestor."""

from core.metrics import REGISTRY, Counter, Gauge, Histogram

_PREFIX = "candlewright_ingestor"

REFUSED_HANDSHAKES = Counter(
    f"{_PREFIX}_refused_handshakes_total", "Connections that a broker refused: keys differ", registry=REGISTRY
)
REQUESTS = Counter(f"{_PREFIX}_exchange_requests_total", "Calls made to exchanges", ["venue"], registry=REGISTRY)
RETRIES = Counter(
    f"{_PREFIX}_retries_total", "Calls repeated, by the preceding error", ["venue", "error"], registry=REGISTRY
)
BAD_REPLIES = Counter(
    f"{_PREFIX}_bad_replies_total",
    "Replies without valid data: HTML, truncated or empty bodies",
    ["venue"],
    registry=REGISTRY,
)
RATE_LIMITS = Counter(
    f"{_PREFIX}_rate_limits_total", "Times that an exchange refused further calls", ["venue"], registry=REGISTRY
)
EMPTY_PAGES = Counter(
    f"{_PREFIX}_empty_pages_total", "Well-formed pages without a candle", ["venue"], registry=REGISTRY
)
UNCLOSED_ROWS = Counter(
    f"{_PREFIX}_unclosed_rows_total", "Candles omitted because they had not closed", ["venue"], registry=REGISTRY
)
LATE_ROWS = Counter(
    f"{_PREFIX}_late_rows_total", "Candles that changed in the seconds after their close", ["venue"], registry=REGISTRY
)
QUIET_SEARCHES = Counter(
    f"{_PREFIX}_quiet_searches_total",
    "Looks for a market's next candle after an empty page",
    ["result"],
    registry=REGISTRY,
)
CANDLES = Counter(f"{_PREFIX}_candles_total", "Candles published", ["venue"], registry=REGISTRY)
JOBS = Counter(f"{_PREFIX}_jobs_total", "Jobs ended, by outcome", ["outcome"], registry=REGISTRY)
REJECTS = Counter(f"{_PREFIX}_rejects_total", "Dispatches refused", registry=REGISTRY)
FENCED = Counter(f"{_PREFIX}_fenced_jobs_total", "Jobs stopped because their lease was lost", registry=REGISTRY)
RECONNECTS = Counter(f"{_PREFIX}_reconnects_total", "New sockets to the broker", ["reason"], registry=REGISTRY)
BAD_FRAMES = Counter(f"{_PREFIX}_bad_frames_total", "Frames from the broker that were not messages", registry=REGISTRY)
REFUSALS = Counter(f"{_PREFIX}_refusals_total", "Error messages from the broker", ["code"], registry=REGISTRY)
DROPPED_FRAMES = Counter(f"{_PREFIX}_dropped_frames_total", "Frames that could not be sent", registry=REGISTRY)
BUS_WAITS = Counter(f"{_PREFIX}_bus_waits_total", "Waits for the bus, by cause", ["cause"], registry=REGISTRY)
BUDGET_WAIT = Histogram(
    f"{_PREFIX}_budget_wait_seconds", "Time that calls waited for the shared budget", ["venue"], registry=REGISTRY
)
CLOCK_SKEW = Gauge(f"{_PREFIX}_clock_skew_seconds", "The exchange's clock minus ours", ["venue"], registry=REGISTRY)
CLOCK_JUMPS = Counter(
    f"{_PREFIX}_clock_jumps_total", "Looks at an exchange's clock that had to be repeated", ["venue"], registry=REGISTRY
)
RUNNING = Gauge(f"{_PREFIX}_running_jobs", "Jobs running now", registry=REGISTRY)
MARKET_LOAD_FAILURES = Counter(
    f"{_PREFIX}_market_load_failures_total",
    "Failed attempts to load a venue's markets",
    ["venue"],
    registry=REGISTRY,
)
