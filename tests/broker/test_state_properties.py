"""Random runs of the state machine, with crashes of the broker at any point between its decisions and its writes."""

from collections import Counter, defaultdict
from itertools import count, pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.commands import AskProof, Command, Dispatch, LookUpVenue, PublishPieceDone, PublishRequestDone, Revoke
from broker.events import (
    AcceptedPiece,
    CancelAsked,
    ClockTicked,
    ConnectionLost,
    Event,
    Final,
    FinalSeen,
    HeartbeatHeard,
    HistoricalAccepted,
    HistoryEnded,
    HistoryMeasured,
    JobCompleted,
    JobFailed,
    JobRejected,
    Kind,
    LeaseFound,
    LeaseNote,
    PieceResult,
    ProofFound,
    ProvenRange,
    SlotOffered,
    VenueLearned,
)
from broker.state import BrokerState
from broker.work import HistoricalRequest
from core.failures import Failure, FailureCode
from core.settings import BrokerSettings
from tests.rounds import rounds

MINUTE = 60 * 1_000_000_000
START = 1_704_067_200 * 1_000_000_000
NOW = START + 1_000_000 * MINUTE
#: One candle per page: a piece is ten minutes.
PIECE = 10 * MINUTE
SETTINGS = BrokerSettings(lease_seconds=5, max_attempts=3, max_slots=1_000)
CONNECTIONS = [b"a", b"b", b"c"]
FAILURES = [
    FailureCode.UNAVAILABLE,
    FailureCode.BAD_REPLY,
    FailureCode.RATE_LIMITED,
    FailureCode.SHUTDOWN,
    FailureCode.UNKNOWN_TICKER,
    FailureCode.DEPTH,
]


