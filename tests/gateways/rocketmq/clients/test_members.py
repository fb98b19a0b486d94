from hypothesis import given, settings
from hypothesis import strategies as st

from gateways.rocketmq.clients.members import Client, assigned, conflicting, max_attempts, producers
from tests.rounds import rounds

names = st.text(alphabet="abcdef", min_size=1, max_size=3)


def member(id: str, tag: str = "*", **options: object) -> Client:
    return Client(client_id=id, group="g", is_consumer=True, subscriptions={"t": (0, tag)}, **options)  # type: ignore[arg-type]


@settings(max_examples=rounds(30))
@given(st.sets(names, min_size=1, max_size=9), st.integers(1, 12))
def test_in_order_every_partition_has_exactly_one_reader(ids: set[str], partitions: int) -> None:
    clients = [member(id, is_fifo=True) for id in ids]
    found = [assigned(clients, "g", "t", client_id=id, partitions=partitions) for id in sorted(ids)]
    assert [partition for part in found for partition in part] == list(range(partitions))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_without_order_or_broadcasting_every_member_reads_everything() -> None:
    assert assigned([member("a"), member("b")], "g", "t", client_id="a", partitions=3) == [0, 1, 2]
    broadcasting = [member(id, is_fifo=True, is_broadcasting=True) for id in "ab"]
    assert assigned(broadcasting, "g", "t", client_id="a", partitions=3) == [0, 1, 2]
    assert assigned([member("a", is_fifo=True)], "g", "other", client_id="a", partitions=3) == [0, 1, 2]


def test_members_with_another_filter_are_found() -> None:
    clients = [member("a", "x"), member("b", "y"), Client(client_id="p", group="g", is_consumer=False)]
    assert conflicting(clients, member("c", "x")) == ["t"]
    assert conflicting(clients[:1], member("c", "x")) == []
    assert conflicting(clients, member("b", "x")) == []


def test_attempts_and_producers_are_those_of_the_group() -> None:
    clients = [
        member("a", max_attempts=3),
        member("b", max_attempts=5),
        Client(client_id="q", group="g", is_consumer=False),
        Client(client_id="p", group="g", is_consumer=False),
    ]
    assert max_attempts(clients, "g") == 5
    assert max_attempts(clients, "other") is None
    assert producers(clients, "g") == ["p", "q"]


def test_a_client_is_read_as_it_was_written() -> None:
    client = member("a", "x || y", is_fifo=True, max_attempts=4, policy=2)
    assert Client.from_bytes(client.to_bytes()) == client
