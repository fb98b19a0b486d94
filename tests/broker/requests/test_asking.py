"""Which client may query the driver next, and how much work one client has in progress while others wait."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.requests import asking
from broker.requests.asking import MAX_ASKED, THERE_SECONDS, WINDOW, Asking
from broker.work import HistoricalRequest, VenueFacts
from candlewright.wire.grid import SECOND

MINUTE = 60 * SECOND


def request(name: str, sender: str = "10.0.0.1", connection: str = "crowd", *, venue: str = "X") -> HistoricalRequest:
    made = HistoricalRequest(
        name,
        f"A/B.{venue}",
        venue,
        client_id=name,
        deadline_ns=0,
        offset=0,
        period_seconds=60,
        start=0,
        end=10 * MINUTE,
        limit=None,
        facts=VenueFacts(),
    )
    made.lane = (sender, connection, name)
    return made


class Stage:
    """Requests that query the driver are dispatched immediately, unless `dispatches` is False."""

    def __init__(self, *, dispatches: bool = True) -> None:
        self.open: set[str] = set()
        self.asking = Asking(lambda each: each.request_id in self.open)
        self._dispatches = dispatches

    def add(self, each: HistoricalRequest, at: float = 0.0) -> None:
        self.open.add(each.request_id)
        self.asking.add(each, at)

    def ask(self, at: float = 0.0) -> list[str]:
        names = []
        while (each := self.asking.next(at)) is not None:
            each.was_dispatched = self._dispatches
            names.append(each.request_id)
        return names

    def end(self, name: str, at: float = 0.0) -> None:
        self.open.discard(name)
        self.asking.ended(name, at)


def test_a_client_alone_asks_for_all_that_can_be_dispatched() -> None:
    stage = Stage()
    for number in range(1_000):
        stage.add(request(str(number)))
    assert len(stage.ask()) == 1_000


def test_requests_that_wait_for_dispatch_limit_further_queries() -> None:
    stage = Stage(dispatches=False)
    for number in range(MAX_ASKED + 5):
        stage.add(request(str(number)))
    assert len(stage.ask()) == MAX_ASKED
    stage.end("0")
    assert stage.ask() == [str(MAX_ASKED)]


@pytest.mark.parametrize("other", [("10.0.0.1", "one"), ("10.0.0.2", "one")], ids=["connection", "sender"])
def test_while_another_client_is_active_a_crowd_has_one_window_under_way(other: tuple[str, str]) -> None:
    stage = Stage()
    for number in range(1_000):
        stage.add(request(str(number)))
    stage.add(request("other", *other))
    asked = stage.ask()
    assert len(asked) == WINDOW + 1
    assert asked.index("other") <= 1
    stage.end("0")
    assert stage.ask() == [str(WINDOW)]
    # Its next request asks at once.
    stage.end("other")
    stage.add(request("another", *other))
    assert stage.ask() == ["another"]


def test_while_another_sender_is_active_a_crowd_on_many_connections_has_one_window() -> None:
    stage = Stage()
    for number in range(1_000):
        stage.add(request(str(number), connection=f"c{number % 100}"))
    stage.add(request("other", "10.0.0.2"))
    assert Counter(name == "other" for name in stage.ask()) == {False: WINDOW, True: 1}


def test_the_window_opens_when_the_other_client_has_gone() -> None:
    stage = Stage()
    for number in range(500):
        stage.add(request(str(number)))
    stage.add(request("other", connection="one"))
    assert len(stage.ask()) == WINDOW + 1
    stage.end("other", at=1.0)
    stage.end("0", at=THERE_SECONDS)
    assert len(stage.ask(at=THERE_SECONDS)) == 1
    assert len(stage.ask(at=1.0 + THERE_SECONDS)) == 500 - WINDOW - 1


def test_a_request_that_waits_for_its_venue_does_not_narrow_the_windows_of_others() -> None:
    stage = Stage(dispatches=False)
    stage.add(request("slow", "10.0.0.2", venue="Y"))
    assert stage.ask() == ["slow"]
    for number in range(500):
        stage.add(request(str(number)), at=THERE_SECONDS)
    assert len(stage.ask(at=THERE_SECONDS)) == MAX_ASKED


def test_without_a_driver_all_continue_in_turn_and_ended_ones_are_left_out() -> None:
    stage = Stage()
    for number in range(3):
        stage.add(request(str(number)))
        stage.add(request(f"other-{number}", connection="one"))
    stage.end("1")
    names = [each.request_id for each in stage.asking.take_all()]
    assert names == ["0", "other-0", "other-1", "2", "other-2"]
    assert not stage.asking


NAMES = st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), st.sampled_from("XY"))


@given(st.lists(st.one_of(NAMES, st.integers(0, 30), st.floats(0, 10)), max_size=60))
def test_every_request_queries_once_and_ended_requests_leave_no_state(steps: list[object]) -> None:
    """A step is a new request, the end of one, or a pause."""
    stage, names, asked, at = Stage(dispatches=False), list[str](), list[str](), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "WINDOW", 2)
        patch.setattr(asking, "MAX_ASKED", 3)
        for step in steps:
            if isinstance(step, tuple):
                names.append(str(len(names)))
                sender, connection, venue = step
                stage.add(request(names[-1], sender, connection, venue=venue), at)
            elif isinstance(step, int) and step < len(asked):
                stage.end(asked[step], at)
            elif isinstance(step, float):
                at += step
            asked += stage.ask(at)
        while stage.open & set(asked):
            stage.end(min(stage.open & set(asked)), at)
            asked += stage.ask(at)
    assert sorted(asked) == sorted(names)
    stage.ask(at + 2 * THERE_SECONDS)
    own = stage.asking
    left = (own._waiting, own._asked, own._under_way, own._of_client, own._of_sender, own._there, own._connections)
    assert not any(left)
