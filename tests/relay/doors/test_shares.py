"""Limits on live topics: per connection, per sender, and in total."""

from hypothesis import given
from hypothesis import strategies as st

from relay.doors.shares import TRIGGERS, Holder, Shares
from relay.settings import RelayLimits
from tests.relay.conftest import Start
from tests.relay.harness import PATIENCE_MILLISECONDS, Platform, Subscriber
from tests.relay.test_live import eventually, put_ticks, table

ONE, SAME, OTHER = Holder("a", 1, 1), Holder("a", 2, 2), Holder("b", 3, 3)


def shares(total: int = 10, sender: int = 3, connection: int = 2) -> Shares:
    limits = RelayLimits(max_live_topics=total, max_topics_of_sender=sender, max_topics_of_connection=connection)
    return Shares(limits)


def test_a_connection_and_a_sender_have_a_share_and_others_have_theirs() -> None:
    state = shares()
    assert [state.take(topic, ONE) for topic in ("x", "y", "x")] == ["", "", ""]
    assert "this connection has 2 live topics" in state.take("z", ONE)
    assert state.take("z", SAME) == ""
    assert "a has 3 live topics" in state.take("w", SAME)
    assert state.take("w", OTHER) == ""


def test_topics_of_an_ended_connection_are_given_back() -> None:
    state = shares()
    for topic in ("x", "y"):
        state.take(topic, ONE)
    state.take("x", SAME)
    assert state.ended(ONE) == ["y"]
    assert state.is_held("x")
    assert state.take("z", SAME) == ""
    state.give_back("x")
    assert not state.is_held("x")
    assert state.connections() == [SAME]


def test_triggers_have_one_share_together() -> None:
    state = shares()
    assert [bool(state.take(topic, TRIGGERS)) for topic in "wxyz"] == [False, False, False, True]
    assert state.connections() == []
    assert state.others("w") == []


@given(st.lists(st.tuples(st.sampled_from("tge"), st.sampled_from("wxyz"), st.sampled_from([ONE, SAME, OTHER]))))
def test_no_share_is_ever_passed_or_lost(steps: list[tuple[str, str, Holder]]) -> None:
    state = shares()
    held: set[tuple[str, Holder]] = set()
    for step, topic, holder in steps:
        if step == "t" and not state.take(topic, holder):
            held.add((topic, holder))
        elif step == "g":
            state.give_back(topic)
            held = {each for each in held if each[0] != topic}
        elif step == "e":
            state.ended(holder)
            held = {each for each in held if each[1] != holder}
        assert {topic for topic, _ in held} == {topic for topic in "wxyz" if state.is_held(topic)}
        for sender in "ab":
            assert sum(each.sender == sender for _, each in held) <= 3
    assert bool(state.take("new", OTHER)) == (sum(each == OTHER for _, each in held) >= 2)


# ---- over sockets
SHARED = RelayLimits(
    linger_seconds=0.0,
    grace_seconds=1.0,
    max_live_topics=4,
    max_topics_of_sender=3,
    max_topics_of_connection=2,
)


def topic(name: str) -> str:
    return f"TICKS:{name}/USDT.BINANCE"


def refused(subscriber: Subscriber) -> tuple[str, str]:
    name, error = subscriber.next()
    assert error.code == "TOO_MANY_TOPICS"
    return name, error.text


def from_address(platform: Platform, address: str, *topics: str) -> Subscriber:
    """A subscriber that connects from another address of loopback."""
    there = platform.relay.notifications_address.removeprefix("tcp://")
    subscriber = platform.subscriber()
    subscriber.socket.disconnect(platform.relay.notifications_address)
    for each in topics:
        subscriber.socket.subscribe(each)
    subscriber.socket.rcvtimeo = PATIENCE_MILLISECONDS
    subscriber.socket.connect(f"tcp://{address}:0;{there}")
    return subscriber


def test_a_client_past_its_share_is_notified_and_others_are_served(start_relay: Start) -> None:
    platform = start_relay(limits=SHARED)
    greedy = platform.subscriber(topic("A"), topic("B"))
    eventually(lambda: len(table(platform.bus)) == 2)
    greedy.socket.subscribe(topic("C"))
    name, text = refused(greedy)
    assert (name, "this connection has 2 live topics" in text) == (topic("C"), True)
    second = platform.subscriber(topic("D"))
    eventually(lambda: topic("D") in table(platform.bus))
    second.socket.subscribe(topic("E"))
    assert "127.0.0.1 has 3 live topics" in refused(second)[1]
    elsewhere = from_address(platform, "127.0.0.2", topic("F"))
    eventually(lambda: topic("F") in table(platform.bus))
    elsewhere.socket.subscribe(topic("G"))
    assert "the platform follows 4 live topics" in refused(elsewhere)[1]


def test_a_refused_client_is_served_once_there_is_room(start_relay: Start) -> None:
    platform = start_relay(limits=SHARED)
    greedy = platform.subscriber(topic("A"), topic("B"))
    eventually(lambda: len(table(platform.bus)) == 2)
    greedy.socket.subscribe(topic("C"))
    refused(greedy)
    greedy.socket.unsubscribe(topic("A"))
    eventually(lambda: set(table(platform.bus)) == {topic("B"), topic("C")})
    second = platform.subscriber(topic("D"))
    eventually(lambda: topic("D") in table(platform.bus))
    second.socket.subscribe(topic("E"))
    refused(second)
    greedy.socket.close()
    eventually(lambda: set(table(platform.bus)) == {topic("D"), topic("E")})


def test_a_connection_beyond_its_share_gets_topics_of_others(start_relay: Start) -> None:
    platform = start_relay(limits=SHARED)
    platform.subscriber(topic("X"))
    eventually(lambda: topic("X") in table(platform.bus))
    greedy = platform.subscriber(topic("A"), topic("B"))
    eventually(lambda: len(table(platform.bus)) == 3)
    greedy.socket.subscribe(topic("X"))
    assert greedy.drain() == []
    put_ticks(platform.bus, "X/USDT.BINANCE", "1")
    name, batch = greedy.next()
    assert (name, list(batch.trade_id)) == (topic("X"), ["1"])
