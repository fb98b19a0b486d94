"""Answers the broker's question which parts of a request need not be fetched, from the driver's tables.

An answer may be lost or late: the broker waits for a bounded time and then fetches everything, so nothing is stored or
repeated here.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from google.protobuf.message import DecodeError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bus import Bus, Lives, Record, StoredRecord
from bus import topics as bus_topics
from bus.dead_letters import Letter, put_aside
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import grid
from candlewright.wire.errors import BusFull, OffsetOutOfRange, RecordsLost
from core import metrics
from core.log import get_logger
from iceberg import (
    COVERAGE,
    OHLC,
    Claims,
    CoverageFiles,
    Proven,
    Stored,
    claims_of,
    load_table,
    proven_parts,
    scan_stored,
)
from protobuf import records_pb2 as records
from venues import sound

__all__ = ["Prover"]

log = get_logger()

#: The part named in dead letters.
PART = "prover"
#: Questions answered from one read of the tables.
MAX_QUESTIONS = 500
#: Up to this many open times are read at once if several questions concern them.
MAX_AHEAD = 200_000
_WAIT_SECONDS = 1.0
#: After this long (s) without questions, the broker is considered quiet.
BEACON_SECONDS = 10.0
_BEACON_INTERVAL_SECONDS = 3.0
MAX_PAUSE_SECONDS = 5.0
MAX_REST_SECONDS = 0.25

_QUESTIONS = metrics.Counter(
    "candlewright_spark_proof_questions_total",
    "Questions about what the tables prove, by outcome.",
    ["outcome"],
    registry=metrics.REGISTRY,
)
_SECONDS = metrics.Histogram(
    "candlewright_spark_proof_seconds", "Time to answer the questions of one round.", registry=metrics.REGISTRY
)
Series = tuple[str, int]


class Prover:
    """`run` returns when `stopping` is set."""

    def __init__(self, bus: Bus, catalog: Catalog, stopping: threading.Event) -> None:
        self.problem = ""
        self._bus = bus
        self._catalog = catalog
        self._stopping = stopping
        bus.create_topic(bus_topics.PROOF_QUESTIONS, 1)
        bus.create_topic(bus_topics.PROOFS, 1)
        #: Where to continue; questions from before the start have been given up.
        self._next: int | None = None
        self._lives = Lives()
        self._coverage = CoverageFiles()
        self._beacon_at = 0.0

    def run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                started = time.monotonic()
                has_answered = self.step()
                # While questions keep arriving, pause as long as a round took and answer them together, so that
                # writers, which share the interpreter, get as much time.
                pause = min(time.monotonic() - started, MAX_REST_SECONDS) if has_answered else 0.0
                self.problem = ""
            except Exception as error:  # Any other error of this thread is logged, counted and retried.
                _QUESTIONS.labels("failed").inc()
                self.problem = f"questions about stored ranges cannot be answered: {error}"
                log.warning("proof_failed", error=str(error), kind=type(error).__name__)
                pause = min(max(_WAIT_SECONDS, 2 * pause), MAX_PAUSE_SECONDS)

    def step(self) -> bool:
        """Answer the waiting questions, or wait briefly for some; returns whether any were answered."""
        if self._next is None:
            states = self._bus.state(bus_topics.PROOF_QUESTIONS)
            self._lives.start(bus_topics.PROOF_QUESTIONS, states)
            self._next = states[0].end
        if time.monotonic() >= self._beacon_at:
            self._bus.put(bus_topics.TABLE_PROVER, {bus_topics.PROVER_KEY: b""}, keep_seconds=BEACON_SECONDS)
            self._beacon_at = time.monotonic() + _BEACON_INTERVAL_SECONDS
        try:
            if not self._bus.wait({(bus_topics.PROOF_QUESTIONS, 0): self._next}, _WAIT_SECONDS, lives=self._lives):
                return False
            found = self._bus.read(
                bus_topics.PROOF_QUESTIONS, 0, self._next, max_records=MAX_QUESTIONS, lives=self._lives
            )
        except RecordsLost as error:
            self._next, self._lives = error.kept, Lives()
            return False
        except OffsetOutOfRange as error:
            # Questions trimmed before they were read are old, and no broker waits for an answer.
            self._next = error.first
            return False
        now = time.time_ns()
        questions = list(filter(None, map(self._question, found)))
        open_questions = [question for question in questions if question.deadline > now]
        _QUESTIONS.labels("late").inc(len(questions) - len(open_questions))
        if open_questions:
            with _SECONDS.time():
                self._publish(self.answers(open_questions))
        if found:
            self._next = found[-1].offset + 1
        return bool(open_questions)

    def _question(self, record: StoredRecord) -> records.ProofQuestion | None:
        try:
            question = records.ProofQuestion.FromString(record.value)
            problem = sound.problem_with_question(question)
        except DecodeError:
            problem = "not a ProofQuestion"
        if not problem:
            return question
        put_aside(self._bus, PART, [Letter.of(record, problem)])
        return None

    def _publish(self, proofs: Iterable[records.Proof]) -> None:
        answers = [Record(proof.SerializeToString(), key=proof.request_id.encode(), partition=0) for proof in proofs]
        try:
            self._bus.publish(bus_topics.PROOFS, answers)
        except BusFull as error:
            _QUESTIONS.labels("refused").inc(len(answers))
            log.warning("proofs_refused", proofs=len(answers), error=str(error))
        else:
            _QUESTIONS.labels("answered").inc(len(answers))

    # ---- proofs
    def answers(self, questions: Sequence[records.ProofQuestion]) -> list[records.Proof]:
        """One proof per question. Claims are read before rows, so that the rows of each claim are visible."""
        tickers = sorted({question.ticker for question in questions})
        coverage = self._coverage.scan(load_table(self._catalog, COVERAGE), tickers)
        table = load_table(self._catalog, OHLC)
        by_series: dict[Series, list[records.ProofQuestion]] = defaultdict(list)
        for question in questions:
            by_series[question.ticker, question.period_seconds].append(question)
        proofs = []
        for (ticker, period_seconds), own in by_series.items():
            claims = claims_of(coverage, ticker, period_seconds)
            stored = _Rows(table, ticker, period_seconds)
            if len(own) > 1 and len(claims.start):
                stored.read_ahead(own)
            proofs += [_proof(question, claims, stored) for question in own]
        return proofs


class _Rows:
    """Open times of the stored candles of one series."""

    def __init__(self, table: Table, ticker: str, period_seconds: int) -> None:
        self._scan = partial(scan_stored, table, ticker, period_seconds)
        self._most = MAX_AHEAD * period_seconds * grid.SECOND
        self._ahead: tuple[int, int, Stored] | None = None

    def read_ahead(self, questions: Sequence[records.ProofQuestion]) -> None:
        """If many questions concern a short range, read its stored rows once."""
        start = min(each.start_time for question in questions for each in question.ranges)
        end = max(each.end_time for question in questions for each in question.ranges)
        if end - start <= self._most:
            self._ahead = start, end, self._scan(start=start, end=end)

    def __call__(self, start: int, end: int) -> Stored:
        if self._ahead is None or not self._ahead[0] <= start < end <= self._ahead[1]:
            return self._scan(start=start, end=end)
        return self._ahead[2].between(start, end)


def _proof(question: records.ProofQuestion, claims: Claims, stored: _Rows) -> records.Proof:
    ranges = [(each.start_time, each.end_time) for each in question.ranges]
    limit = question.limit if question.HasField("limit") else None
    parts = proven_parts(claims, question.period_seconds, ranges, stored=stored, limit=limit)
    return records.Proof(request_id=question.request_id, ranges=map(_range, parts))


def _range(part: Proven) -> records.ProvenRange:
    holes = [cw.TimeRange(start_time=start, end_time=end) for start, end in part.holes]
    return records.ProvenRange(
        start_time=part.start, end_time=part.end, rows=part.rows, expected=part.expected, holes=holes
    )
