"""How long anyone waits for a turn."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.commands import Dispatch
from broker.events import ClockTicked, HistoricalAccepted, Kind, SlotOffered, VenueLearned
from broker.state import BrokerState
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
