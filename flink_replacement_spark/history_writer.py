"""The history writer: outcomes on the bus in, exact candles, coverage rows and final notifications out.

Exactly once: rows are compared with the table and only what is new or changed is written, each snapshot carries the
query, the batch and the jobs that it holds, and is looked for before a commit and after one of unknown outcome; the
final notification is decided by the bus's registry. So any micro-batch may run again, whole or from any point.
"""

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from pyiceberg.catalog import Catalog
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from bus import Bus, Record
from bus import topics as bus_topics
from core import metrics
from core.errors import BadFrame, CandlewrightError, OffsetOutOfRange
from core.log import get_logger
from flink_replacement_spark import pages as history_pages
from flink_replacement_spark.bus_source import read_range
from flink_replacement_spark.state import OutcomeRecord, Tally, final_notification, runs, waves
from iceberg import (
    COVERAGE,
    OHLC,
    append_or_find,
    compare_candles,
    is_committed,
    load_table,
    scan_range,
    written_requests,
)
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as records

log = get_logger()

#: Keyed table on the bus: request id -> Tally, from a request's first micro-batch to its last.
TABLE_TALLIES = "history_tallies"
_TALLY_KEEP_SECONDS = 7 * 86_400
#: Rows that the driver decodes and commits at once, about 100 MB.
DRIVER_ROWS = 400_000

