"""Slots, jobs and connections, decided without a socket."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from core.failures import Failure, FailureCode
from ingestor.commands import Command, Connect, Count, Disconnect, Exit, Send, StartJob, StopJob
from ingestor.events import (
    CancelAsked,
    ConfigChanged,
    ConnectionLost,
    Dispatched,
    DispatchRefused,
    Event,
    Heard,
    HeartbeatCame,
    Job,
    JobAdvanced,
    JobExpects,
    JobFailed,
    JobFenced,
    JobStopped,
    JobSucceeded,
    Kind,
    ShutdownAsked,
    Started,
    StopAsked,
    Ticked,
    VenueBlocked,
    VenueReady,
)
from ingestor.state import IngestorState, SlotPlan
from tests.rounds import rounds

PLAN = SlotPlan(venues=("BINANCE", "KRAKEN"), historical=2, realtime=1)


def job(job_id: str = "j1", venue: str = "BINANCE", kind: Kind = Kind.HISTORICAL, *, request_id: str = "r1#3") -> Job:
    return Job(
        job_id=job_id,
        request_id=request_id,
        ticker=f"BTC/USDT.{venue}",
        venue=venue,
        symbol="BTC/USDT",
        kind=kind,
        period_seconds=60,
        start=0,
        end=60_000_000_000,
    )


def offers(commands: list[Command]) -> list[tuple[int, str, int]]:
    return [
        (command.connection, command.message.exchanges[0], command.message.job_type)
        for command in commands
        if isinstance(command, Send) and isinstance(command.message, ing.WorkerReady)
    ]


def completions(commands: list[Command]) -> list[tuple[str, bool, str]]:
    return [
        (command.message.job_id, command.message.success, command.message.error_message)
        for command in commands
        if isinstance(command, Send) and isinstance(command.message, ing.WorkComplete)
    ]


def beats(commands: list[Command]) -> list[tuple[int, str]]:
    return [
        (command.connection, command.message.job_id)
        for command in commands
        if isinstance(command, Send) and isinstance(command.message, ing.WorkHeartbeat)
    ]


@pytest.fixture
def state() -> IngestorState:
    """A state that is connected (1) and has offered BINANCE's slots."""
    state = IngestorState(PLAN)
    state.handle(Started(0.0))
    state.handle(VenueReady("BINANCE", 0.0))
    return state


def test_slots_are_offered_one_frame_each_when_the_venue_is_ready() -> None:
    state = IngestorState(PLAN)
    assert state.handle(Started(0.0)) == [Connect(1, "start")]
    commands = state.handle(VenueReady("BINANCE", 0.0))
    assert offers(commands) == [(1, "BINANCE", ing.HISTORICAL)] * 2 + [(1, "BINANCE", ing.REALTIME)]
    assert offers(state.handle(Ticked(1.0))) == []


def test_a_dispatch_consumes_its_slot_which_comes_back_with_the_end_of_the_job(state: IngestorState) -> None:
    assert state.handle(Dispatched(1, job(), 1.0)) == [StartJob(job())]
    assert state.offered() == {"BINANCE:historical": 1, "BINANCE:realtime": 1}
    end = cw.HistoryEnd(job_id="j1", rows=3)
    state.handle(JobAdvanced("j1", 3, 1.1))
    commands = state.handle(JobSucceeded("j1", (end,), 2.0))
    assert commands[0] == Count("succeeded")
    assert commands[1] == Send(1, end)
    assert completions(commands) == [("j1", True, "")]
    assert offers(commands) == [(1, "BINANCE", ing.HISTORICAL)]
    assert commands.index(Send(1, end)) < [
        isinstance(c, Send) and isinstance(c.message, ing.WorkComplete) for c in commands
    ].index(True)


