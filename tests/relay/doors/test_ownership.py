"""Access to topics: names, even if one is a prefix of another, ids, and ZeroMQ's prefix matching."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import streams
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.keys import check_name
from protobuf import records_pb2 as rec
from relay import topics
from relay.doors import ownership
from relay.doors.ownership import may_subscribe

#: Few letters, so that names, ids and subscriptions are often prefixes of each other.
LETTERS = "ab:é"
TEXTS = st.text(LETTERS, max_size=4)
HEADS = ("RESPONSE:", "HISTORY_READY:", "TRIGGER:")
PUBLIC = ("TICKS:", "OHLC:", "SNAPSHOT:")


def admitted(wanted: list[str]) -> list[str]:
    names: list[str] = []
    for name in wanted:
        try:
            check_name(name, names)
        except InvalidRequest:
            continue
        names.append(name)
    return names


@pytest.mark.parametrize(
    "subscription", ["RESPONSE:alice", "RESPONSE:alice-7", "HISTORY_READY:alice-1", "TRIGGER:alice", "TICKS:", "OHLC"]
)
def test_a_client_may_subscribe_to_its_own_and_public_topics(subscription: str) -> None:
    assert may_subscribe("alice", subscription.encode())


@pytest.mark.parametrize(
    "subscription",
    [
        "",
        "R",
        "T",
        "S:",
        "RESPONSE",
        "RESPONSE:",
        "RESPONSE:al",
        "RESPONSE:bob",
        "HISTORY_READY:",
        "TRIGGER:x",
        "FOO:a",
    ],
)
def test_bare_prefixes_and_foreign_topics_are_refused(subscription: str) -> None:
    assert not may_subscribe("alice", subscription.encode())


def test_bytes_that_are_not_text_are_refused() -> None:
    assert not may_subscribe("alice", b"RESPONSE:alice\xff")


@given(
    wanted=st.lists(TEXTS, max_size=5),
    subscriptions=st.lists(st.tuples(st.sampled_from((*HEADS, *PUBLIC, "T", "")), TEXTS, TEXTS), max_size=12),
    ids=st.lists(st.tuples(st.integers(0, 4), TEXTS), min_size=1, max_size=8),
)
def test_no_client_ever_receives_a_private_topic_of_another(
    wanted: list[str], subscriptions: list[tuple[str, str, str]], ids: list[tuple[int, str]]
) -> None:
    names = admitted(wanted)
    installed = [
        (name, (head + first + second).encode())
        for name in names
        for head, first, second in [*subscriptions, *((head, name, rest) for head, rest, _ in subscriptions)]
        if may_subscribe(name, (head + first + second).encode())
    ]
    for number, rest in ids:
        for owner in names[number : number + 1]:
            # Any request id may be subscribed; what is published on its topic is checked again.
            published = {*topics.final_topics(rest, owner + rest, owner), *topics.final_topics(owner + rest, "", owner)}
            published |= {streams.trigger(owner + rest), streams.response(owner)}
            for topic in published:
                receivers = {name for name, prefix in installed if topic.encode().startswith(prefix)}
                assert receivers <= {owner}


@given(wanted=st.lists(TEXTS, max_size=8))
def test_no_admitted_name_is_a_prefix_of_another(wanted: list[str]) -> None:
    names = admitted(wanted)
    assert not [(a, b) for a in names for b in names if a is not b and a.startswith(b)]


def test_a_request_with_any_id_belongs_to_its_sender() -> None:
    sent = rec.Request(owner="bob")
    assert ownership.owns_request("bob", "alice-1", sent)
    assert not ownership.owns_request("alice", "alice-1", sent)
    assert ownership.owns_request("alice", "alice-1", rec.Request())
    assert not ownership.owns_request("alice", "r", rec.Request())
    assert not ownership.owns_request("alice", "r", None)
    assert ownership.owns_request("", "r", sent)


def test_the_topic_of_an_id_of_another_client_is_not_published_to() -> None:
    assert topics.final_topics("alice-1", "bob", "bob") == ("RESPONSE:bob",)
    assert topics.final_topics("r", "c") == ("HISTORY_READY:r", "RESPONSE:c")


def test_ids_that_begin_with_the_name_of_another_client_or_of_the_platform_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="another client"):
        ownership.check_foreign("bob", "request_id", "alice-1", names=["alice", "bob"])
    with pytest.raises(InvalidRequest, match="another client"):
        ownership.check_foreign("bob", "request_id", "subscription:TICKS:x", names=["bob"])
    ownership.check_foreign("bob", "request_id", "4f1c", names=["alice", "bob"])
    ownership.check_foreign("", "request_id", "alice-1", names=["alice"])
