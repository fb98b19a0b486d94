"""Random runs with all kinds of requests under few ids, which are reused as soon as they are free."""

from collections import Counter
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.commands import Command, Dispatch, PublishMark, PublishPages, PublishRequestDone, PublishSnapshot, PutState
from broker.events import (
    CancelAsked,
    Candle,
    CandlesReceived,
    ClockTicked,
    ConnectionLost,
    Demand,
    Event,
    FinalSeen,
    HeartbeatHeard,
    HistoryEnded,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobRejected,
    Kind,
    MarksRefused,
    PagesPublished,
    PieceResult,
    PublishRefused,
    RealtimeAccepted,
    SlotOffered,
    SnapshotAccepted,
    SnapshotPublished,
    SnapshotReceived,
    VenueLearned,
)
from broker.state import BrokerState
from broker.work import HistoricalRequest, RealtimeRequest
from candlewright.wire import candlewright_pb2 as cw
from core.failures import Failure, FailureCode
from core.settings import BrokerSettings
from tests.broker.accepted import MINUTE, SECOND, START, accepted
from tests.rounds import rounds

NOW = START + 1_000_000 * MINUTE
IDS = ["a", "b", "c", "d"]
TICKERS = ["A/B.TEST", "C/D.TEST"]
CONNECTIONS = [b"1", b"2", b"3"]
ids = st.sampled_from(IDS)
tickers = st.sampled_from(TICKERS)