def test_progress_is_reported_at_most_twice_a_second_and_once_more_at_the_end(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    first = state.handle(JobAdvanced("j1", 1_000, 1.1))
    assert first == [Send(1, cw.WorkProgress(job_id="j1", done_candles=1_000))]
    assert state.handle(JobAdvanced("j1", 2_000, 1.2)) == []
    assert Send(1, cw.WorkProgress(job_id="j1", done_candles=2_000)) in state.handle(JobSucceeded("j1", (), 1.3))


def test_a_failed_job_says_why_and_offers_its_slot_again(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    commands = state.handle(JobFailed("j1", Failure(FailureCode.DEPTH, "too old"), 2.0))
    assert completions(commands) == [("j1", False, "DEPTH: too old")]
    assert offers(commands) == [(1, "BINANCE", ing.HISTORICAL)]


def test_the_same_dispatch_twice_runs_once(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    assert state.handle(Dispatched(1, job(), 1.0)) == []


def test_a_snapshot_takes_a_historical_slot_and_any_other_when_there_is_none(state: IngestorState) -> None:
    for number in range(2):
        state.handle(Dispatched(1, job(f"s{number}", kind=Kind.SNAPSHOT), 1.0))
    assert state.offered() == {"BINANCE:realtime": 1}
    state.handle(Dispatched(1, job("s2", kind=Kind.SNAPSHOT), 1.0))
    assert state.offered() == {}


def test_more_dispatches_than_slots_are_rejected_without_blame(state: IngestorState) -> None:
    for number in range(3):
        state.handle(Dispatched(1, job(f"j{number}"), 1.0))
    commands = state.handle(Dispatched(1, job("j4"), 1.0))
    rejects = [c.message for c in commands if isinstance(c, Send) and isinstance(c.message, ing.WorkReject)]
    assert [reject.job_id for reject in rejects] == ["j4"]
    assert not Failure.parse(rejects[0].reason).code.counts_as_attempt


def test_an_impossible_dispatch_is_answered(state: IngestorState) -> None:
    refused = DispatchRefused(1, "j9", Failure(FailureCode.REFUSED, "period over 0"), 1.0)
    assert completions(state.handle(refused)) == [("j9", False, "REFUSED: period over 0")]


def test_heartbeats_come_every_five_seconds_while_the_job_shows_life(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 0.0))
    state.handle(JobExpects("j1", 21.0))
    heard = {
        second
        for second in range(1, 40)
        if beats(state.handle(Ticked(float(second)))) or state.handle(Heard(1, float(second)))
    }
    assert heard == {5, 10, 15, 20}


def test_a_heartbeat_of_the_broker_is_answered_for_the_jobs_that_show_life(state: IngestorState) -> None:
    state.handle(Dispatched(1, job("j1"), 0.0))
    state.handle(Dispatched(1, job("j2", request_id="r2#0"), 0.0))
    state.handle(JobExpects("j1", 2.0))
    assert beats(state.handle(HeartbeatCame(1, 1.0))) == [(1, "j1"), (1, "j2")]
    state.handle(StopAsked("j2", 1.5))
    assert beats(state.handle(HeartbeatCame(1, 2.0))) == [(1, "j1")]
    assert beats(state.handle(HeartbeatCame(1, 2.1))) == [], "a job whose task has stopped telling is not vouched for"
    assert beats(state.handle(HeartbeatCame(2, 2.0))) == []


@pytest.mark.parametrize("said", [None, CancelAsked("r1", 1.5)])
def test_a_stop_ends_the_job_with_one_answer_and_its_slot_comes_back(
    state: IngestorState, said: CancelAsked | None
) -> None:
    """Without a cancellation, a stop means a lost lease, long before this ingestor would notice it."""
    state.handle(Dispatched(1, job(), 1.0))
    stops = [*(state.handle(said) if said else []), *state.handle(StopAsked("j1", 1.5))]
    assert stops == [StopJob("j1")]
    assert state.handle(StopAsked("j1", 1.6)) == []
    commands = state.handle(JobStopped("j1", 1.7))
    assert completions(commands)[0][:2] == ("j1", False)
    assert (1 if said else 2, "BINANCE", ing.HISTORICAL) in offers(commands)
    assert (Connect(2, "lost lease") in commands) is (said is None)


def test_leases_lost_together_bring_one_new_socket(state: IngestorState) -> None:
    for number in ("j1", "j2"):
        state.handle(Dispatched(1, job(number, request_id=f"{number}#0"), 1.0))
        state.handle(StopAsked(number, 2.0))
    commands = [*state.handle(JobStopped("j1", 2.1)), *state.handle(JobStopped("j2", 2.1))]
    assert [c.connection for c in commands if isinstance(c, Connect)] == [2]


def test_fences_of_one_socket_bring_one_new_socket(state: IngestorState) -> None:
    for number in ("j1", "j2"):
        state.handle(Dispatched(1, job(number, request_id=f"{number}#0"), 1.0))
        state.handle(JobFenced(number, 2.0))
    commands = [*state.handle(StopAsked("j1", 2.1)), *state.handle(StopAsked("j2", 2.1))]
    assert [c.connection for c in commands if isinstance(c, Connect)] == [2]


@pytest.mark.parametrize("request_id", ["r1", "r1#3"])
def test_a_cancel_stops_the_pieces_of_its_request_alone(state: IngestorState, request_id: str) -> None:
    state.handle(Dispatched(1, job("j1"), 1.0))
    state.handle(Dispatched(1, job("j2", request_id="r2#1"), 1.0))
    assert state.handle(CancelAsked(request_id, 2.0)) == [StopJob("j1")]
    commands = state.handle(JobStopped("j1", 2.1))
    assert completions(commands) == [("j1", False, "CANCELLED: cancelled")]


@pytest.mark.parametrize("stop", [StopAsked("j1", 1.0), CancelAsked("r1", 1.0), CancelAsked("r1#3", 1.0)])
def test_a_stop_that_comes_before_its_job_wins(state: IngestorState, stop: StopAsked | CancelAsked) -> None:
    assert state.handle(stop) == []
    commands = state.handle(Dispatched(1, job(), 2.0))
    assert completions(commands) == [("j1", False, "CANCELLED: stopped before it began")]
    assert offers(commands) == [(1, "BINANCE", ing.HISTORICAL)]


def test_a_stop_of_an_unknown_or_finished_job_changes_nothing(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    state.handle(JobSucceeded("j1", (), 2.0))
    assert state.handle(StopAsked("j1", 3.0)) == []
    assert state.handle(CancelAsked("nobody", 3.0)) == []


def test_an_early_stop_is_forgotten_after_a_minute(state: IngestorState) -> None:
    state.handle(CancelAsked("r1", 1.0))
    assert state.handle(Dispatched(1, job(), 90.0)) == [StartJob(job())]


def test_no_slot_of_a_limited_exchange_is_offered_until_its_time_is_over(state: IngestorState) -> None:
    state.handle(VenueReady("KRAKEN", 0.0))
    state.handle(Dispatched(1, job(), 1.0))
    state.handle(Dispatched(1, job("k1", venue="KRAKEN"), 1.0))
    state.handle(VenueBlocked("BINANCE", 8.0, 1.5))
    assert state.blocked_venues(2.0) == {"BINANCE": 6.0}
    assert offers(state.handle(JobFailed("j1", Failure(FailureCode.RATE_LIMITED, "…"), 2.0))) == []
    assert offers(state.handle(JobSucceeded("k1", (), 2.0))) == [(1, "KRAKEN", ing.HISTORICAL)]
    assert offers(state.handle(Ticked(7.9))) == []
    assert offers(state.handle(Ticked(8.0))) == [(1, "BINANCE", ing.HISTORICAL)]


def test_max_concurrent_bounds_the_offered_slots() -> None:
    state = IngestorState(PLAN)
    state.handle(Started(0.0))
    state.handle(ConfigChanged(1, 0.0))
    assert len(offers(state.handle(VenueReady("BINANCE", 0.0)))) == 1
    assert state.handle(Dispatched(1, job(), 1.0)) == [StartJob(job())]
    assert len(offers(state.handle(ConfigChanged(3, 2.0)))) == 2


def test_silence_of_the_broker_means_a_new_socket_with_all_slots_and_the_running_jobs(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    state.handle(JobExpects("j1", 100.0))
    state.handle(Heard(1, 4.0))
    assert not any(isinstance(c, Connect) for c in state.handle(Ticked(18.9)))
    commands = state.handle(Ticked(19.0))
    assert commands[:2] == [Connect(2, "silence"), Disconnect(1)]
    assert beats(commands) == [(2, "j1")]
    assert offers(commands) == [(2, "BINANCE", ing.HISTORICAL), (2, "BINANCE", ing.REALTIME)]
    assert completions(state.handle(JobSucceeded("j1", (), 20.0))) == [("j1", True, "")]


def test_a_broken_connection_is_replaced_at_once(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    commands = state.handle(ConnectionLost(1, 2.0))
    assert commands[:2] == [Connect(2, "disconnected"), Disconnect(1)]
    assert beats(commands) == [(2, "j1")]
    assert state.handle(ConnectionLost(1, 2.1)) == []


def test_a_fenced_job_ends_without_a_message(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    commands = state.handle(JobFenced("j1", 2.0))
    assert commands[0] == Count("fenced")
    assert completions(commands) == []
    assert offers(commands) == [(1, "BINANCE", ing.HISTORICAL)]


def test_a_lease_lost_in_silence_opens_a_new_socket_next_to_the_old_one(state: IngestorState) -> None:
    state.handle(Dispatched(1, job("j1"), 0.0))
    state.handle(Dispatched(1, job("j2", request_id="r2#0"), 0.0))
    state.handle(Heard(1, 16.0))
    state.handle(StopAsked("j1", 16.0))
    commands = state.handle(JobStopped("j1", 16.1))
    assert Connect(2, "lost lease") in commands
    assert Disconnect(1) not in commands, "the broker knows j2 from it"
    assert {connection for connection, _, _ in offers(commands)} == {2}
    rejected = state.handle(Dispatched(1, job("j3"), 17.0))
    assert any(isinstance(c, Send) and isinstance(c.message, ing.WorkReject) and c.connection == 1 for c in rejected)
    ended = state.handle(JobSucceeded("j2", (), 18.0))
    assert [c.connection for c in ended if isinstance(c, Send) and isinstance(c.message, ing.WorkComplete)] == [1]
    assert ended.index(Disconnect(1)) > 0


def test_a_fence_after_the_stop_that_reports_it_is_a_lost_lease(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    state.handle(StopAsked("j1", 1.5))
    assert Connect(2, "lost lease") in state.handle(JobFenced("j1", 2.0))


def test_a_fence_is_a_lost_lease_when_a_stop_without_a_cancel_follows(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    state.handle(JobFenced("j1", 2.0))
    assert Connect(2, "lost lease") in state.handle(StopAsked("j1", 2.5))


def test_a_fence_by_a_cancel_keeps_the_socket(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    state.handle(JobFenced("j1", 2.0))
    assert state.handle(CancelAsked("r1#3", 2.4)) == []
    assert state.handle(StopAsked("j1", 2.5)) == []


def test_a_shutdown_gives_the_jobs_back_and_exits(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    assert state.handle(ShutdownAsked(2.0)) == [StopJob("j1")]
    assert completions(state.handle(Dispatched(1, job("j2"), 2.1)))[0][2].startswith("SHUTDOWN: ")
    commands = state.handle(JobStopped("j1", 2.2))
    assert completions(commands)[0][2].startswith("SHUTDOWN: ")
    assert offers(commands) == []
    assert commands[-1] == Exit()
    assert state.handle(ShutdownAsked(2.3)) == []


def test_a_shutdown_does_not_wait_forever(state: IngestorState) -> None:
    state.handle(Dispatched(1, job(), 1.0))
    state.handle(ShutdownAsked(2.0))
    assert state.handle(Ticked(6.9)) == []
    commands = state.handle(Ticked(7.0))
    assert completions(commands)[0][0] == "j1"
    assert commands[-1] == Exit()
    assert state.handle(JobStopped("j1", 8.0)) == []


def test_an_idle_ingestor_exits_at_once(state: IngestorState) -> None:
    assert state.handle(ShutdownAsked(2.0)) == [Exit()]


class AnyHistory(RuleBasedStateMachine):
    """After any sequence of events, slots and jobs add up, and each job has at most one answer."""

    def __init__(self) -> None:
        super().__init__()
        self.state = IngestorState(SlotPlan(venues=("A", "B"), historical=2, realtime=1))
        self.now = 0.0
        self.number = 0
        self.connection = 0
        self.open: set[int] = set()
        self.known: dict[tuple[int, str], int] = {}
        self.running: set[str] = set()
        self.answered: list[str] = []
        self.carry_out(self.state.handle(Started(0.0)))

    def carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Connect(connection, _):
                    assert connection not in self.open
                    self.open.add(connection)
                    self.connection = connection
                case Disconnect(connection):
                    self.open.remove(connection)
                case StartJob(started):
                    assert started.job_id not in self.running
                    self.running.add(started.job_id)
                case StopJob(job_id):
                    assert job_id in self.running
                case Send(connection, message):
                    assert connection in self.open
                    if isinstance(message, ing.WorkerReady):
                        key = (connection, message.exchanges[0])
                        self.known[key] = self.known.get(key, 0) + 1
                    if isinstance(message, ing.WorkComplete):
                        self.answered.append(message.job_id)

    @rule(venue=st.sampled_from("AB"))
    def venue_ready(self, venue: str) -> None:
        self.carry_out(self.state.handle(VenueReady(venue, self.now)))

    @rule(seconds=st.floats(0.1, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.state.handle(Ticked(self.now)))

    @rule()
    def broker_speaks(self) -> None:
        self.carry_out(self.state.handle(Heard(self.connection, self.now)))

    @rule(venue=st.sampled_from("AB"), kind=st.sampled_from(Kind), old=st.booleans())
    def dispatch(self, venue: str, kind: Kind, old: bool) -> None:
        connection = min(self.open) if old else self.connection
        self.number += 1
        new = job(f"j{self.number}", venue, kind, request_id=f"r{self.number}")
        key = (connection, venue)
        had_offer = self.known.get(key, 0) > 0
        if had_offer:
            self.known[key] -= 1
        before = len(self.running)
        self.carry_out(self.state.handle(Dispatched(connection, new, self.now)))
        if len(self.running) > before:
            assert had_offer

    @rule(venue=st.sampled_from("AB"), seconds=st.floats(0, 30))
    def blocked(self, venue: str, seconds: float) -> None:
        self.carry_out(self.state.handle(VenueBlocked(venue, self.now + seconds, self.now)))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(["succeeded", "failed", "fenced", "stopped", "stop asked"]))
    def job_moves(self, data: st.DataObject, how: str) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.running)))
        if how == "stop asked":
            self.carry_out(self.state.handle(StopAsked(job_id, self.now)))
            return
        self.running.discard(job_id)
        endings: dict[str, Event] = {
            "succeeded": JobSucceeded(job_id, (), self.now),
            "failed": JobFailed(job_id, Failure(FailureCode.UNKNOWN, "x"), self.now),
            "fenced": JobFenced(job_id, self.now),
            "stopped": JobStopped(job_id, self.now),
        }
        self.carry_out(self.state.handle(endings[how]))

    @rule()
    def connection_breaks(self) -> None:
        self.carry_out(self.state.handle(ConnectionLost(self.connection, self.now)))

    @invariant()
    def slots_add_up(self) -> None:
        offered = sum(self.state.offered().values())
        assert offered + len(self.state.running) <= 6
        assert set(self.state.running) == self.running

    @invariant()
    def one_answer_each(self) -> None:
        assert len(self.answered) == len(set(self.answered))

    @invariant()
    def a_socket_is_open(self) -> None:
        assert self.connection in self.open


AnyHistory.TestCase.settings = settings(max_examples=rounds(60), stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase
