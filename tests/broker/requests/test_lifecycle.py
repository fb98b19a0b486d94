"""A request ends once, whatever fails on the way."""

from itertools import count

import pytest

from broker.commands import Command, Dispatch, PublishPieceDone, PublishRequestDone, PutState
from broker.events import (
    CancelAsked,
    ClockTicked,
    Event,
    Final,
    FinalSeen,
    JobCompleted,
    JobFailed,
    Kind,
    RealtimeAccepted,
    SlotOffered,
    SnapshotAccepted,
    SnapshotPublished,
    SnapshotReceived,
    VenueLearned,
)
from broker.state import BrokerState
from candlewright.wire import candlewright_pb2 as cw
from core.failures import Failure, FailureCode
from core.settings import BrokerSettings
from tests.broker.accepted import MINUTE, SECOND, START, accepted

NOW = START + 1_000 * MINUTE


class Story:
    """A state and all its commands so far."""

    def __init__(self) -> None:
        numbers = count()
        self.state = BrokerState(BrokerSettings(max_attempts=3), lambda: f"job-{next(numbers)}", 0.0, wall_ns=NOW)
        self.commands: list[Command] = []
        self.tell(VenueLearned("TEST", 1, 0))

    def tell(self, *events: Event) -> list[Command]:
        new = [command for event in events for command in self.state.handle(event)]
        self.commands += new
        return new

    def tick(self, second: int) -> None:
        self.tell(ClockTicked(float(second), NOW + second * SECOND))

    def submit(self, request_id: str, pieces: int = 1, seconds: int = 1_000, *, offset: int = 0) -> None:
        deadline = NOW + seconds * SECOND
        self.tell(accepted(request_id, minutes=pieces * 10, deadline_ns=deadline, offset=offset))

    def offer(self, kind: Kind = Kind.HISTORICAL, connection: bytes = b"a") -> Dispatch:
        commands = self.tell(SlotOffered(connection, ("TEST",), (kind,), 0.0))
        [dispatch] = [command for command in commands if isinstance(command, Dispatch)]
        return dispatch

    def ends(self, request_id: str) -> list[PublishRequestDone]:
        done = [command for command in self.commands if isinstance(command, PublishRequestDone)]
        return [command for command in done if command.request_id == request_id]

    def closed(self, request_id: str) -> list[PutState]:
        states = [command for command in self.commands if isinstance(command, PutState)]
        return [command for command in states if command.request_id == request_id and command.state == "done"]


def finish_snapshot(story: Story, request_id: str, seconds: int) -> None:
    story.tell(
        SnapshotAccepted(
            request_id=request_id,
            ticker="A/B.TEST",
            venue="TEST",
            client_id="",
            deadline_ns=NOW + seconds * SECOND,
            offset=0,
        )
    )
    job = story.offer()
    story.tell(
        SnapshotReceived(b"a", cw.Snapshot(ticker="A/B.TEST", request_id=request_id), 0.0),
        JobCompleted(b"a", job.job_id, 0.0),
        SnapshotPublished(job.job_id),
    )
    assert len(story.closed(request_id)) == 1


def live(request_id: str) -> RealtimeAccepted:
    return RealtimeAccepted(
        request_id=request_id,
        ticker="A/B.TEST",
        venue="TEST",
        client_id="",
        include_ohlc=True,
        ohlc_period_seconds=(60,),
    )


def test_the_deadline_of_an_ended_snapshot_spares_a_realtime_request_under_its_id() -> None:
    story = Story()
    finish_snapshot(story, "again", seconds=10)
    story.tell(live("first"), live("again"), CancelAsked("first"))
    story.tick(11)
    assert "again" in story.state.requests
    story.tell(CancelAsked("again"))
    assert not story.state.requests


def test_the_deadline_of_an_ended_request_spares_the_next_one_under_its_id() -> None:
    story = Story()
    story.submit("r", seconds=10)
    story.tell(CancelAsked("r"), FinalSeen("r"))
    story.submit("r", seconds=1_000, offset=1)
    story.tick(11)
    assert "r" in story.state.requests
    story.tick(1_001)
    assert [end.status for end in story.ends("r")] == [Final.ERROR, Final.TIMEOUT]


