"""How long anyone waits for a turn."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.commands import Dispatch
from broker.events import ClockTicked, HistoricalAccepted, Kind, SlotOffered, VenueLearned
from broker.slots.fair_queue import FairQueue
from broker.state import BrokerState
from broker.work import SnapshotRequest
from core.settings import BrokerSettings

MINUTE = 60 * 1_000_000_000
START = 1_704_067_200 * 1_000_000_000
NOW = START + 1_000_000 * MINUTE


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=5))
def test_no_client_waits_longer_than_one_round_of_all_clients(pieces: list[list[int]]) -> None:
    """`pieces`: of each request of each client, how many it is cut into."""
    numbers = count()
    state = BrokerState(BrokerSettings(), lambda: f"job-{next(numbers)}", 0.0, NOW)
    state.handle(ClockTicked(0.0, NOW))
    state.handle(VenueLearned("TEST", 1, 0))
    left: dict[str, int] = {}
    for client, requests in enumerate(pieces):
        for number, size in enumerate(requests):
            name = f"{client}-{number}"
            end = START + size * 10 * MINUTE
            left[name] = size
            state.handle(
                HistoricalAccepted(
                    name, "A/B.TEST", "TEST", 60, START, end, None, f"client-{client}", NOW * 2, offset=next(numbers)
                )
            )
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


def historical(name: str, client_id: str, sender: str, connection: str, offset: int) -> HistoricalAccepted:
    return HistoricalAccepted(
        name,
        "A/B.TEST",
        "TEST",
        60,
        START,
        START + 10 * MINUTE,
        None,
        client_id,
        NOW * 2,
        offset,
        sender=sender,
        connection=connection,
    )


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
    state = BrokerState(BrokerSettings(), lambda: f"job-{next(numbers)}", 0.0, NOW)
    state.handle(ClockTicked(0.0, NOW))
    state.handle(VenueLearned("TEST", 1_000, 0))
    for number in range(500):
        sender, connection, client_id = crowd[number % len(crowd)]
        state.handle(historical(f"crowd-{number}", client_id, sender, connection, next(numbers)))
    sender, connection, client_id = one
    state.handle(historical("one", client_id, sender, connection, next(numbers)))
    served = []
    while "one" not in served:
        commands = state.handle(SlotOffered(b"a", ("TEST",), (Kind.HISTORICAL,), 0.0))
        served += [command.note.request_id for command in commands if isinstance(command, Dispatch)]
    assert len(served) <= 2


REQUESTS = st.lists(st.tuples(*[st.sampled_from("ab")] * 3, st.integers(1, 3)), max_size=12)


@given(REQUESTS, st.data())
def test_a_fair_queue_hands_out_each_piece_once_in_whatever_order_requests_leave_it(
    wanted: list[tuple[str, str, str, int]], data: st.DataObject
) -> None:
    queue = FairQueue()
    left: dict[str, int] = {}
    requests = {}
    for number, (*lane, pieces) in enumerate(wanted):
        request = SnapshotRequest(str(number), "A/B.TEST", "TEST", lane[2], 0, number)
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
