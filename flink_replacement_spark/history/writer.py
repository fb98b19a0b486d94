"""The history writer: outcomes on the bus in, exact candles, coverage rows and final notifications out.

Exactly once: rows are compared with the table, and only new or changed ones are written. Each snapshot carries its
query, batch and jobs, and is searched for before a commit and after one with an unknown outcome. The bus's registry
decides the final notification. So any micro-batch may run again, entirely or from any point.
"""

import hashlib
import threading
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from bus import Bus, Record
from bus import topics as bus_topics
from bus.dead_letters import Letter, put_aside
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import CandlewrightError
from core import metrics
from core.log import get_logger
from flink_replacement_spark.history.outcomes import (
    OutcomeRecord,
    Outcomes,
    Tally,
    final_notification,
    misplaced,
    runs,
    waves,
)
from flink_replacement_spark.history.pieces import read_pieces, utc
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.revisions import RevisionTable
from iceberg import (
    COVERAGE,
    OHLC,
    OHLC_REVISIONS,
    append_or_find,
    compare_candles,
    is_committed,
    load_table,
    scan_ranges,
    scan_stored,
    written_requests,
)
from protobuf import records_pb2 as records

log = get_logger()

#: The part named in dead letters.
PART = "history"
#: Keyed table on the bus: request id -> Tally, from a request's first micro-batch to its last.
TABLE_TALLIES = "history_tallies"
_TALLY_KEEP_SECONDS = 7 * 86_400
#: Rows that the driver decodes and commits at once, about 100 MB.
DRIVER_ROWS = 400_000
#: Ranges with fewer candles between them are compared with the table in one read, of at most this many candles.
_NEAR_CANDLES = 1_000
_READ_CANDLES = 400_000

_BAD_RECORDS = metrics.Counter(
    "candlewright_spark_bad_records_total", "Outcomes on the bus that are not valid.", registry=metrics.REGISTRY
)
_RETRIES = metrics.Counter(
    "candlewright_spark_write_retries_total", "Micro-batches retried.", registry=metrics.REGISTRY
)
_ROWS = metrics.Counter(
    "candlewright_spark_candles_total", "Candles of accepted pieces.", ["effect"], registry=metrics.REGISTRY
)
_FINALS = metrics.Counter(
    "candlewright_spark_finals_total", "Final notifications published.", ["status"], registry=metrics.REGISTRY
)
_BATCH_SECONDS = metrics.Histogram(
    "candlewright_spark_batch_seconds", "Time to carry out one micro-batch.", registry=metrics.REGISTRY
)


class Merger(Protocol):
    """Writes that need Spark: replacing rows, and writes too large for the driver. All raise CommitConflict."""

    def merge(self, rows: pa.Table, summary: dict[str, str]) -> None:
        """Upsert rows of `market.ohlc` by (ticker, period_seconds, open_time)."""
        ...

    def write_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        """Read, check and upsert whole pieces on the executors; faults by index of the piece."""
        ...

    def revise_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> None:
        """Append the rows of these pieces that `market.ohlc_revisions` does not have yet."""
        ...


@dataclass(kw_only=True)
class Health:
    """The writer's state for the status page; the next successful batch clears a problem."""

    problem: str = ""
    batches: int = 0
    candles: int = 0
    finals: int = 0
    bad_records: int = 0
    last_bad_record: str = ""
    last_batch_at: float = field(default_factory=time.time)


