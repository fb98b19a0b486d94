import json
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from bus.api import StoredRecord
from bus.replies import Entry, ReplyParser, stored
from bus.store import pack


class Chunks:
    """A socket that delivers its bytes in pieces of the given sizes, over and over."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = data
        self._sizes = sizes
        self._reads = 0

    def recv(self, limit: int) -> bytes:
        size = self._sizes[self._reads % len(self._sizes)]
        self._reads += 1
        piece, self._data = self._data[:size], self._data[size:]
        return piece


def parser_of(data: bytes, sizes: list[int]) -> ReplyParser:
    parser = ReplyParser()
    parser.on_connect(SimpleNamespace(_sock=Chunks(data, sizes)))
    return parser


def wire(reply: Any) -> bytes:
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(wire, reply))
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if reply is None:
        return b"$-1\r\n"
    return b"$%d\r\n%b\r\n" % (len(reply), reply)


def wire_of_entry(entry: Entry) -> bytes:
    fields: list[bytes] = [b"t", b"%d" % entry.timestamp_ms]
    if entry.sequence is not None:
        fields += (b"s", b"%d.7" % entry.sequence)
    if entry.headers is not None:
        fields += (b"h", entry.headers)
    if entry.key is not None:
        fields += (b"k", entry.key)
    return wire([b"%d-1" % entry.offset, [*fields, b"v", entry.value]])


# Bytes that look like the protocol itself are the ones that a parser could trip over.
payloads = st.binary(max_size=60) | st.sampled_from(
    [b"\r\n", b"\r\n$1\r\nv\r\n$3\r\nabc\r\n", b"*2\r\n$3\r\n0-1\r\n", b"x" * 300, b"\r\n$1\r\nv\r\n$0\r\n" * 30]
)
entries = st.builds(
    Entry,
    offset=st.integers(0, 2**53),
    timestamp_ms=st.integers(0, 10**13),
    key=st.none() | payloads,
    value=payloads,
    headers=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5)).map(lambda h: json.dumps(h).encode()),
    sequence=st.none() | st.integers(1, 2**53),
)
sizes = st.lists(st.integers(1, 200), min_size=1, max_size=5)


@given(st.lists(entries, max_size=12), sizes)
def test_entries_read_the_same_however_they_are_cut(wanted: list[Entry], cut: list[int]) -> None:
    data = b"*%d\r\n" % len(wanted) + b"".join(map(wire_of_entry, wanted))
    parser = parser_of(data * 2, cut)
    assert parser.read_response() == wanted
    assert parser.read_response() == wanted


replies = st.recursive(
    st.none() | st.integers(-(2**60), 2**60) | payloads, lambda inner: st.lists(inner, max_size=4), max_leaves=12
)


@given(replies, replies, sizes)
def test_all_other_replies_read_as_redis_wrote_them(first: Any, second: Any, cut: list[int]) -> None:
    parser = parser_of(wire(first) + b"+OK\r\n" + wire(second), cut)
    assert [parser.read_response() for _ in range(3)] == [first, b"OK", second]


def test_errors_are_told_apart() -> None:
    parser = parser_of(b"-NOSCRIPT none\r\n-ERR wrong\r\n-LOADING wait\r\n", [7])
    assert isinstance(parser.read_response(), redis.exceptions.NoScriptError)
    assert isinstance(parser.read_response(), redis.ResponseError)
    with pytest.raises(redis.ConnectionError):
        parser.read_response()
    with pytest.raises(redis.ConnectionError, match="closed"):
        parser.read_response()


def test_an_entry_becomes_a_record() -> None:
    entry = Entry(5, 1_700_000_000_000, b"k", b"v", b'{"a": "b"}', 9)
    assert stored("t", 2, [entry]) == [StoredRecord("t", 2, 5, 1_700_000_000_000, b"k", b"v", {"a": "b"}, 9)]


def test_commands_are_packed_as_redis_reads_them() -> None:
    assert pack(("SET", b"\x00", 12)) == b"*3\r\n$3\r\nSET\r\n$1\r\n\x00\r\n$2\r\n12\r\n"
