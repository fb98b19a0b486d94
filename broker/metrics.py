"""Metrics of the broker. Every drop, retry, reject, duplicate and fenced frame has a counter."""

from core import metrics

_PREFIX = "candlewright_broker"

#: Whole names, so that a search for a metric's name finds it.
_NOTES = {
    "candlewright_broker_bad_frame_total": "frames refused as malformed",
    "candlewright_broker_broker_paused_total": "pauses of this process that were longer than half a lease",
    "candlewright_broker_cancel_of_unknown_total": "cancellations of requests that are unknown or finished",
    "candlewright_broker_connection_lost_total": "connections that became unreachable",
    "candlewright_broker_dispatch_undeliverable_total": "jobs that could not be delivered and were queued again",
    "candlewright_broker_duplicate_request_total": "requests read twice",
    "candlewright_broker_fenced_frame_total": "frames dropped because their connection does not hold the job",
    "candlewright_broker_final_of_running_total": "final notifications of requests that were still running here",
    "candlewright_broker_frame_dropped_total": "frames to ingestors that could not be sent",
    "candlewright_broker_job_adopted_total": "jobs taken over from an earlier run",
    "candlewright_broker_job_failed_total": "jobs that ended without a result",
    "candlewright_broker_job_rejected_total": "jobs that an ingestor rejected or lost",
    "candlewright_broker_job_retried_total": "pieces queued again",
    "candlewright_broker_job_taken_over_total": "jobs without a connection that an ingestor named again",
    "candlewright_broker_job_without_room_total": "jobs taken back because their pages found no room on the bus",
    "candlewright_broker_late_frame_total": "frames dropped because they came after their job was called complete",
    "candlewright_broker_lease_lost_total": "jobs whose ingestor fell silent",
    "candlewright_broker_piece_poisoned_total": "pieces given up after too many failures",
    "candlewright_broker_proof_unanswered_total": "requests fetched whole because no answer arrived in time",
    "candlewright_broker_realtime_refused_total": "realtime requests refused because broker.max_slots of them run",
    "candlewright_broker_record_skipped_total": "records of the bus that cannot be read",
    "candlewright_broker_ticks_put_aside_total": "frames with ticks too far ahead of our clock, which were put aside",
    "candlewright_broker_ticks_without_job_total": "frames of ticks dropped because their ticker has no job",
}

#: By what `broker.commands.Note` calls it.
NOTES = {
    name.removeprefix(f"{_PREFIX}_").removesuffix("_total"): metrics.Counter(name, text, registry=metrics.REGISTRY)
    for name, text in _NOTES.items()
}

BUS_RETRIES = metrics.Counter(f"{_PREFIX}_bus_retries_total", "repeated bus calls", registry=metrics.REGISTRY)
REFUSED = metrics.Counter(
    f"{_PREFIX}_refused_total",
    "connections, slots and frames refused, by code",
    ["code"],
    registry=metrics.REGISTRY,
)
REFUSED_KEYS = metrics.Counter(
    "candlewright_broker_refused_keys_total",
    "connections refused: they showed no key, or one that is not an ingestor's",
    registry=metrics.REGISTRY,
)
UNKNOWN_FRAMES = metrics.Counter(
    "candlewright_broker_unknown_frames_total",
    "frames dropped because the key of their connection was removed, or is not that of its name",
    registry=metrics.REGISTRY,
)
UNASKED = metrics.Counter(
    f"{_PREFIX}_proof_unasked_total",
    "requests fetched whole because no driver could say which parts are proven",
    registry=metrics.REGISTRY,
)
PROVEN_CANDLES = metrics.Counter(
    f"{_PREFIX}_proven_candles_total",
    "candles that were not fetched because the table proves them",
    registry=metrics.REGISTRY,
)
MISSED_FINALS = metrics.Counter(
    f"{_PREFIX}_missed_finals_total", "final notifications trimmed before they were read", registry=metrics.REGISTRY
)
DEAD_LETTERS = metrics.Gauge(
    "candlewright_broker_dead_letters",
    "records that a part could not process and put aside, in total over restarts",
    ["part", "topic", "reason"],
    registry=metrics.REGISTRY,
)
REFUSED_PUBLISHES = metrics.Counter(
    f"{_PREFIX}_publishes_refused_total", "results that the bus refused", registry=metrics.REGISTRY
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