def test_pieces_that_come_in_after_their_request_ended_change_nothing() -> None:
    story = Story()
    story.submit("r", pieces=3)
    jobs = [story.offer() for _ in range(3)]
    story.tell(CancelAsked("r"))
    for job in jobs:
        story.tell(JobCompleted(b"a", job.job_id, 1.0))
    story.tick(2_000)
    assert len(story.ends("r")) == 1
    assert not any(isinstance(command, PublishPieceDone) for command in story.commands)
    assert not story.state.jobs


@pytest.mark.parametrize("code", [FailureCode.UNKNOWN_TICKER, FailureCode.UNAVAILABLE])
def test_jobs_that_are_lost_in_one_tick_end_their_request_once(code: FailureCode) -> None:
    """One of three pieces fails permanently while the leases of the other two expire together."""
    story = Story()
    story.submit("r", pieces=3, seconds=10_000)
    first, *_ = [story.offer() for _ in range(3)]
    story.tell(JobFailed(b"a", first.job_id, Failure(code, "no"), 1.0))
    for second in range(2, 400):
        story.tick(second)
        if second % 20 == 0:
            for connection in (b"%d" % second, b"%d!" % second, b"%d?" % second):
                story.tell(SlotOffered(connection, ("TEST",), (Kind.HISTORICAL,), float(second)))
    assert len(story.ends("r")) == 1
    assert not story.state.jobs


def test_deadlines_of_ended_requests_are_not_kept() -> None:
    story = Story()
    for number in range(30_000):
        story.submit(f"r{number}", offset=number)
        story.tell(CancelAsked(f"r{number}"), FinalSeen(f"r{number}"))
        story.commands.clear()
    assert len(story.state.lifecycle.deadlines) < 11_000


def test_the_journal_is_held_at_the_oldest_request_that_has_not_ended() -> None:
    story = Story()
    assert story.state.oldest_offsets() == (None, None)
    story.tell(
        live("live"),
        SnapshotAccepted(request_id="s", ticker="A/B.TEST", venue="TEST", client_id="", deadline_ns=NOW * 2, offset=3),
    )
    assert story.state.oldest_offsets() == (3, None)
    story.submit("r4", offset=4)
    story.submit("r5", offset=5)
    assert story.state.oldest_offsets() == (3, 4)
    story.tell(CancelAsked("s"))
    assert story.state.oldest_offsets() == (4, 4)
    story.tell(CancelAsked("r5"), CancelAsked("r4"), FinalSeen("r4"))
    assert story.state.oldest_offsets() == (5, 5)
    story.submit("r6", offset=6)
    assert story.state.oldest_offsets() == (5, 5)
    story.tell(FinalSeen("r5"))
    assert story.state.oldest_offsets() == (6, 6)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, 30), (25, 25), (4, 4)],
)
def test_a_cancelled_request_counts_missing_candles_as_expected(limit: int | None, expected: int) -> None:
    story = Story()
    story.tell(accepted(minutes=30, limit=limit, deadline_ns=NOW + 1_000 * SECOND))
    story.offer()
    story.tell(CancelAsked("r"))
    [end_of_it] = story.ends("r")
    assert (end_of_it.status, end_of_it.rows, end_of_it.expected) == (Final.ERROR, 0, expected)


def test_only_requests_for_history_and_snapshots_end_the_quiet() -> None:
    story = Story()
    assert story.state.is_quiet
    story.tell(live("live"))
    assert story.state.is_quiet
    story.submit("r")
    assert not story.state.is_quiet
    story.tell(CancelAsked("r"))
    # Its final is still to come.
    assert not story.state.is_quiet
    story.tell(FinalSeen("r"))
    assert story.state.is_quiet
    story.tell(CancelAsked("live"))
    assert story.state.is_quiet
