"""How long a client waits for its turn."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.commands import Dispatch
from broker.events import (
    CancelAsked,
    ClockTicked,
    Event,
    HistoricalAccepted,
    HistoryMeasured,
    Kind,
    SlotOffered,
    VenueLearned,
)
from broker.slots.fair_queue import FairQueue
from broker.state import BrokerState
from broker.work import SnapshotRequest
from core.settings import BrokerSettings
from tests.broker.accepted import MINUTE, START, accepted

NOW = START + 1_000_000 * MINUTE


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=5))
def test_no_client_waits_longer_than_one_round_of_all_clients(pieces: list[list[int]]) -> None:
    """`pieces`: for each request of each client, the number of pieces it is cut into."""
    numbers = count()
    state = BrokerState(BrokerSettings(), lambda: f"job-{next(numbers)}", 0.0, wall_ns=NOW)
    state.handle(ClockTicked(0.0, NOW))
    state.handle(VenueLearned("TEST", 1, 0))
    left: dict[str, int] = {}
    for client, requests in enumerate(pieces):
        for number, size in enumerate(requests):
            name = f"{client}-{number}"
            left[name] = size
            state.handle(accepted(name, minutes=size * 10, client_id=f"client-{client}", offset=next(numbers)))
    waited_clients = dict.fromkeys(range(len(pieces)), 0)
    waited_requests = dict.fromkeys(left, 0)
    while any(left.values()):
        commands = state.handle(SlotOffered(b"a", ("TEST",), (Kind.HISTORICAL,), 0.0))
        [dispatch] = [command for command in commands if isinstance(command, Dispatch)]
        served = dispatch.note.request_id
        waiting = {name for name, size in left.items() if size}
        active = {int(name.partition("-")[0]) for name in waiting}
        left[served] -= 1
        for client in active:
            waited_clients[client] = 0 if served.startswith(f"{client}-") else waited_clients[client] + 1
            assert waited_clients[client] < len(pieces)
        for name in waiting:
            waited_requests[name] = 0 if name == served else waited_requests[name] + 1
            assert waited_requests[name] < len(pieces) * len(pieces[int(name.partition("-")[0])])


def historical(name: str, client_id: str, sender: str, *, connection: str, offset: int) -> HistoricalAccepted:
    return accepted(name, minutes=10, client_id=client_id, offset=offset, sender=sender, connection=connection)


@pytest.mark.parametrize(
    ("crowd", "one"),
    [
        ([("10.0.0.1", "c1", "same")], ("10.0.0.1", "c2", "same")),
        ([("10.0.0.1", "c1", f"id-{number}") for number in range(50)], ("10.0.0.1", "c2", "other")),
        ([("10.0.0.1", f"c{number}", "") for number in range(50)], ("10.0.0.2", "x", "")),
        ([("alice", f"c{number}", "") for number in range(50)], ("bob", "x", "")),
    ],
    ids=["one client id for all", "many client ids", "many connections", "many connections of one key"],
)
def test_no_crowd_of_one_sender_holds_up_another(crowd: list[tuple[str, str, str]], one: tuple[str, str, str]) -> None:
    numbers = count()
    state = BrokerState(BrokerSettings(), lambda: f"job-{next(numbers)}", 0.0, wall_ns=NOW)
    state.handle(ClockTicked(0.0, NOW))
    state.handle(VenueLearned("TEST", 1_000, 0))
    for number in range(500):
        sender, connection, client_id = crowd[number % len(crowd)]
        state.handle(historical(f"crowd-{number}", client_id, sender, connection=connection, offset=next(numbers)))
    sender, connection, client_id = one
    state.handle(historical("one", client_id, sender, connection=connection, offset=next(numbers)))
    served = []
    while "one" not in served:
        commands = state.handle(SlotOffered(b"a", ("TEST",), (Kind.HISTORICAL,), 0.0))
        served += [command.note.request_id for command in commands if isinstance(command, Dispatch)]
    assert len(served) <= 2


REQUESTS = st.lists(st.tuples(*[st.sampled_from("ab")] * 3, st.integers(1, 3)), max_size=12)


@given(REQUESTS, st.data())
def test_a_fair_queue_hands_out_each_piece_once_for_any_order_of_removals(
    wanted: list[tuple[str, str, str, int]], data: st.DataObject
) -> None:
    queue = FairQueue()
    left: dict[str, int] = {}
    requests = {}
    for number, (*lane, pieces) in enumerate(wanted):
        request = SnapshotRequest(str(number), "A/B.TEST", "TEST", client_id=lane[2], deadline_ns=0, offset=number)
        request.lane = (lane[0], lane[1], lane[2])
        queue.add(request)
        queue.add(request)
        requests[request.request_id], left[request.request_id] = request, pieces
    while left:
        assert len(queue) == len(left)
        head = queue.head()
        assert head is not None
        step = data.draw(st.sampled_from(["serve", "drop", "remove"]))
        if step == "serve":
            left[head.request_id] -= 1
            queue.advance(keep=left[head.request_id] > 0)
        elif step == "drop":
            assert queue.drop_head() is head
            left[head.request_id] = 0
        else:
            gone = requests[data.draw(st.sampled_from(sorted(left)))]
            queue.remove(gone)
            left[gone.request_id] = 0
        left = {name: pieces for name, pieces in left.items() if pieces}
    assert len(queue) == 0
    assert queue.head() is None


def keeping(name: str, offset: int, pages: int) -> HistoricalAccepted:
    """A request of the platform itself, over `pages` pages of ten candles."""
    return accepted(f"keep:{name}", minutes=pages * 10, offset=offset)


@pytest.fixture
def ten_a_page() -> BrokerState:
    numbers = count()
    state = BrokerState(BrokerSettings(), lambda: f"job-{next(numbers)}", 0.0, wall_ns=NOW)
    state.handle(ClockTicked(0.0, NOW))
    state.handle(VenueLearned("TEST", 10, 0))
    return state


def served(state: BrokerState, *events: Event) -> list[tuple[str, int]]:
    """The request and the number of candles of what is dispatched."""
    found = [each for each in state.handle_all(events) if isinstance(each, Dispatch)]
    return [(each.note.request_id, (each.note.part[1] - each.note.part[0]) // MINUTE) for each in found]


SLOT = SlotOffered(b"a", ("TEST",), (Kind.HISTORICAL,), 0.0)


def test_clients_requests_go_ahead_of_background_requests(ten_a_page: BrokerState) -> None:
    ten_a_page.handle_all([keeping("a", 0, 5), historical("person", "c", "10.0.0.1", connection="x", offset=1)])
    assert served(ten_a_page, SLOT) == [("person", 10)]
    assert served(ten_a_page, SLOT) == [("keep:a", 10)]


def test_background_requests_leave_a_slot_free_and_take_one_page_at_a_time(ten_a_page: BrokerState) -> None:
    ten_a_page.handle(keeping("a", 0, 9))
    assert served(ten_a_page, SLOT, SLOT, SLOT) == [("keep:a", 10)] * 2
    assert served(ten_a_page, historical("person", "c", "10.0.0.1", connection="x", offset=1)) == [("person", 10)]


def test_a_single_slot_is_shared_with_background_requests(ten_a_page: BrokerState) -> None:
    ten_a_page.handle(keeping("a", 0, 2))
    assert served(ten_a_page, SLOT) == [("keep:a", 10)]
    ten_a_page.handle_all([CancelAsked("keep:a"), keeping("b", 1, 2)])
    assert served(ten_a_page, SLOT) == [("keep:b", 10)]


def test_no_room_is_kept_for_a_background_request() -> None:
    numbers = count()
    state = BrokerState(
        BrokerSettings(), lambda: f"job-{next(numbers)}", 0.0, wall_ns=NOW, history_partitions=1, history_bytes=2_000
    )
    state.handle_all([ClockTicked(0.0, NOW), VenueLearned("TEST", 10, 0), keeping("a", 0, 9)])
    assert served(state, SLOT, SLOT, SLOT) == [("keep:a", 10)]
    state.handle(HistoryMeasured(1_900, {}, {}, 100.0))
    assert state.room.waiting is None
    assert not state.room.is_kept