_BAD_RECORDS = metrics.Counter(
    "candlewright_spark_bad_records_total", "Records of the bus that could not be decoded.", registry=metrics.REGISTRY
)
_RETRIES = metrics.Counter(
    "candlewright_spark_write_retries_total", "Micro-batches tried again.", registry=metrics.REGISTRY
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
    """What needs Spark: replacing rows, and writes too large for the driver. Both raise CommitConflict."""

    def merge(self, rows: pa.Table, summary: dict[str, str]) -> None:
        """Upsert rows of `market.ohlc` by (ticker, period_seconds, open_time)."""
        ...

    def write_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        """Read, check and upsert whole pieces on the executors; faults by index of the piece."""
        ...


@dataclass
class Health:
    """What the status page says of the writer; a problem is gone with the next batch that works."""

    problem: str = ""
    batches: int = 0
    candles: int = 0
    finals: int = 0
    bad_records: int = 0
    last_bad_record: str = ""
    last_batch_at: float = field(default_factory=time.time)


class HistoryWriter:
    """`table_lock` is the one lock for writing tables in this driver; `stopping` ends retries.

    `is_distributed`: more than `driver_rows` in one go are read and written by the executors. With a local master
    these would share the driver's cores and only add the cost of moving rows.
    """

    def __init__(
        self,
        bus: Bus,
        catalog: Catalog,
        merger: Merger,
        table_lock: threading.Lock,
        stopping: threading.Event,
        keep_finals_seconds: float,
        driver_rows: int = DRIVER_ROWS,
        is_distributed: bool = False,
    ) -> None:
        self.health = Health()
        self._bus = bus
        self._catalog = catalog
        self._merger = merger
        self._table_lock = table_lock
        self._stopping = stopping
        self._keep_finals_seconds = keep_finals_seconds
        self._driver_rows = driver_rows
        self._is_distributed = is_distributed
        self._has_finished_batch = False

    def write(self, query_id: str, batch_id: int, outcomes: Sequence[OutcomeRecord]) -> None:
        """Carry out one micro-batch; when this returns, all of it is visible and said.

        What may pass (bus away, disk full, a lost commit) is tried again until it works or the driver stops.
        """
        pieces, finished = self._decode(outcomes)
        summary = {"candlewright.query-id": query_id, "candlewright.batch-id": str(batch_id)}
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential_jitter(multiplier=0.1, max=5.0, jitter=0.2),
            stop=stop_when_event_set(self._stopping),
            sleep=sleep_using_event(self._stopping),
            before_sleep=self._note_retry,
            reraise=True,
        )
        with _BATCH_SECONDS.time():
            retrying(self._carry_out, pieces, finished, summary)
        self._has_finished_batch = True
        self.health.problem = ""
        self.health.batches += 1
        self.health.last_batch_at = time.time()

    def _note_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self._has_finished_batch = False
        self.health.problem = f"history cannot be written: {error}"
        _RETRIES.inc()
        log.warning("batch_retried", attempt=state.attempt_number, error=str(error), kind=type(error).__name__)

    def _decode(self, outcomes: Sequence[OutcomeRecord]) -> tuple[list[records.PieceDone], list[records.RequestDone]]:
        pieces, finished = [], []
        for outcome in outcomes:
            try:
                message = records.HistoryOutcome.FromString(outcome.value)
            except DecodeError:
                message = records.HistoryOutcome()
            match message.WhichOneof("body"):
                case "piece":
                    pieces.append(message.piece)
                case "request":
                    finished.append(message.request)
                case _:
                    place = f"{bus_topics.HISTORY_OUTCOMES}/{outcome.partition} offset {outcome.offset}"
                    self.health.bad_records += 1
                    self.health.last_bad_record = place
                    _BAD_RECORDS.inc()
                    log.error("bad_record_skipped", place=place, size=len(outcome.value))
        return pieces, finished

    def _carry_out(
        self,
        pieces: Sequence[records.PieceDone],
        finished: Sequence[records.RequestDone],
        summary: dict[str, str],
    ) -> None:
        named = [piece.request_id for piece in pieces] + [done.request_id for done in finished]
        request_ids = list(dict.fromkeys(named))
        stored = self._bus.get(TABLE_TALLIES, request_ids)
        tallies = {name: Tally.from_bytes(content) for name, content in zip(request_ids, stored, strict=True)}
        for wave in waves(pieces, 8 * self._driver_rows if self._is_distributed else self._driver_rows):
            faults = self._write_wave(wave, summary)
            for index, piece in enumerate(wave):
                tally = tallies[piece.request_id]
                text = faults.get(index)
                tallies[piece.request_id] = (
                    tally.with_piece(piece.piece, piece.rows) if text is None else tally.with_fault(piece.piece, text)
                )
        ended = {done.request_id for done in finished}
        open_tallies = {name: tally.to_bytes() for name, tally in tallies.items() if name not in ended}
        if open_tallies:
            self._bus.put(TABLE_TALLIES, open_tallies, keep_seconds=_TALLY_KEEP_SECONDS)
        if finished:
            self._finish(finished, tallies, summary)

    # ---- candles
    def _write_wave(self, wave: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        """Faults by index of the piece; pieces without one are in the table when this returns."""
        jobs = hashlib.sha256("\n".join(piece.job_id for piece in wave).encode()).hexdigest()[:32]
        own = {**summary, "candlewright.jobs": jobs}
        if self._is_distributed and sum(piece.rows for piece in wave) > self._driver_rows:
            with self._table_lock:
                return self._merger.write_pieces(wave, own)
        tables: dict[str, pa.Table] = {}
        faults: dict[int, str] = {}
        now_us = time.time_ns() // 1_000
        for index, piece in enumerate(wave):
            try:
                tables[piece.job_id] = read_piece(self._bus, piece, now_us)
            except PieceFault as fault:
                faults[index] = str(fault)
                log.error("piece_refused", request_id=piece.request_id, job_id=piece.job_id, reason=str(fault))
        sound = [piece for piece in wave if piece.job_id in tables and piece.rows]
        with self._table_lock:
            self._upsert(sound, tables, own)
        return faults

    def _upsert(self, pieces: Sequence[records.PieceDone], rows: dict[str, pa.Table], summary: dict[str, str]) -> None:
        if not pieces:
            return
        table = load_table(self._catalog, OHLC)
        new, changed = [], []
        for run in runs(pieces):
            incoming = pa.concat_tables([rows[piece.job_id] for piece in run])
            first = run[0]
            known = scan_range(table, first.ticker, first.period_seconds, first.start_time, run[-1].end_time)
            difference = compare_candles(incoming, known)
            new.append(difference.new)
            changed.append(difference.changed)
            self._count(incoming.num_rows, difference.new.num_rows, difference.changed.num_rows)
        inserts, updates = pa.concat_tables(new), pa.concat_tables(changed)
        if inserts.num_rows + updates.num_rows == 0 or is_committed(table, summary):
            return
        if updates.num_rows:
            self._merger.merge(pa.concat_tables([inserts, updates]), summary)
        else:
            append_or_find(table, inserts, summary)

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
            with self._table_lock:
                self._cover(open_requests, finals, summary)
        for final in finals:
            self._publish(final)
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
            # This may be a repetition, and coverage is written before the final that would tell.
            known = written_requests(table, [done.request_id for done in requests])
        pairs = [(done, final) for done, final in zip(requests, finals, strict=True) if done.request_id not in known]
        if pairs:
            append_or_find(table, _coverage_rows(pairs), summary)

    def _publish(self, final: ing.HistoryReadyNotification) -> None:
        content = final.SerializeToString(deterministic=True)
        name = final.request_id
        once = self._bus.publish_once(
            bus_topics.NOTIFICATIONS,
            Record(value=content, key=name.encode()),
            registry=bus_topics.REGISTRY_FINALS,
            name=name,
            content=content,
            keep_seconds=self._keep_finals_seconds,
        )
        if once.is_first:
            status = ing.HistoryReadyNotification.NotificationStatus.Name(final.status)
            self.health.finals += 1
            _FINALS.labels(status).inc()
            log.info("request_finished", request_id=name, status=status, row_count=final.row_count)


class PieceFault(CandlewrightError):
    """A piece whose rows on the bus are not what was accepted; the text is a sentence for the client."""


def read_piece(bus: Bus, piece: records.PieceDone, updated_at_us: int) -> pa.Table:
    """The candles of exactly this piece as rows of `market.ohlc`; raises PieceFault."""
    found: list[history_pages.Page] = []
    with faults_of(piece):
        for span in piece.spans:
            for stored in read_range(bus, bus_topics.HISTORY, piece.partition, span.first_offset, span.last_offset):
                found += pages_of_job((record.value for record in stored), piece)
    return checked_candles(found, piece, updated_at_us)


def pages_of_job(values: Iterator[bytes], piece: records.PieceDone) -> Iterator[history_pages.Page]:
    for value in values:
        page = history_pages.decode_page(value)
        if page.job_id == piece.job_id:
            yield page


def checked_candles(found: Sequence[history_pages.Page], piece: records.PieceDone, updated_at_us: int) -> pa.Table:
    """Rows of the piece; raises PieceFault unless they are of its ticker and period, and as many as were accepted."""
    if any((page.ticker, page.period_seconds) != (piece.ticker, piece.period_seconds) for page in found):
        raise PieceFault(f"Piece {piece.piece} holds candles of another ticker or period.")
    rows = history_pages.candles(found, piece.start_time, piece.end_time, updated_at_us)
    if rows.num_rows != piece.rows:
        raise PieceFault(
            f"Piece {piece.piece} ({_utc(piece.start_time)} to {_utc(piece.end_time)}) was reported with {piece.rows} "
            f"candles, but {rows.num_rows} of that range are on the bus."
        )
    return rows


@contextmanager
def faults_of(piece: records.PieceDone) -> Iterator[None]:
    try:
        yield
    except OffsetOutOfRange as error:
        raise PieceFault(f"The pages of piece {piece.piece} are no longer on the bus: {error}.") from error
    except BadFrame as error:
        raise PieceFault(f"A page of piece {piece.piece} cannot be decoded: {error.text}.") from error


def _coverage_rows(
    pairs: Sequence[tuple[records.RequestDone, ing.HistoryReadyNotification]],
) -> pa.Table:
    rows = [
        {
            "request_id": done.request_id,
            "ticker": done.ticker,
            "period_seconds": done.period_seconds,
            "start": done.start_time // 1_000,
            "end": done.end_time // 1_000,
            "expected": done.expected,
            "got": final.row_count,
            "holes": [{"start": h.start_time // 1_000, "end": h.end_time // 1_000} for h in done.holes],
            "status": ing.HistoryReadyNotification.NotificationStatus.Name(final.status),
        }
        for done, final in pairs
    ]
    return pa.Table.from_pylist(rows, schema=COVERAGE.arrow_schema)


def _utc(time_ns: int) -> str:
    return f"{np.datetime64(time_ns // 1_000_000_000, 's')}Z"


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) or (isinstance(error, CandlewrightError) and error.retryable)
