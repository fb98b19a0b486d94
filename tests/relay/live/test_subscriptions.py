"""Which realtime requests live topics need, without a bus."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import ingestor_pb2 as ing
from relay.live.subscriptions import Subscriptions
from relay.settings import RelayLimits
from relay.topics import LiveTopic, live_topic

NAMES = ["TICKS:BTC/USDT.BINANCE", "OHLC:BTC/USDT.BINANCE:60", "OHLC:BTC/USDT.BINANCE:3600"]
LIMITS = RelayLimits(linger_seconds=1.0, grace_seconds=10.0, unserved_retry_seconds=5.0, max_live_topics=3)


def topic(name: str) -> LiveTopic:
    found = live_topic(name.encode())
    assert found is not None
    return found


def new_state() -> Subscriptions:
    numbers = count(1)
    state = Subscriptions(LIMITS, lambda: str(next(numbers)))
    state.adopt(({}, {}), 0.0)
    return state


def start_all(state: Subscriptions, at: float) -> list[str]:
    starts = state.to_start(at)
    state.started(starts)
    return [start.request_id for start in starts]


def test_the_request_asks_for_the_data_of_its_topic() -> None:
    state = new_state()
    for name in NAMES[:2]:
        state.subscribed(topic(name))
    ticks, bars = (start.request for start in state.to_start(0.0))
    kind = ing.DataRequest.REALTIME_TICKS
    assert (ticks.type, ticks.ticker, ticks.request_id) == (kind, "BTC/USDT.BINANCE", f"subscription:{NAMES[0]}:1")
    assert ticks.realtime == ing.RealtimeParams(include_ticks=True)
    assert bars.realtime == ing.RealtimeParams(include_ohlc=True, ohlc_period_seconds=[60])


def test_a_topic_has_one_request_however_often_it_is_subscribed() -> None:
    state = new_state()
    for _ in range(3):
        assert state.subscribed(topic(NAMES[0]))
        start_all(state, 0.0)
    assert start_all(state, 1.0) == []
    state.last_left(NAMES[0], 5.0)
    assert state.to_cancel(5.9) == {}
    assert state.to_cancel(6.0) == {NAMES[0]: f"subscription:{NAMES[0]}:1"}


def test_a_subscriber_that_returns_in_time_keeps_the_job() -> None:
    state = new_state()
    state.subscribed(topic(NAMES[0]))
    [first] = start_all(state, 0.0)
    state.last_left(NAMES[0], 5.0)
    state.subscribed(topic(NAMES[0]))
    assert start_all(state, 5.5) == [first]
    assert state.to_cancel(100.0) == {}


def test_a_subscriber_that_returns_too_late_gets_a_new_request() -> None:
    state = new_state()
    state.subscribed(topic(NAMES[0]))
    [first] = start_all(state, 0.0)
    state.last_left(NAMES[0], 5.0)
    state.cancelled(state.to_cancel(6.0))
    state.subscribed(topic(NAMES[0]))
    [second] = start_all(state, 6.1)
    assert second != first


def test_requests_of_an_earlier_run_continue_or_end_after_the_grace() -> None:
    state = new_state()
    state.adopt(({NAMES[0]: "a", NAMES[1]: "b"}, {}), 100.0)
    state.subscribed(topic(NAMES[0]))
    assert start_all(state, 101.0) == ["a"]
    assert state.to_cancel(109.9) == {}
    assert state.to_cancel(110.0) == {NAMES[1]: "b"}


def test_an_id_whose_cancellation_was_begun_is_not_used_again() -> None:
    state = new_state()
    state.adopt(({}, {NAMES[0]: "old"}), 100.0)
    state.subscribed(topic(NAMES[0]))
    assert state.to_start(100.0) == []
    state.cancelled(state.to_cancel(100.0))
    [fresh] = start_all(state, 100.0)
    assert fresh.startswith(f"subscription:{NAMES[0]}:")


def test_a_topic_that_cannot_be_served_is_retried_later() -> None:
    state = new_state()
    state.subscribed(topic(NAMES[0]))
    state.refused(topic(NAMES[0]), 1.0)
    assert state.to_start(5.9) == []
    assert len(state.to_start(6.0)) == 1
    state.last_left(NAMES[0], 7.0)
    assert (state.to_start(20.0), state.to_cancel(20.0)) == ([], {})


def test_something_is_due_until_all_is_started_and_cancelled() -> None:
    state = new_state()
    assert not state.has_due
    state.subscribed(topic(NAMES[0]))
    assert state.has_due
    start_all(state, 1.0)
    assert not state.has_due
    state.last_left(NAMES[0], 2.0)
    assert state.has_due
    state.cancelled(state.to_cancel(1_000.0))
    assert not state.has_due


def test_too_many_topics_are_refused() -> None:
    state = new_state()
    assert all(state.subscribed(topic(name)) for name in NAMES)
    assert not state.subscribed(topic("TICKS:ETH/USDT.BINANCE"))
    assert state.subscribed(topic(NAMES[0]))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["subscribe", "leave", "act", "fail_start", "fail_cancel", "restart"]), st.sampled_from(NAMES)
    ),
    max_size=60,
)


@given(STEPS)
def test_after_any_run_exactly_the_wanted_topics_have_a_request_at_the_broker(steps: list[tuple[str, str]]) -> None:
    """The table and the broker survive; the relay may die between writing to the one and to the other."""
    numbers = count(1)
    running: dict[str, str] = {}
    leaving: dict[str, str] = {}
    asked: set[str] = set()
    at_broker: set[str] = set()
    wanted: set[str] = set()
    at = 0.0

    def fresh_state() -> Subscriptions:
        state = Subscriptions(LIMITS, lambda: str(next(numbers)))
        for name in sorted(wanted):
            state.subscribed(topic(name))
        state.adopt((running, leaving), at)
        return state

    def cancel(state: Subscriptions, *, dies: bool) -> bool:
        due = state.to_cancel(at)
        for name, request_id in due.items():
            leaving[name] = request_id
            running.pop(name, None)
            at_broker.discard(request_id)
        if due and dies:
            return True
        for name in due:
            leaving.pop(name)
        state.cancelled(due)
        return False

    def start(state: Subscriptions, *, dies: bool) -> bool:
        starts = state.to_start(at)
        for one in starts:
            assert one.topic.name not in leaving, "the id of a request that is leaving would be lost"
            running[one.topic.name] = one.request_id
        if starts and dies:
            return True
        for one in starts:
            if one.request_id not in asked:
                asked.add(one.request_id)
                at_broker.add(one.request_id)
        state.started(starts)
        return False

    state = fresh_state()
    for step, name in steps:
        at += 0.7
        if step == "subscribe":
            wanted.add(name)
            state.subscribed(topic(name))
        elif step == "leave":
            wanted.discard(name)
            state.last_left(name, at)
        elif step == "restart" or cancel(state, dies=step == "fail_cancel") or start(state, dies=step == "fail_start"):
            state = fresh_state()
    for _ in range(3):
        at += 20.0
        cancel(state, dies=False)
        start(state, dies=False)
    names = sorted(request_id.removeprefix("subscription:").rpartition(":")[0] for request_id in at_broker)
    assert names == sorted(wanted)
    assert (sorted(running), leaving) == (sorted(wanted), {})
