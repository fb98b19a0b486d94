"""Metrics of the broker. Every drop, retry, reject, duplicate and fenced frame has a counter."""

from core import metrics

_PREFIX = "candlewright_broker"

_NOTES = {
    "bad_frame": "frames refused as malformed",
    "broker_paused": "pauses of this process that were longer than half a lease",
    "cancel_of_unknown": "cancellations of requests that are unknown or finished",
    "connection_lost": "connections that became unreachable",
    "dispatch_undeliverable": "jobs that could not be delivered and were queued again",
    "duplicate_request": "requests read twice",
    "fenced_frame": "frames dropped because their connection does not hold the job",
    "final_of_running": "final notifications of requests that were still running here",
    "frame_dropped": "frames to ingestors that could not be sent",
    "job_adopted": "jobs taken over from an earlier run",
    "job_failed": "jobs that ended without a result",
    "job_rejected": "jobs that an ingestor did not take or lost",
    "job_retried": "pieces queued again",
    "job_taken_over": "adopted jobs that an ingestor named again",
    "late_frame": "frames dropped because they came after their job was called complete",
    "lease_lost": "jobs whose ingestor fell silent",
    "piece_poisoned": "pieces given up after too many failures",
    "record_skipped": "records of the bus that cannot be read",
    "ticks_without_job": "frames of ticks dropped because their ticker has no job",
}

NOTES = {
    what: metrics.Counter(f"{_PREFIX}_{what}_total", text, registry=metrics.REGISTRY) for what, text in _NOTES.items()
}

BUS_RETRIES = metrics.Counter(f"{_PREFIX}_bus_retries_total", "bus calls tried again", registry=metrics.REGISTRY)
REFUSED = metrics.Counter(
    f"{_PREFIX}_refused_total",
    "connections, slots and frames refused for what they ask, by code",
    ["code"],
    registry=metrics.REGISTRY,
)
MISSED_FINALS = metrics.Counter(
    f"{_PREFIX}_missed_finals_total", "final notifications trimmed before they were read", registry=metrics.REGISTRY
)
REFUSED_PUBLISHES = metrics.Counter(
    f"{_PREFIX}_publishes_refused_total", "results that the bus did not take", registry=metrics.REGISTRY
)
TRIM_FAILURES = metrics.Counter(
    f"{_PREFIX}_trim_failures_total", "topics that could not be trimmed", registry=metrics.REGISTRY
)
ENDED = metrics.Counter(
    f"{_PREFIX}_requests_ended_total", "requests ended, by status", ["status"], registry=metrics.REGISTRY
)
WRITE_SECONDS = metrics.Histogram(
    f"{_PREFIX}_bus_write_seconds",
    "time for one round of bus writes",
    registry=metrics.REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30),
)
SIZES = metrics.Gauge(
    f"{_PREFIX}_size_total",
    "requests, decided, jobs, slots, connections, queued, parked, backlog: how many there are",
    ["what"],
    registry=metrics.REGISTRY,
)
