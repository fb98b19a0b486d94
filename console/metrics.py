"""Metrics of the part."""

from core import metrics

ANSWERS = metrics.Counter(
    "candlewright_console_answers_total", "Answers by status.", ["status"], registry=metrics.REGISTRY
)
FAILED = metrics.Counter(
    "candlewright_console_failures_total", "Calls answered with 500; the log has each.", registry=metrics.REGISTRY
)
SECONDS = metrics.Histogram(
    "candlewright_console_call_seconds",
    "Time from a checked call to the first byte of its answer.",
    ["call"],
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30),
    registry=metrics.REGISTRY,
)
STREAMS = metrics.Gauge("candlewright_console_streams", "Live connections.", registry=metrics.REGISTRY)
SLOW = metrics.Counter(
    "candlewright_console_slow_readers_total",
    "Live connections ended because they were too slow.",
    registry=metrics.REGISTRY,
)
