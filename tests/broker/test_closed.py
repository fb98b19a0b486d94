"""A candle counts as closed only if that is certain; the rest is requested again, and never lost."""

from dataclasses import replace
from itertools import count

import pytest

from broker.commands import Command, Dispatch, PublishPages, PublishPieceDone, PublishRequestDone, PutState
from broker.events import (
    CancelAsked,
    Candle,
    CandlesReceived,
    ClockTicked,
    Event,
    Final,
    FinalSeen,
    HistoryEnded,
    JobCompleted,
    Kind,
    PagesPublished,
    PieceResult,
    SlotOffered,
    VenueLearned,
)
from broker.state import BrokerState
from core.settings import BrokerSettings
from tests.broker.accepted import MINUTE, SECOND, START, accepted

#: One candle per page: a piece is ten minutes.
PIECE = 10 * MINUTE


class Story:
    """A broker, a foreign ingestor, and the wall clock in seconds after START."""

    def __init__(self, at: float) -> None:
        numbers = count()
        self.began = at
        self.state = BrokerState(BrokerSettings(), lambda: f"job-{next(numbers)}", at, wall_ns=self.wall(at))
        self.at = at
        self.pieces: list[PublishPieceDone] = []
        self.ends: list[PublishRequestDone] = []
        self.jobs: list[Dispatch] = []
        self.shown: list[PutState] = []
        self.tell(VenueLearned("TEST", 1, 0))

    @staticmethod
    def wall(at: float) -> int:
        return START + int(at * SECOND)

    def tell(self, *events: Event) -> None:
        for event in events:
            for command in self.state.handle(event):
                self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Dispatch):
            self.jobs.append(command)
        elif isinstance(command, PublishPages):
            self.stored = [candle.open_time for candle in command.candles]
            self.tell(PagesPublished(command.job_id, 0, ((1, 1),)))
        elif isinstance(command, PublishPieceDone):
            self.pieces.append(command)
        elif isinstance(command, PublishRequestDone):
            self.ends.append(command)
        elif isinstance(command, PutState):
            self.shown.append(command)

    def pass_to(self, at: float) -> None:
        """No lease expires meanwhile: all clocks advance together, one second per step."""
        while self.at < at:
            self.at = min(at, self.at + 1)
            self.tell(ClockTicked(self.at, self.wall(self.at), leases_wait=True))

    def submit(self, minutes: float, start: int = START, limit: int | None = None) -> None:
        deadline = self.wall(self.at + 10_000)
        self.tell(accepted(minutes=minutes, start=start, limit=limit, deadline_ns=deadline))

    def take(self) -> Dispatch:
        """Offer a slot; returns the job that it gets."""
        known = len(self.jobs)
        self.tell(SlotOffered(b"a", ("TEST",), (Kind.HISTORICAL,), self.at))
        assert len(self.jobs) == known + 1
        return self.jobs[-1]

    def answer(self, job: Dispatch, opens: range, unfinished: range = range(0)) -> None:
        """`unfinished`: open times that the ingestor marks as such."""
        marked = ((time, time not in unfinished) for time in (*opens, *unfinished))
        candles = tuple(Candle(time, 1.0, 1.0, 1.0, 1.0, 0.7, None, None, is_complete) for time, is_complete in marked)
        none: frozenset[int] = frozenset()
        name = job.note.dispatched_id
        self.tell(
            CandlesReceived(
                connection=b"a",
                dispatched_id=name,
                candles=candles,
                period_seconds=none,
                tickers=frozenset(),
                total_records=len(candles),
                problem="",
                at=self.at,
            )
        )
        self.tell(JobCompleted(b"a", job.job_id, self.at))

    def state_result(self, job: Dispatch, result: PieceResult) -> None:
        self.tell(HistoryEnded(b"a", job.job_id, result, self.at), JobCompleted(b"a", job.job_id, self.at))


