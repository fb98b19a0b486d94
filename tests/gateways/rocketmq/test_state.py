from hypothesis import given, settings
from hypothesis import strategies as st

from bus.messaging import Claim
from gateways.rocketmq import handles
from gateways.rocketmq.state import (
    Client,
    assigned,
    check_delay,
    conflicting,
    max_attempts,
    message_group_partition,
    nack_delay,
    producers,
)

names = st.text(alphabet="abcdef", min_size=1, max_size=3)


def member(id: str, tag: str = "*", **options: object) -> Client:
    return Client(id, "g", True, subscriptions={"t": (0, tag)}, **options)  # type: ignore[arg-type]


@settings(max_examples=30)
@given(st.sets(names, min_size=1, max_size=9), st.integers(1, 12))
def test_in_order_every_partition_has_exactly_one_reader(ids: set[str], partitions: int) -> None:
    clients = [member(id, is_fifo=True) for id in ids]
    found = [assigned(clients, "g", "t", id, partitions) for id in sorted(ids)]
    assert [partition for part in found for partition in part] == list(range(partitions))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_without_order_or_broadcasting_everybody_reads_everything() -> None:
    assert assigned([member("a"), member("b")], "g", "t", "a", 3) == [0, 1, 2]
    broadcasting = [member(id, is_fifo=True, is_broadcasting=True) for id in "ab"]
    assert assigned(broadcasting, "g", "t", "a", 3) == [0, 1, 2]
    assert assigned([member("a", is_fifo=True)], "g", "other", "a", 3) == [0, 1, 2]


def test_members_with_another_filter_are_found() -> None:
    clients = [member("a", "x"), member("b", "y"), Client("p", "g", False)]
    assert conflicting(clients, member("c", "x")) == ["t"]
    assert conflicting(clients[:1], member("c", "x")) == []
    assert conflicting(clients, member("b", "x")) == []


def test_attempts_and_producers_are_those_of_the_group() -> None:
    clients = [
        member("a", max_attempts=3),
        member("b", max_attempts=5),
        Client("q", "g", False),
        Client("p", "g", False),
    ]
    assert max_attempts(clients, "g") == 5
    assert max_attempts(clients, "other") is None
    assert producers(clients, "g") == ["p", "q"]


def test_the_last_delay_holds_for_all_further_attempts() -> None:
    assert [nack_delay((1.0, 2.0), attempt) for attempt in (0, 1, 2, 3, 99)] == [1.0, 1.0, 2.0, 2.0, 2.0]
    assert nack_delay((), 1) == 0.0


def test_senders_are_asked_ever_less_often() -> None:
    assert [check_delay(6.0, asked) for asked in range(6)] == [6.0, 12.0, 24.0, 48.0, 60.0, 60.0]


def test_message_groups_go_where_stock_producers_put_them() -> None:
    # String.hashCode of Java: 65, 96354, 596902581 and 1772899 (two units of one character).
    assert [message_group_partition(group, 1 << 20) for group in ("A", "abc")] == [65, 96354]
    assert message_group_partition("order-1234567", 7) == 596902581 % 7
    assert message_group_partition("\U0001f600", 1 << 20) == 1772899 % (1 << 20)


def test_a_client_is_read_as_it_was_written() -> None:
    client = member("a", "x || y", is_fifo=True, max_attempts=4, policy=2)
    assert Client.from_bytes(client.to_bytes()) == client


@settings(max_examples=30)
@given(names, st.integers(0, 99), st.integers(0, 1 << 50), names, st.integers(1, 1 << 30), st.integers(0, 1 << 45))
def test_a_handle_is_read_as_it_was_written(
    topic: str, partition: int, offset: int, group: str, attempt: int, until: int
) -> None:
    claim = Claim(topic, group, partition, offset, attempt)
    assert handles.parse(handles.text_of(claim, until)) == claim
