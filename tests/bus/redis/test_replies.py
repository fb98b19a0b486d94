import json
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from bus.api import StoredRecord
from bus.redis.replies import Entry, KeyedPack, Pack, ReplyParser, dense, stored
from bus.redis.store import pack


class Chunks:
    """A socket that delivers its bytes in pieces of the given sizes, repeatedly."""

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


def wire_of_entry(entry: Entry | Pack | KeyedPack) -> bytes:
    if isinstance(entry, KeyedPack):
        fields = [b"t", b"%d" % entry.timestamp_ms, b"c", b" ".join(b"%d" % length for length in entry.key_lengths)]
        fields += [b"k", entry.keys, b"n", b" ".join(b"%d" % length for length in entry.lengths), b"v", entry.values]
        return wire([b"%d-2" % entry.offset, fields])
    if isinstance(entry, Pack):
        fields = [b"t", b"%d" % entry.timestamp_ms, b"s", b"%d.7" % entry.sequence, b"g", entry.tag, b"k", entry.key]
        fields += [b"n", b" ".join(b"%d" % length for length in entry.lengths), b"v", entry.values]
        return wire([b"%d-2" % entry.offset, fields])
    fields = [b"t", b"%d" % entry.timestamp_ms]
    if entry.sequence is not None:
        fields += (b"s", b"%d.7" % entry.sequence)
    if entry.headers is not None:
        fields += (b"h", entry.headers)
    if entry.key is not None:
        fields += (b"k", entry.key)
    return wire([b"%d-1" % entry.offset, [*fields, b"v", entry.value]])


# Bytes that look like the protocol itself are most likely to confuse a parser.
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
packs = st.builds(
    lambda values, **rest: Pack(values=b"".join(values), lengths=list(map(len, values)), **rest),
    values=st.lists(payloads, min_size=2, max_size=5),
    offset=st.integers(10, 2**53),
    timestamp_ms=st.integers(0, 10**13),
    key=payloads,
    sequence=st.integers(1, 2**53),
    tag=payloads,
)
keyed_packs = st.builds(
    lambda pairs, **rest: KeyedPack(
        keys=b"".join(key for key, _ in pairs),
        key_lengths=[len(key) for key, _ in pairs],
        values=b"".join(value for _, value in pairs),
        lengths=[len(value) for _, value in pairs],
        **rest,
    ),
    pairs=st.lists(st.tuples(payloads, payloads), min_size=2, max_size=5),
    offset=st.integers(10, 2**53),
    timestamp_ms=st.integers(0, 10**13),
)
sizes = st.lists(st.integers(1, 200), min_size=1, max_size=5)


@given(st.lists(entries | packs | keyed_packs, max_size=12), sizes)
def test_entries_read_the_same_however_they_are_cut(wanted: list[Entry | Pack | KeyedPack], cut: list[int]) -> None:
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


def test_errors_are_distinguished() -> None:
    parser = parser_of(b"-NOSCRIPT none\r\n-ERR wrong\r\n-LOADING wait\r\n", [7])
    assert isinstance(parser.read_response(), redis.exceptions.NoScriptError)
    assert isinstance(parser.read_response(), redis.ResponseError)
    with pytest.raises(redis.ConnectionError):
        parser.read_response()
    with pytest.raises(redis.ConnectionError, match="closed"):
        parser.read_response()


def test_an_entry_becomes_a_record() -> None:
    entry = Entry(5, 1_700_000_000_000, b"k", b"v", b'{"a": "b"}', 9)
    assert stored("t", 2, [entry]) == [
        StoredRecord(
            topic="t",
            partition=2,
            offset=5,
            timestamp_ms=1_700_000_000_000,
            key=b"k",
            value=b"v",
            headers={"a": "b"},
            sequence=9,
        )
    ]


def test_a_pack_becomes_its_records_from_any_of_them_on() -> None:
    single = Entry(9, 1, None, b"x", None, None)
    pack_of_three = Pack(12, 2, b"k", b"aabbb", [2, 0, 3], 127, b"\x68")
    records = [
        Entry(10, 2, b"k", b"aa\x68\x7f", None, 127),
        Entry(11, 2, b"k", b"\x68\x80\x01", None, 128),
        Entry(12, 2, b"k", b"bbb\x68\x81\x01", None, 129),
    ]
    assert dense([single, pack_of_three], 9) == [single, *records]
    assert [dense([pack_of_three], first) for first in (10, 11, 12)] == [records, records[1:], records[2:]]
    after = Entry(13, 3, None, b"y", None, None)
    assert dense([pack_of_three, after], 12) == [records[2], after]


def test_a_pack_of_keys_becomes_its_records_from_any_of_them_on() -> None:
    pack_of_three = KeyedPack(12, 2, b"kll", [1, 2, 0], b"aabbb", [2, 0, 3])
    records = [
        Entry(10, 2, b"k", b"aa", None, None),
        Entry(11, 2, b"ll", b"", None, None),
        Entry(12, 2, b"", b"bbb", None, None),
    ]
    assert [dense([pack_of_three], first) for first in (10, 11, 12)] == [records, records[1:], records[2:]]


def test_missing_and_foreign_entries_are_detected() -> None:
    entry, pack_of_two = Entry(9, 1, None, b"x", None, None), Pack(12, 2, b"k", b"ab", [1, 1], 1, b"")
    assert dense([entry, pack_of_two], 9) is None
    assert dense([pack_of_two], 10) is None
    assert dense([pack_of_two, [b"13-1", [b"v", b"poison"]]], 11) is None


def test_commands_are_packed_as_redis_reads_them() -> None:
    assert pack(("SET", b"\x00", 12)) == b"*3\r\n$3\r\nSET\r\n$1\r\n\x00\r\n$2\r\n12\r\n"