def opens(first: int, last: int) -> range:
    """Open times of the minutes from first to last (exclusive)."""
    return range(START + first * MINUTE, START + last * MINUTE, MINUTE)


def test_a_candle_that_was_open_at_the_dispatch_is_not_taken_but_requested_again() -> None:
    story = Story(119.0)
    story.submit(2)
    job = story.take()
    story.pass_to(120.1)
    story.answer(job, opens(0, 2))
    assert story.stored == list(opens(0, 1))
    assert story.ends == []
    again = story.take()
    assert again.note.part == (START + MINUTE, START + 2 * MINUTE)
    story.answer(again, opens(1, 2))
    [end] = story.ends
    assert (end.status, end.rows, end.expected, end.holes) == (Final.OK, 2, 2, ())
    assert [(piece.start, piece.end, piece.result.rows) for piece in story.pieces] == [
        (START, START + MINUTE, 1),
        (START + MINUTE, START + 2 * MINUTE, 1),
    ]


def test_a_candle_that_its_ingestor_marks_as_unfinished_is_requested_again() -> None:
    story = Story(121.0)
    story.submit(2)
    story.answer(story.take(), opens(0, 1), unfinished=opens(1, 2))
    assert (story.stored, story.ends) == (list(opens(0, 1)), [])
    again = story.take()
    assert again.note.part == (START + MINUTE, START + 2 * MINUTE)
    story.answer(again, opens(1, 2))
    [end] = story.ends
    assert (end.status, end.rows, end.expected, end.holes) == (Final.OK, 2, 2, ())


@pytest.mark.parametrize("unfinished", [opens(0, 2), opens(0, 1)])
def test_an_ingestor_that_marks_no_candle_or_one_before_others_is_judged_by_the_clock(unfinished: range) -> None:
    story = Story(121.0)
    story.submit(2)
    story.answer(story.take(), range(unfinished.stop, START + 2 * MINUTE, MINUTE), unfinished=unfinished)
    [end] = story.ends
    assert (end.status, end.rows, end.expected, end.holes) == (Final.OK, 2, 2, ())


def test_a_candle_still_open_at_completion_is_not_part_of_the_answer() -> None:
    story = Story(119.0)
    story.submit(10)
    job = story.take()
    story.pass_to(119.5)
    story.answer(job, opens(0, 2))
    [end] = story.ends
    assert (end.status, end.rows, end.expected, end.holes) == (Final.OK, 1, 1, ())
    assert end.closed_until == START + MINUTE


def test_the_state_has_the_end_of_a_range_that_reaches_past_closed_candles() -> None:
    story = Story(119.0)
    story.submit(10)
    story.answer(story.take(), opens(0, 2))
    story.tell(FinalSeen("r"))
    last = story.shown[-1]
    assert (last.state, last.done_candles, last.expected_candles) == ("done", 1, 1)
    assert last.closed_until == START + MINUTE


def test_an_unsettled_request_does_not_report_closed_candles() -> None:
    story = Story(3_600.0)
    story.submit(60)
    story.tell(CancelAsked("r"), FinalSeen("r"))
    [end] = story.ends
    assert (end.status, end.closed_until) == (Final.ERROR, 0)
    assert [state for state in story.shown if state.closed_until] == []


def test_a_running_request_shows_where_its_range_ends_for_now() -> None:
    story = Story(119.0)
    story.submit(10)
    story.take()
    story.pass_to(121.0)
    assert (story.shown[-1].state, story.shown[-1].closed_until) == ("running", START + 2 * MINUTE)


def test_a_range_in_which_nothing_has_closed_leaves_no_piece() -> None:
    story = Story(30.0)
    story.submit(10)
    story.answer(story.take(), opens(0, 1))
    [end] = story.ends
    assert (end.status, end.rows, end.expected, end.closed_until) == (Final.NOT_FOUND, 0, 0, START)
    # The history writer takes no empty range.
    assert story.pieces == []