class Run(RuleBasedStateMachine):
    """The world around one broker: its journal, the leases on the bus, and ingestors that may do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self.log: list[Event] = []
        self.outcomes: list[PublishPieceDone | PublishRequestDone] = []
        self.leases: dict[str, LeaseNote] = {}
        self.finals: set[str] = set()
        #: Dispatches that reached an ingestor: job id -> (connection, command).
        self.given: dict[str, tuple[bytes, Dispatch]] = {}
        self.claimed: set[str] = set()
        self.unwritten_leases: list[Command] = []
        self.unwritten_results: list[Command] = []
        self.offered: Counter[bytes] = Counter()
        self.dispatched: Counter[bytes] = Counter()
        self.banned: dict[tuple[str, int, int], set[bytes]] = defaultdict(set)
        self.tries: Counter[tuple[str, int, int]] = Counter()
        self.has_prover = False
        self.questions: list[AskProof] = []
        self.job_numbers = count()
        self.request_numbers = count()
        self.state = self.new_state()

    def new_state(self) -> BrokerState:
        return BrokerState(SETTINGS, lambda: f"job-{next(self.job_numbers)}", self.at, wall_ns=self.wall_ns)

    @property
    def wall_ns(self) -> int:
        return NOW + int(self.at * 1e9)

    # ---- carrying out

    def tell(self, event: Event) -> None:
        for command in self.state.handle(event):
            if isinstance(command, AskProof):
                self.questions.append(command)
            elif isinstance(command, LookUpVenue):
                self.tell(VenueLearned(command.venue, 1, 0))
            elif isinstance(command, PublishPieceDone | PublishRequestDone) or (
                isinstance(command, Revoke) and command.is_finished
            ):
                self.unwritten_results.append(command)
            elif isinstance(command, Revoke):
                self.unwritten_leases.append(command)
            elif isinstance(command, Dispatch):
                self.dispatched[command.connection] += 1
                piece = (command.note.request_id, *command.note.part)
                assert command.connection not in self.banned[piece], "a piece went back to a banned connection"
                self.tries[piece] += 1
                self.unwritten_leases.append(command)

    def write_leases(self) -> None:
        revoked = {command.job_id for command in self.unwritten_leases if isinstance(command, Revoke)}
        for job_id in revoked:
            self.leases.pop(job_id, None)
        for command in self.unwritten_leases:
            if isinstance(command, Dispatch):
                if command.job_id not in revoked:
                    self.leases[command.job_id] = command.note
                self.given[command.job_id] = (command.connection, command)
        self.unwritten_leases = []

    def write_results(self) -> None:
        for command in self.unwritten_results:
            if isinstance(command, PublishPieceDone | PublishRequestDone):
                self.outcomes.append(command)
            if isinstance(command, PublishPieceDone | Revoke):
                self.leases.pop(command.job_id, None)
        self.unwritten_results = []

    # ---- rules

    @initialize()
    def begin(self) -> None:
        self.tell(ClockTicked(self.at, self.wall_ns))
        self.driver(is_there=True)

    @rule(
        minutes=st.integers(1, 45),
        offset=st.integers(0, 15),
        client=st.sampled_from(["x", "y", ""]),
        limit=st.one_of(st.none(), st.integers(1, 20)),
        patience=st.sampled_from([20.0, 1e5, 1e5]),
    )
    def submit(self, minutes: int, offset: int, client: str, limit: int | None, patience: float) -> None:
        start = START + offset * MINUTE
        event = HistoricalAccepted(
            request_id=f"r{next(self.request_numbers)}",
            ticker="BTC/USDT.TEST",
            venue="TEST",
            period_seconds=60,
            start=start,
            end=start + minutes * MINUTE,
            limit=limit,
            client_id=client,
            deadline_ns=self.wall_ns + int(patience * 1e9),
            offset=len(self.log),
        )
        self.log.append(event)
        self.tell(event)

    @rule(is_there=st.booleans())
    def driver(self, is_there: bool) -> None:
        self.has_prover = is_there
        self.tell(HistoryMeasured(0, {}, {}, self.at, is_there))

    @precondition(lambda self: self.questions)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """May be late, repeated, and after a crash."""
        asked = data.draw(st.sampled_from(self.questions[::-1]))
        parts = []
        for start, end in asked.ranges:
            length = (end - start) // MINUTE
            low, high = sorted(data.draw(st.tuples(st.integers(0, length), st.integers(0, length))))
            if low < high:
                missing = data.draw(st.integers(0, high - low))
                part = (start + low * MINUTE, start + high * MINUTE)
                holes = ((part[0], part[0] + missing * MINUTE),) if missing else ()
                parts.append(ProvenRange(*part, high - low - missing, high - low, holes))
        self.tell(ProofFound(asked.request_id, tuple(parts)))

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        names = [event.request_id for event in self.log if isinstance(event, HistoricalAccepted)]
        event = CancelAsked(data.draw(st.sampled_from(names)))
        self.log.append(event)
        self.tell(event)

    @rule(
        connection=st.sampled_from(CONNECTIONS),
        kinds=st.sampled_from([(Kind.HISTORICAL,), (Kind.REALTIME,), (Kind.HISTORICAL, Kind.REALTIME)]),
        venues=st.sampled_from([("TEST",), ("OTHER",), ("OTHER", "TEST")]),
    )
    def offer(self, connection: bytes, kinds: tuple[Kind, ...], venues: tuple[str, ...]) -> None:
        self.offered[connection] += 1
        self.tell(SlotOffered(connection, venues, kinds, self.at))

    @precondition(lambda self: self.given)
    @rule(data=st.data(), is_stranger=st.booleans(), rows=st.booleans(), closed=st.none() | st.integers(0, 9))
    def complete(self, data: st.DataObject, is_stranger: bool, rows: bool, closed: int | None) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.given)))
        self.finish_job(job_id, b"stranger" if is_stranger else self.given[job_id][0], rows=rows, closed=closed)

    def finish_job(self, job_id: str, connection: bytes, *, rows: bool, closed: int | None = None) -> None:
        """`closed`: how many candles of the range have closed, if it has more."""
        dispatch = self.given[job_id][1]
        (start, end), limit = dispatch.note.part, dispatch.limit
        expected = (end - start) // MINUTE
        closed_until = 0
        if closed is not None and closed < min(expected, limit or expected):
            expected = closed
            closed_until = start + closed * MINUTE
        if limit is not None:
            expected = min(expected, limit)
        holes = () if rows or not expected else ((start, start + expected * MINUTE),)
        got = expected if rows else 0
        spans = ((1, 1),) if got else ()
        result = PieceResult(
            partition=0,
            spans=spans,
            rows=got,
            expected=expected,
            holes=holes,
            exchange_time=self.wall_ns,
            closed_until=closed_until,
        )
        job = self.state.jobs.get(job_id)
        if job is not None and job.connection in (None, connection):
            self.claimed.add(job_id)
        self.tell(HistoryEnded(connection, job_id, result, self.at))
        self.tell(JobCompleted(connection, job_id, self.at))

    @precondition(lambda self: self.given)
    @rule(data=st.data(), code=st.sampled_from(FAILURES))
    def fail(self, data: st.DataObject, code: FailureCode) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.given)))
        self.tell(JobFailed(self.given[job_id][0], job_id, Failure(code, "no"), self.at))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.given)))
        connection, command = self.given[job_id]
        job = self.state.jobs.get(job_id)
        if job is not None and job.connection == connection:
            self.banned[command.note.request_id, *command.note.part].add(connection)
        self.tell(JobRejected(connection, job_id, Failure(FailureCode.UNKNOWN, "not mine"), self.at))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.given)))
        self.tell(HeartbeatHeard(self.given[job_id][0], job_id, self.at))

    @rule(connection=st.sampled_from(CONNECTIONS))
    def lose_connection(self, connection: bytes) -> None:
        self.tell(ConnectionLost(connection))

    @rule(seconds=st.sampled_from([1, 6]))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step(1.0)

    def step(self, seconds: float) -> None:
        for job in self.state.jobs.values():
            if job.lease_until <= self.at + seconds and job.connection is not None and not job.is_publishing:
                piece = job.piece
                self.banned[piece.request.request_id, piece.start, piece.end].add(job.connection)
        self.at += seconds
        self.tell(ClockTicked(self.at, self.wall_ns))

    @rule()
    def reach_bus_with_leases(self) -> None:
        self.write_leases()

    @rule()
    def reach_bus_with_results(self) -> None:
        self.write_results()

    @precondition(lambda self: self.outcomes)
    @rule(data=st.data())
    def see_final(self, data: st.DataObject) -> None:
        ended = [outcome.request_id for outcome in self.outcomes if isinstance(outcome, PublishRequestDone)]
        if ended:
            name = data.draw(st.sampled_from(ended))
            self.finals.add(name)
            self.tell(FinalSeen(name))

    @rule()
    def crash_and_start_again(self) -> None:
        """Unwritten changes are lost; the new run knows its journal and the leases."""
        self.unwritten_leases, self.unwritten_results = [], []
        self.banned.clear()
        self.offered.clear()
        self.dispatched.clear()
        self.state = self.new_state()
        self.tell(HistoryMeasured(0, {}, {}, self.at, self.has_prover))
        pieces: dict[str, list[AcceptedPiece]] = defaultdict(list)
        ended = {outcome.request_id for outcome in self.outcomes if isinstance(outcome, PublishRequestDone)}
        for outcome in self.outcomes:
            if isinstance(outcome, PublishPieceDone):
                result = outcome.result
                pieces[outcome.request_id].append(
                    AcceptedPiece(
                        outcome.number, outcome.start, outcome.end, result.rows, result.expected, result.holes
                    )
                )
        for offset, event in enumerate(self.log):
            if isinstance(event, HistoricalAccepted):
                name = event.request_id
                fields = {field: getattr(event, field) for field in event.__dataclass_fields__}
                fields |= {"offset": offset, "accepted": tuple(pieces[name]), "is_decided": name in ended}
                event = HistoricalAccepted(**fields)
            self.tell(event)
        for name in sorted(self.finals):
            self.tell(FinalSeen(name))
        for job_id, note in list(self.leases.items()):
            self.tell(LeaseFound(job_id, note, self.at))
        self.tell(ClockTicked(self.at, self.wall_ns))

    # ---- what must hold

    @invariant()
    def no_request_ends_twice(self) -> None:
        ends = Counter(done.request_id for done in self.all_outcomes() if isinstance(done, PublishRequestDone))
        assert not ends or max(ends.values()) == 1

    @invariant()
    def no_piece_is_accepted_twice(self) -> None:
        ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for done in self.all_outcomes():
            if isinstance(done, PublishPieceDone):
                ranges[done.request_id].append((done.start, done.end))
        for mine in ranges.values():
            mine.sort()
            assert all(first[1] <= second[0] for first, second in pairwise(mine))

    @invariant()
    def nothing_is_accepted_that_its_holder_did_not_complete(self) -> None:
        for done in self.all_outcomes():
            if isinstance(done, PublishPieceDone):
                assert done.is_proven or done.job_id in self.claimed

    @invariant()
    def no_slot_gets_two_jobs(self) -> None:
        for connection, jobs in self.dispatched.items():
            assert jobs <= self.offered[connection]
        assert self.state.slots.total == len(list(self.state.slots.waiting()))

    @invariant()
    def no_piece_has_two_jobs(self) -> None:
        held = [(job.piece.request.request_id, job.piece.start) for job in self.state.jobs.values()]
        assert len(held) == len(set(held))
        for job in self.state.jobs.values():
            assert job.piece.job is job

    @invariant()
    def no_fitting_slot_and_piece_wait_for_each_other(self) -> None:
        free = [
            slot.connection
            for slot in self.state.slots.waiting()
            if ("TEST", Kind.HISTORICAL) in slot.offer.keys and not self.state.slots.peers[slot.connection].is_suspect
        ]
        for request in self.state.requests.values():
            for piece in request.ready:
                if piece.is_live:
                    assert set(free) <= piece.banned
            if free and isinstance(request, HistoricalRequest):
                assert request.outstanding or not request.has_more(self.wall_ns)

    def all_outcomes(self) -> list[PublishPieceDone | PublishRequestDone]:
        unwritten = [
            command for command in self.unwritten_results if isinstance(command, PublishPieceDone | PublishRequestDone)
        ]
        return self.outcomes + unwritten

    def teardown(self) -> None:
        """Sound ingestors connect: then every accepted request ends, and successful ones are covered without a gap."""
        helpers = [b"helper-%d" % number for number in range(8)]
        for _ in range(200):
            self.write_leases()
            self.write_results()
            for helper in helpers:
                self.offer(helper, (Kind.HISTORICAL,), ("TEST",))
            self.write_leases()
            for job_id, (connection, _) in sorted(self.given.items()):
                if connection in helpers and job_id in self.state.jobs:
                    self.finish_job(job_id, connection, rows=True)
            if not self.state.requests:
                break
            self.wait(5)
        self.write_results()
        accepted = [event for event in self.log if isinstance(event, HistoricalAccepted)]
        ends = {done.request_id: done for done in self.outcomes if isinstance(done, PublishRequestDone)}
        assert {event.request_id for event in accepted} == set(ends)
        self.no_request_ends_twice()
        self.no_piece_is_accepted_twice()
        for event in accepted:
            done = ends[event.request_id]
            mine = [
                piece
                for piece in self.outcomes
                if isinstance(piece, PublishPieceDone) and piece.request_id == event.request_id
            ]
            assert done.rows == sum(piece.result.rows for piece in mine)
            if event.limit is not None:
                assert done.rows <= event.limit
            elif done.status is Final.OK or (done.status is Final.NOT_FOUND and not done.error_message):
                assert sum(piece.end - piece.start for piece in mine) == (done.closed_until or event.end) - event.start


TestRun = Run.TestCase
TestRun.settings = settings(
    max_examples=rounds(150), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
