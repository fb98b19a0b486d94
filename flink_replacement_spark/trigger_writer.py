"""What the driver does for triggers: counts, and events into `lake.market.trigger_events`.

Exactly once: each snapshot names its query and batch and is looked for before a commit and after one of unknown
outcome.
"""

import base64
import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from pyiceberg.catalog import Catalog
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from core import metrics
from core.errors import CandlewrightError
from core.log import get_logger
from iceberg import append_or_find, is_committed, load_table
from iceberg.tables import TRIGGER_EVENTS
from protobuf.ingestor_pb2 import CEPTriggerEvent, FieldValue

__all__ = ["TriggerHealth", "TriggerWriter", "event_rows"]

log = get_logger()

_EVENTS = metrics.Counter("candlewright_spark_trigger_events_total", "Events of triggers.", registry=metrics.REGISTRY)
_STORED = metrics.Counter(
    "candlewright_spark_trigger_events_stored_total", "Events of triggers written to the table.",
    registry=metrics.REGISTRY,
)  # fmt: skip
_SUSPENDED = metrics.Counter(
    "candlewright_spark_triggers_suspended_total", "Triggers that failed and were stopped.", registry=metrics.REGISTRY
)
_INPUT = metrics.Counter(
    "candlewright_spark_trigger_input_total", "Records and rows that triggers were given.", ["kind"],
    registry=metrics.REGISTRY,
)  # fmt: skip


@dataclass
class TriggerHealth:
    """What the status page says; a problem is gone with the next batch that works.

    `stored`: events in the table; `late_rows`, `duplicates`: trades that triggers did not see.
    """

    problem: str = ""
    batches: int = 0
    stored_batches: int = 0
    records: int = 0
    events: int = 0
    stored: int = 0
    late_rows: int = 0
    duplicates: int = 0
    bad_records: int = 0
    suspended: int = 0
    last_batch_at: float = field(default_factory=time.time)


class TriggerWriter:
    """`table_lock` is the one lock for writing tables in this driver; `stopping` ends retries."""

    def __init__(self, catalog: Catalog, table_lock: threading.Lock, stopping: threading.Event) -> None:
        self.health = TriggerHealth()
        self._catalog = catalog
        self._table_lock = table_lock
        self._stopping = stopping

    def count(self, results: pa.Table) -> None:
        """After a micro-batch of triggers: rows of `trigger_rows.RESULT`."""
        health = self.health
        health.batches += 1
        health.last_batch_at = time.time()
        for row in results.to_pylist():
            name, value = row["name"], row["value"]
            if row["reason"] is not None:
                health.suspended += 1
                _SUSPENDED.inc()
                log.warning("trigger_suspended", trigger_id=name, reason=row["reason"])
            elif name == "events":
                health.events += value
                _EVENTS.inc(value)
            else:
                setattr(health, name, getattr(health, name) + value)
                _INPUT.labels(name).inc(value)

    def write(self, query_id: str, batch_id: int, values: Sequence[bytes]) -> None:
        """Serialised CEPTriggerEvents into the table, all of them or none."""
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential_jitter(multiplier=0.1, max=5.0, jitter=0.2),
            stop=stop_when_event_set(self._stopping),
            sleep=sleep_using_event(self._stopping),
            before_sleep=self._note_retry,
            reraise=True,
        )
        rows = event_rows(values)
        summary = {"candlewright.query-id": query_id, "candlewright.batch-id": str(batch_id)}
        retrying(self._append, rows, summary)
        self.health.problem = ""
        self.health.stored_batches += 1
        self.health.stored += rows.num_rows
        self.health.bad_records += len(values) - rows.num_rows
        _STORED.inc(rows.num_rows)

    def _append(self, rows: pa.Table, summary: dict[str, str]) -> None:
        if not rows.num_rows:
            return
        with self._table_lock:
            table = load_table(self._catalog, TRIGGER_EVENTS)
            if not is_committed(table, summary):
                append_or_find(table, rows, summary)

    def _note_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.health.problem = f"trigger events cannot be written: {error}"
        log.warning("trigger_events_retried", attempt=state.attempt_number, error=str(error), kind=type(error).__name__)


def event_rows(values: Sequence[bytes]) -> pa.Table:
    """Rows of `market.trigger_events`, one an event; what is no CEPTriggerEvent is left out.

    `columns`: the event's row as a JSON object, or an array of them where it has not just one. Times are ISO texts,
    bytes base64. `fired_at`: event time of its last row.
    """
    found = []
    for value in values:
        try:
            event = CEPTriggerEvent.FromString(value)
        except DecodeError:
            continue
        rows = _rows(event)
        found.append(
            {
                "trigger_id": event.trigger_id,
                "event_id": event.context.get("event_id", ""),
                "fired_at": min(event.timestamp, 2**63 - 1) // 1_000,
                "ticker": event.context.get("ticker", ""),
                "columns": json.dumps(rows[0] if len(rows) == 1 else rows),
                "context": dict(event.context),
            }
        )
    return pa.Table.from_pylist(found, schema=TRIGGER_EVENTS.arrow_schema)


def _rows(event: CEPTriggerEvent) -> list[dict[str, Any]]:
    names = event.schema.column_names
    kinds = [kind.startswith("TIMESTAMP") for kind in event.schema.column_types]
    return [
        {
            name: _plain(FieldValue.FromString(value), is_time)
            for name, is_time, value in zip(names, kinds, row.values, strict=False)
        }
        for row in event.rows
    ]


def _plain(value: FieldValue, is_time: bool) -> Any:
    member = value.WhichOneof("value")
    if member is None:
        return None
    found = getattr(value, member)
    if is_time:
        return f"{np.datetime64(min(found, 2**63 - 1), 'ns')}Z"
    if member == "bytes_val":
        return base64.b64encode(found).decode()
    if member == "double_val" and not math.isfinite(found):
        return str(found)
    return found


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) or (isinstance(error, CandlewrightError) and error.retryable)
