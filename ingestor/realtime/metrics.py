"""Counters and gauges of the realtime side."""

from core.metrics import REGISTRY, Counter, Gauge, Histogram

_PREFIX = "candlewright_ingestor_realtime"

TRADES = Counter(f"{_PREFIX}_trades_total", "Trades published", ["venue"], registry=REGISTRY)
DUPLICATES = Counter(f"{_PREFIX}_duplicates_total", "Repeated trades", ["venue"], registry=REGISTRY)
LATE = Counter(f"{_PREFIX}_late_total", "Trades published after newer ones", ["venue"], registry=REGISTRY)
GAPS = Counter(f"{_PREFIX}_gaps_total", "Gaps that could not be repaired", ["venue"], registry=REGISTRY)
MISSING = Counter(f"{_PREFIX}_missing_trades_total", "Trades in those gaps, where known", ["venue"], registry=REGISTRY)
REPAIRS = Counter(f"{_PREFIX}_repairs_total", "Requests to REST for trades", ["venue"], registry=REGISTRY)
REPAIRED = Counter(f"{_PREFIX}_repaired_total", "Trades received through REST", ["venue"], registry=REGISTRY)
ABSENT = Counter(
    f"{_PREFIX}_absent_ids_total", "Ids that, according to the exchange, no trade has", ["venue"], registry=REGISTRY
)
RECONNECTS = Counter(f"{_PREFIX}_disconnects_total", "Connections that ended", ["venue"], registry=REGISTRY)
FROZEN = Counter(
    f"{_PREFIX}_frozen_total", "Connections given up because they were silent", ["venue"], registry=REGISTRY
)
UNWANTED = Counter(
    f"{_PREFIX}_unwanted_total", "Trades of tickers that no client requests any more", ["venue"], registry=REGISTRY
)
PUT_ASIDE = Counter(
    f"{_PREFIX}_put_aside_total",
    "Trades put aside, too far ahead of the exchange's clock",
    ["venue"],
    registry=REGISTRY,
)
BAD_ROWS = Counter(f"{_PREFIX}_bad_rows_total", "Streamed rows that were not trades", ["venue"], registry=REGISTRY)
PAUSES = Counter(f"{_PREFIX}_pauses_total", "Pauses in reading a socket", ["venue"], registry=REGISTRY)
BUS_WAITS = Counter(f"{_PREFIX}_bus_waits_total", "Publishes repeated, by cause", ["cause"], registry=REGISTRY)
SKEW = Gauge(f"{_PREFIX}_skew_seconds", "Our clock minus the time of the newest trade", ["venue"], registry=REGISTRY)
WAITING = Gauge(f"{_PREFIX}_waiting_trades", "Trades waiting for a repair", ["venue"], registry=REGISTRY)
UNPUBLISHED = Gauge(f"{_PREFIX}_unpublished_trades", "Trades waiting for the bus", ["venue"], registry=REGISTRY)
JOBS = Gauge(f"{_PREFIX}_jobs", "Tickers being streamed", ["venue"], registry=REGISTRY)
SILENCES = Counter(
    f"{_PREFIX}_silences_total",
    "Unusually long silences checked with REST, by outcome (nothing, missed, unanswered)",
    ["venue", "outcome"],
    registry=REGISTRY,
)
LAST_FRAME = Gauge(
    f"{_PREFIX}_last_frame_age_seconds",
    "Time since the last trades from the socket, or since the subscription",
    ["venue", "ticker"],
    registry=REGISTRY,
)
PUBLISH_SECONDS = Histogram(
    f"{_PREFIX}_publish_seconds",
    "Time of one publish of trades",
    registry=REGISTRY,
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1.0, 5.0),
)
SAMPLES = Counter(
    f"{_PREFIX}_sampled_bars_total",
    "One-minute bars compared with the exchange's own candle, by outcome",
    ["venue", "outcome"],
    registry=REGISTRY,
)