def test_a_venue_whose_clock_is_behind_closes_later() -> None:
    story = Story(600.0)
    story.submit(5)
    story.state_result(
        story.take(),
        PieceResult(partition=0, spans=((1, 1),), rows=5, expected=5, holes=(), exchange_time=story.wall(598.0)),
    )
    story.ends.clear()
    story.pass_to(661.0)
    story.tell(accepted("s", start=START + 9 * MINUTE, minutes=2, deadline_ns=story.wall(10_000), offset=1))
    job = story.take()
    story.answer(job, opens(9, 10))
    more = story.take()
    story.answer(more, range(0))
    [end] = story.ends
    # By this machine's clock eleven minutes are over; by the venue's it is 10:59.
    assert (end.rows, end.expected) == (1, 1)


def test_a_candle_that_closes_late_is_followed_up_once_and_no_longer() -> None:
    story = Story(119.0)
    story.submit(60)
    job = story.take()
    story.pass_to(125.0)
    story.state_result(
        job, PieceResult(partition=0, spans=((1, 1),), rows=1, expected=1, holes=(), closed_until=START + MINUTE)
    )
    rest = story.take()
    assert rest.note.part == (START + MINUTE, START + 2 * MINUTE)
    story.state_result(
        rest, PieceResult(partition=0, spans=(), rows=0, expected=0, holes=(), closed_until=START + MINUTE)
    )
    [end] = story.ends
    assert (end.status, end.rows, end.expected) == (Final.OK, 1, 1)


def test_candles_before_requested_ones_are_requested_until_they_have_closed() -> None:
    story = Story(2 * PIECE / SECOND - 30)
    story.submit(30)
    first, second = story.take(), story.take()
    # The first result shows that the venue's clock is ahead of this machine's: the third piece has begun there.
    story.state_result(
        first,
        PieceResult(
            partition=0, spans=((1, 1),), rows=10, expected=10, holes=(), exchange_time=story.wall(story.at + 45)
        ),
    )
    third = story.take()
    assert third.note.part[0] == START + 2 * PIECE
    story.state_result(
        third, PieceResult(partition=0, spans=((9, 9),), rows=1, expected=1, holes=(), closed_until=START + 21 * MINUTE)
    )
    story.state_result(
        second,
        PieceResult(partition=0, spans=((2, 2),), rows=9, expected=9, holes=(), closed_until=START + 19 * MINUTE),
    )
    for _ in range(3):
        story.pass_to(story.at + 31)
        rest = story.take()
        assert rest.note.part == (START + 19 * MINUTE, START + 2 * PIECE)
        story.state_result(
            rest, PieceResult(partition=0, spans=(), rows=0, expected=0, holes=(), closed_until=START + 19 * MINUTE)
        )
        assert story.ends == []
    story.pass_to(story.at + 31)
    story.state_result(story.take(), PieceResult(partition=0, spans=((3, 3),), rows=1, expected=1, holes=()))
    [end] = story.ends
    assert (end.status, end.rows, end.expected) == (Final.OK, 21, 21)


@pytest.mark.parametrize("closed_until", [START - MINUTE, START + PIECE])
def test_a_result_that_ends_outside_of_its_range_is_refused(closed_until: int) -> None:
    story = Story(3_600.0)
    story.submit(10)
    job = story.take()
    story.state_result(job, PieceResult(partition=0, spans=(), rows=0, expected=0, holes=(), closed_until=closed_until))
    assert story.ends == [] and story.pieces == []


def test_a_piece_that_ends_early_leaves_its_rest_to_the_next_broker() -> None:
    story = Story(119.0)
    story.submit(2)
    job = story.take()
    story.pass_to(120.1)
    story.answer(job, opens(0, 2))
    [piece] = story.pieces
    assert (piece.start, piece.end) == (START, START + MINUTE)
    assert replace(piece.result, spans=()).rows == 1