class HistoryWriter:
    """`locks`: the turns of this driver's writers; `stopping` ends retries.

    `is_distributed`: executors read and write more than `driver_rows` rows at once. With a local master, executors
    would share the driver's cores and only add the cost of moving rows.
    """

    def __init__(
        self,
        bus: Bus,
        catalog: Catalog,
        merger: Merger,
        *,
        locks: TableLocks,
        stopping: threading.Event,
        keep_finals_seconds: float,
        driver_rows: int = DRIVER_ROWS,
        is_distributed: bool = False,
    ) -> None:
        self.health = Health()
        self._bus = bus
        self._catalog = catalog
        self._merger = merger
        self._locks = locks
        self._revisions = RevisionTable(catalog, locks)
        self._stopping = stopping
        self._keep_finals_seconds = keep_finals_seconds
        self._driver_rows = driver_rows
        self._is_distributed = is_distributed
        self._has_finished_batch = False

    def write(self, query_id: str, batch_id: int, found: Sequence[OutcomeRecord]) -> None:
        """Carry out one micro-batch; on return, all of it is visible and published.

        Temporary failures (bus unreachable, disk full, a lost commit) are retried until they pass or the driver stops.
        A record that cannot be carried out is put aside, and its request ends as ERROR.
        """
        outcomes = Outcomes.of(found)
        self._count_refused(outcomes)
        summary = {"candlewright.query-id": query_id, "candlewright.batch-id": str(batch_id)}
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential_jitter(multiplier=0.1, max=5.0, jitter=0.2),
            stop=stop_when_event_set(self._stopping),
            sleep=sleep_using_event(self._stopping),
            before_sleep=self._note_retry,
            reraise=True,
        )
        try:
            with _BATCH_SECONDS.time():
                retrying(self._carry_out, outcomes, summary)
                retrying(self._say_written, found)
        except BaseException:
            self._has_finished_batch = False
            raise
        self._has_finished_batch = True
        self.health.problem = ""
        self.health.batches += 1
        self.health.last_batch_at = time.time()

    def _say_written(self, found: Sequence[OutcomeRecord]) -> None:
        """Report that these pages need not be kept; a repeated batch recognises the pieces by the tallies."""
        ends: dict[str, int] = {}
        for record in found:
            ends[str(record.partition)] = max(ends.get(str(record.partition), 0), record.offset + 1)
        self._bus.put(bus_topics.TABLE_HISTORY_WRITTEN, {p: b"%d" % end for p, end in ends.items()})

    def _note_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self._has_finished_batch = False
        self.health.problem = f"history cannot be written: {error}"
        _RETRIES.inc()
        log.warning("batch_retried", attempt=state.attempt_number, error=str(error), kind=type(error).__name__)

    def _count_refused(self, outcomes: Outcomes) -> None:
        for record, reason in outcomes.refused:
            place = f"{bus_topics.HISTORY_OUTCOMES}/{record.partition} offset {record.offset}"
            self.health.bad_records += 1
            self.health.last_bad_record = f"{place}: {reason}"
            _BAD_RECORDS.inc()

    def _carry_out(self, outcomes: Outcomes, summary: dict[str, str]) -> None:
        request_ids = outcomes.request_ids
        stored = self._bus.get(TABLE_TALLIES, request_ids)
        tallies = {name: Tally.from_bytes(content) for name, content in zip(request_ids, stored, strict=True)}
        for name, own in outcomes.faults.items():
            for number, text in own.items():
                tallies[name] = tallies[name].with_fault(number, text)
        refused = list(outcomes.refused)
        said = self._bus.recall(bus_topics.REGISTRY_FINALS, request_ids)
        over = {name for name, content in zip(request_ids, said, strict=True) if content is not None}
        pieces = [piece for piece in outcomes.pieces if not _is_written(piece, tallies, over)]
        most_rows = 8 * self._driver_rows if self._is_distributed else self._driver_rows
        fetched = [piece for piece in pieces if not piece.is_proven]
        proven = [piece for piece in pieces if piece.is_proven]
        work = [(wave, self._write_wave) for wave in waves(fetched, most_rows)]
        for wave, write in [*work, (proven, self._confirm)]:
            faults = write(wave, summary)
            for index, piece in enumerate(wave):
                tally = tallies[piece.request_id]
                fault = faults.get(index)
                tallies[piece.request_id] = (
                    tally.with_piece(piece.piece, piece.rows) if fault is None else tally.with_fault(piece.piece, fault)
                )
            refused += [(outcomes.places[wave[index].job_id], text) for index, text in faults.items()]
        put_aside(self._bus, PART, [_letter(record, reason) for record, reason in refused])
        ended = {done.request_id for done in outcomes.finished}
        open_tallies = {name: tally.to_bytes() for name, tally in tallies.items() if name not in ended}
        if open_tallies:
            self._bus.put(TABLE_TALLIES, open_tallies, keep_seconds=_TALLY_KEEP_SECONDS)
        if outcomes.finished:
            self._finish(outcomes.finished, tallies, summary)

    # ---- candles
    def _confirm(self, proven: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        """Check that proven rows still exist; returns faults by index of the piece."""
        faults: dict[int, str] = {}
        if not proven:
            return faults
        table = load_table(self._catalog, OHLC)
        index_of = {id(piece): index for index, piece in enumerate(proven)}
        for run in runs(proven, _NEAR_CANDLES, _READ_CANDLES):
            start, end = run[0].start_time, max(piece.end_time for piece in run)
            stored = scan_stored(table, run[0].ticker, run[0].period_seconds, start=start, end=end).opens
            for piece in run:
                low, high = np.searchsorted(stored, (piece.start_time, piece.end_time)).tolist()
                if (rows := high - low) >= piece.rows:
                    _ROWS.labels("proven").inc(piece.rows)
                    continue
                faults[index_of[id(piece)]] = (
                    f"Of the {piece.rows} candles from {utc(piece.start_time)} to {utc(piece.end_time)} that were "
                    f"stored before, {piece.rows - rows} have been deleted meanwhile."
                )
        return faults

    def _write_wave(self, wave: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        """Write one commit; returns faults by index of the piece. Pieces without a fault are in the table on return."""
        jobs = hashlib.sha256("\n".join(piece.job_id for piece in wave).encode()).hexdigest()[:32]
        own = {**summary, "candlewright.jobs": jobs}
        kept = self._bus.state(bus_topics.HISTORY) if self._bus.partitions(bus_topics.HISTORY) else []
        faults = {index: text for index, piece in enumerate(wave) if (text := misplaced(piece, kept))}
        placed = [index for index in range(len(wave)) if index not in faults]
        if self._is_distributed and sum(piece.rows for piece in wave) > self._driver_rows:
            with self._locks.writing(OHLC, "history"):
                found = self._merger.write_pieces([wave[index] for index in placed], self._locks.sign(own))
            sound = [wave[index] for place, index in enumerate(placed) if place not in found and wave[index].rows]
            if sound:
                with self._locks.writing(OHLC_REVISIONS, "history"):
                    self._merger.revise_pieces(sound, self._locks.sign(own))
            return faults | {placed[place]: text for place, text in found.items()}
        rows, found = read_pieces(self._bus, [wave[index] for index in placed], time.time_ns() // 1_000)
        faults |= {placed[place]: text for place, text in found.items()}
        if rows.num_rows:
            with self._locks.writing(OHLC, "history"):
                written = self._upsert([piece for index, piece in enumerate(wave) if index not in faults], rows, own)
            # If this is a repetition, the revisions may lack rows that the table has.
            self._revisions.correct(written if self._has_finished_batch else rows, own)
        return faults

    def _upsert(self, pieces: Sequence[records.PieceDone], rows: pa.Table, summary: dict[str, str]) -> pa.Table:
        """Upsert the rows; returns those that were new or changed the table."""
        table = load_table(self._catalog, OHLC)
        ranges = [
            (run[0].ticker, run[0].period_seconds, run[0].start_time, run[-1].end_time)
            for run in runs([piece for piece in pieces if piece.rows], _NEAR_CANDLES, _READ_CANDLES)
        ]
        difference = compare_candles(rows, scan_ranges(table, ranges))
        self._count(rows.num_rows, difference.new.num_rows, difference.changed.num_rows)
        written = pa.concat_tables([difference.new, difference.changed])
        if not written.num_rows or is_committed(table, summary):
            return written
        if difference.changed.num_rows:
            self._merger.merge(written, self._locks.sign(summary))
        else:
            append_or_find(table, difference.new, self._locks.sign(summary))
        return written

    def _count(self, incoming: int, new: int, changed: int) -> None:
        self.health.candles += incoming
        for effect, rows in (("new", new), ("changed", changed), ("confirmed", incoming - new - changed)):
            _ROWS.labels(effect).inc(rows)

    # ---- the end of requests
    def _finish(
        self, finished: Sequence[records.RequestDone], tallies: dict[str, Tally], summary: dict[str, str]
    ) -> None:
        by_id = {done.request_id: done for done in reversed(finished)}
        said = self._bus.recall(bus_topics.REGISTRY_FINALS, list(by_id))
        open_requests = [done for done, content in zip(by_id.values(), said, strict=True) if content is None]
        finals = [final_notification(done, tallies[done.request_id], time.time_ns()) for done in open_requests]
        if finals:
            with self._locks.writing(COVERAGE, "history"):
                self._cover(open_requests, finals, summary)
            self._publish(finals)
        self._bus.delete(TABLE_TALLIES, list(by_id))

    def _cover(
        self,
        requests: Sequence[records.RequestDone],
        finals: Sequence[ing.HistoryReadyNotification],
        summary: dict[str, str],
    ) -> None:
        table = load_table(self._catalog, COVERAGE)
        known: set[str] = set()
        if not self._has_finished_batch:
            # This may be a repetition, and coverage is written before the final that would reveal it.
            known = written_requests(table, [done.request_id for done in requests])
        # An invalid end has no range.
        pairs = [
            (done, final)
            for done, final in zip(requests, finals, strict=True)
            if done.request_id not in known and done.end_time
        ]
        if pairs:
            append_or_find(table, _coverage_rows(pairs), self._locks.sign(summary))

    def _publish(self, finals: Sequence[ing.HistoryReadyNotification]) -> None:
        contents = [final.SerializeToString(deterministic=True) for final in finals]
        are_first = self._bus.publish_new(
            bus_topics.NOTIFICATIONS,
            [
                Record(value=content, key=final.request_id.encode())
                for final, content in zip(finals, contents, strict=True)
            ],
            registry=bus_topics.REGISTRY_FINALS,
            names=[final.request_id for final in finals],
            contents=contents,
            keep_seconds=self._keep_finals_seconds,
        )
        for final, is_first in zip(finals, are_first, strict=True):
            if is_first:
                status = ing.HistoryReadyNotification.NotificationStatus.Name(final.status)
                self.health.finals += 1
                _FINALS.labels(status).inc()
                log.info("request_finished", request_id=final.request_id, status=status, row_count=final.row_count)


def _letter(record: OutcomeRecord, reason: str) -> Letter:
    return Letter(bus_topics.HISTORY_OUTCOMES, record.value, reason, partition=record.partition, offset=record.offset)


def _coverage_rows(
    pairs: Sequence[tuple[records.RequestDone, ing.HistoryReadyNotification]],
) -> pa.Table:
    rows = [
        {
            "request_id": done.request_id,
            "ticker": done.ticker,
            "period_seconds": done.period_seconds,
            # Rounded up; open times are whole seconds, so the range contains the same ones.
            "start": -(-done.start_time // 1_000),
            "end": -(-done.end_time // 1_000),
            "expected": done.expected,
            "got": final.row_count,
            "holes": [{"start": h.start_time // 1_000, "end": h.end_time // 1_000} for h in done.holes],
            "status": ing.HistoryReadyNotification.NotificationStatus.Name(final.status),
            "closed_until": done.closed_until // 1_000 if done.closed_until else None,
        }
        for done, final in pairs
    ]
    return pa.Table.from_pylist(rows, schema=COVERAGE.arrow_schema)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) or (isinstance(error, CandlewrightError) and error.retryable)


def _is_written(piece: records.PieceDone, tallies: Mapping[str, Tally], over: Container[str]) -> bool:
    """Whether an earlier run of this batch wrote the piece, whose pages may be gone since."""
    return piece.request_id in over or tallies[piece.request_id].pieces.get(piece.piece) == piece.rows