class Mixed(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        numbers = count()
        self.at = 0.0
        settings = BrokerSettings(lease_seconds=5, max_attempts=3)
        self.state = BrokerState(settings, lambda: f"job-{next(numbers)}", self.at, wall_ns=NOW)
        self.given: dict[str, Dispatch] = {}
        self.publishing: list[PublishPages | PublishSnapshot] = []
        self.admitted: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.told: dict[str, Demand] = {}
        self.tell(VenueLearned("TEST", 1, 0))

    def tell(self, event: Event) -> list[Command]:
        commands = self.state.handle(event)
        for command in commands:
            if isinstance(command, Dispatch):
                self.given[command.job_id] = command
            elif isinstance(command, PublishPages | PublishSnapshot):
                self.publishing.append(command)
            elif isinstance(command, PublishRequestDone) or (isinstance(command, PutState) and command.state == "done"):
                self.ended[command.request_id] += 1
            elif isinstance(command, PublishMark):
                self.told[command.ticker] = command.wants
        return commands

    def is_free(self, request_id: str) -> bool:
        return request_id not in self.state.requests and request_id not in self.state.decided

    def deadline(self, patience: float) -> int:
        return NOW + int((self.at + patience) * SECOND)

    @rule(request_id=ids, ticker=tickers, minutes=st.integers(1, 35), patience=st.sampled_from([8.0, 1e5]))
    def submit(self, request_id: str, ticker: str, minutes: int, patience: float) -> None:
        self.admitted[request_id] += self.is_free(request_id)
        self.tell(accepted(request_id, minutes=minutes, ticker=ticker, deadline_ns=self.deadline(patience)))

    @rule(request_id=ids, ticker=tickers, patience=st.sampled_from([8.0, 1e5]))
    def snapshot(self, request_id: str, ticker: str, patience: float) -> None:
        if self.is_free(request_id):
            self.admitted[request_id] += 1
            self.tell(
                SnapshotAccepted(
                    request_id=request_id,
                    ticker=ticker,
                    venue="TEST",
                    client_id="",
                    deadline_ns=self.deadline(patience),
                    offset=0,
                )
            )

    @rule(request_id=ids, ticker=tickers, period=st.sampled_from([60, 300]), stores=st.booleans())
    def subscribe(self, request_id: str, ticker: str, period: int, stores: bool) -> None:
        if self.is_free(request_id):
            self.admitted[request_id] += 1
            self.tell(
                RealtimeAccepted(
                    request_id=request_id,
                    ticker=ticker,
                    venue="TEST",
                    client_id="",
                    include_ohlc=True,
                    ohlc_period_seconds=(period,),
                    stores_ticks=stores,
                )
            )

    @rule(request_id=ids)
    def cancel(self, request_id: str) -> None:
        self.tell(CancelAsked(request_id))

    @rule()
    def see_finals(self) -> None:
        for request_id in list(self.state.decided):
            self.tell(FinalSeen(request_id))

    @rule(connection=st.sampled_from(CONNECTIONS), kinds=st.sampled_from([tuple(Kind), (Kind.HISTORICAL,)]))
    def offer(self, connection: bytes, kinds: tuple[Kind, ...]) -> None:
        self.tell(SlotOffered(connection, ("TEST",), kinds, self.at))

    @precondition(lambda self: self.given)
    @rule(data=st.data(), rows=st.sampled_from(["stated", "sent", "none"]))
    def complete(self, data: st.DataObject, rows: str) -> None:
        given = self.drawn(data)
        connection, asked = given.connection, given.request
        if rows == "stated":
            result = PieceResult(partition=0, spans=((1, 1),), rows=1, expected=1, holes=(), exchange_time=NOW)
            self.tell(HistoryEnded(connection, given.job_id, result, self.at))
        elif rows == "sent":
            candle = Candle(given.note.part[0], 1.0, 1.0, 1.0, 1.0, 1.0, None, None)
            none: frozenset[int] = frozenset()
            name = given.note.dispatched_id
            self.tell(
                CandlesReceived(
                    connection=connection,
                    dispatched_id=name,
                    candles=(candle,),
                    period_seconds=none,
                    tickers=frozenset(),
                    total_records=1,
                    problem="",
                    at=self.at,
                )
            )
            snapshot = cw.Snapshot(ticker=asked.ticker, request_id=given.note.request_id)
            self.tell(SnapshotReceived(connection, snapshot, self.at))
        self.tell(JobCompleted(connection, given.job_id, self.at))

    @precondition(lambda self: self.publishing)
    @rule(is_refused=st.booleans())
    def publish(self, is_refused: bool) -> None:
        command = self.publishing.pop(0)
        if is_refused:
            self.tell(PublishRefused(command.job_id, "full"))
        elif isinstance(command, PublishPages):
            self.tell(PagesPublished(command.job_id, 0, ((1, 1),)))
        else:
            self.tell(SnapshotPublished(command.job_id))

    @precondition(lambda self: self.given)
    @rule(data=st.data(), code=st.sampled_from(FailureCode), is_reject=st.booleans())
    def fail(self, data: st.DataObject, code: FailureCode, is_reject: bool) -> None:
        given = self.drawn(data)
        failed = JobRejected if is_reject else JobFailed
        self.tell(failed(given.connection, given.job_id, Failure(code, "no"), self.at))

    @precondition(lambda self: self.given)
    @rule(data=st.data(), is_heartbeat=st.booleans())
    def live(self, data: st.DataObject, is_heartbeat: bool) -> None:
        given = self.drawn(data)
        if is_heartbeat:
            self.tell(HeartbeatHeard(given.connection, given.job_id, self.at))
        else:
            self.tell(JobProgressed(given.connection, given.job_id, 1, self.at))

    @precondition(lambda self: self.given)
    @rule(data=st.data(), is_undelivered=st.booleans())
    def lose_connection(self, data: st.DataObject, is_undelivered: bool) -> None:
        given = self.drawn(data)
        self.tell(ConnectionLost(given.connection, given.job_id if is_undelivered else ""))

    @rule(ticker=tickers)
    def refuse_marks(self, ticker: str) -> None:
        self.tell(MarksRefused((ticker,)))

    @rule(seconds=st.sampled_from([1, 3, 9]))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.at += 1.0
            self.tell(ClockTicked(self.at, NOW + int(self.at * SECOND)))

    def drawn(self, data: st.DataObject) -> Dispatch:
        """A current job, or one of long ago."""
        return self.given[data.draw(st.sampled_from(sorted(self.given)))]

    # ---- what must hold

    @invariant()
    def every_request_ends_once(self) -> None:
        for request_id in IDS:
            is_open = request_id in self.state.requests
            assert self.ended[request_id] == self.admitted[request_id] - is_open

    @invariant()
    def every_job_is_that_of_a_piece_of_an_open_request(self) -> None:
        for job_id, job in self.state.jobs.items():
            assert job.job_id == job_id
            assert job.piece.job is job
            assert job.piece.is_live
            assert job.piece.request in self.state.requests.values()

    @invariant()
    def a_piece_that_has_no_job_waits_in_one_place_at_most(self) -> None:
        for request in self.state.requests.values():
            assert len(request.ready) == len(set(map(id, request.ready)))
            for piece in request.ready:
                assert piece.job is None

    @invariant()
    def the_pipeline_knows_what_is_wanted(self) -> None:
        for ticker in TICKERS:
            asked = [
                request
                for request in self.state.requests.values()
                if isinstance(request, RealtimeRequest) and request.ticker == ticker
            ]
            assert self.told.get(ticker, Demand()) == (asked[0].wants() if asked else Demand())
            assert all(request is asked[0] for request in asked)

    def teardown(self) -> None:
        """Nothing is kept of ended requests."""
        for request_id in IDS:
            self.tell(CancelAsked(request_id))
        self.every_request_ends_once()
        assert not self.state.requests
        assert not self.state.jobs
        assert self.state.matching.queued() == 0
        self.see_finals()
        assert not any(isinstance(request, HistoricalRequest) for request in self.state.requests.values())
        assert not self.state.decided


TestMixed = Mixed.TestCase
TestMixed.settings = settings(
    max_examples=rounds(100), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
