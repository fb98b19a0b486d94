"""Converts Redis replies to Python, with a fast path for entries of the bus's streams.

`ReplyParser` takes the place of redis-py's own parser. Everything reads as usual (bytes, int, None, lists, exceptions
for error lines), but an entry that `lua/publish.lua` wrote becomes an `Entry`, a `Pack` or a `KeyedPack` instead of a
list of lists.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat
from typing import Any, NamedTuple

from redis import ConnectionError as RedisConnectionError
from redis import InvalidResponse
from redis._parsers import BaseParser

from bus.api import RecordRun, StoredRecord
from candlewright.wire.varint import varint

_READ_SIZE = 1 << 18
#: The first byte of a string in a reply.
_STRING = ord("$")

#: `[id, [t, time, s, stamp, h, headers, k, key, v, value]]` up to the first byte of the value; s, h and k may be
#: absent. Headers are JSON and hold no line end. The end of a key is guessed here and compared with its length; an
#: entry with a long or unusual key takes the slow path.
_HEAD = re.compile(
    rb"\*2\r\n\$\d+\r\n(\d+)-1\r\n\*\d+\r\n\$1\r\nt\r\n\$\d+\r\n(\d+)\r\n"
    rb"(?:\$1\r\ns\r\n\$\d+\r\n(\d+)\.\d+\r\n)?"
    rb"(?:\$1\r\nh\r\n\$\d+\r\n([^\r]*)\r\n)?"
    rb"(?:\$1\r\nk\r\n\$(\d+)\r\n(.{0,256}?)\r\n)?"
    rb"\$1\r\nv\r\n\$(\d+)\r\n",
    re.DOTALL,
)
#: The same of a pack whose records have numbers, `[id, [t, time, s, stamp, g, tag, k, key, n, lengths, v, values]]`.
_PACK_HEAD = re.compile(
    rb"\*2\r\n\$\d+\r\n(\d+)-2\r\n\*12\r\n\$1\r\nt\r\n\$\d+\r\n(\d+)\r\n"
    rb"\$1\r\ns\r\n\$\d+\r\n(\d+)\.\d+\r\n"
    rb"\$1\r\ng\r\n\$(\d+)\r\n(.{0,8}?)\r\n"
    rb"\$1\r\nk\r\n\$(\d+)\r\n(.{0,256}?)\r\n"
    rb"\$1\r\nn\r\n\$\d+\r\n([\d ]+)\r\n"
    rb"\$1\r\nv\r\n\$(\d+)\r\n",
    re.DOTALL,
)


class Entry(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: bytes | None
    sequence: int | None


class Pack(NamedTuple):
    """Neighbouring records in one entry: `offset` is the last one's, `sequence` the first one's. Their values follow
    each other, without their numbers.
    """

    offset: int
    timestamp_ms: int
    key: bytes
    values: bytes
    lengths: list[int]
    sequence: int
    tag: bytes

    def records(self, first: int) -> list[Entry]:
        """As separate entries, from offset `first` on."""
        count = len(self.lengths)
        values = _parts(self.values, self.lengths)
        numbers = range(self.sequence, self.sequence + count)
        if self.tag:
            tag = self.tag
            values = [value + tag + varint(number) for value, number in zip(values, numbers, strict=True)]
        return _entries(self, first, repeat(self.key), values, numbers)


class KeyedPack(NamedTuple):
    """Neighbouring records without numbers in one entry: `offset` is the last one's; keys and values follow each
    other.
    """

    offset: int
    timestamp_ms: int
    keys: bytes
    key_lengths: list[int]
    values: bytes
    lengths: list[int]

    def records(self, first: int) -> list[Entry]:
        """As separate entries, from offset `first` on."""
        keys, values = _parts(self.keys, self.key_lengths), _parts(self.values, self.lengths)
        return _entries(self, first, keys, values, repeat(None))


def _parts(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


def _entries(
    pack: Pack | KeyedPack,
    first: int,
    keys: Iterable[bytes],
    values: Iterable[bytes],
    numbers: Iterable[int | None],
) -> list[Entry]:
    count = len(pack.lengths)
    offsets = range(pack.offset + 1 - count, pack.offset + 1)
    rows = zip(offsets, repeat(pack.timestamp_ms), keys, values, repeat(None), numbers, strict=False)
    # A named tuple's own constructor takes three times as long.
    found = list(map(partial(tuple.__new__, Entry), rows))
    return found[max(0, first - offsets.start) :]


def dense(entries: list[Any], first: int) -> list[Entry] | None:
    """The records of a stream's entries from offset `first` on; None where one is missing or not written by the bus."""
    head, tail = entries[0], entries[-1]
    if type(head) is Entry and type(tail) is Entry and tail.offset - first + 1 == len(entries):
        return entries
    found: list[Entry] = []
    for entry in entries:
        if type(entry) is Pack or type(entry) is KeyedPack:
            found += entry.records(first)
        elif type(entry) is Entry:
            found.append(entry)
        else:
            return None
    return found if found[-1].offset - first + 1 == len(found) else None


def stored(topic: str, partition: int, entries: Iterable[Entry]) -> list[StoredRecord]:
    """The entries of one stream as records."""
    rows = (
        (topic, partition, offset, timestamp_ms, key, value, {} if headers is None else json.loads(headers), sequence)
        for offset, timestamp_ms, key, value, headers, sequence in entries
    )
    # A named tuple's own constructor takes three times as long.
    return list(map(partial(tuple.__new__, StoredRecord), rows))


def run_of(topic: str, partition: int, entries: list[Any], *, first: int, end: int) -> RecordRun | None:
    """The records of a stream's entries from offset `first` to before `end`; None as for `dense`."""
    values: list[bytes] = []
    lengths: list[int] = []
    counts: list[int] = []
    times_ms: list[int] = []
    at = first
    for entry in entries:
        if at >= end:
            break
        if type(entry) is Entry:
            own = [len(entry.value)]
            data = entry.value
        elif type(entry) is Pack or type(entry) is KeyedPack:
            own, data = entry.lengths, entry.values
        else:
            return None
        skipped, stop = at - (entry.offset + 1 - len(own)), len(own) - max(0, entry.offset + 1 - end)
        if not 0 <= skipped < len(own) or (skipped and at > first):
            return None
        if skipped or stop < len(own):
            data = data[sum(own[:skipped]) : sum(own[:stop])]
            own = own[skipped:stop]
        values.append(data)
        lengths += own
        counts.append(len(own))
        times_ms.append(entry.timestamp_ms)
        at += len(own)
    records = partial(_records_of, topic, partition, entries, first, len(lengths))
    return RecordRun(partition, first, values, lengths, counts, times_ms, records)


def _records_of(topic: str, partition: int, entries: list[Any], first: int, count: int) -> list[StoredRecord]:
    return stored(topic, partition, (dense(entries, first) or [])[:count])


def _numbers(text: bytes) -> list[int]:
    """The numbers in a text, separated by spaces; usually they are equal."""
    first, count = text.partition(b" ")[0], text.count(b" ") + 1
    if text == (first + b" ") * (count - 1) + first:
        return [int(first)] * count
    return list(map(int, text.split()))


class ReplyParser(BaseParser):
    def __init__(self, socket_read_size: int = _READ_SIZE) -> None:
        self._socket: Any = None
        self._data = b""
        self._at = 0

    def on_connect(self, connection: Any) -> None:
        self._socket = connection._sock
        self._data = b""
        self._at = 0

    def on_disconnect(self) -> None:
        self._socket = None
        self._data = b""
        self._at = 0

    def read_response(self, disable_decoding: bool = False) -> Any:
        """One whole reply. Raises redis's ConnectionError when the server has gone, TimeoutError after the socket's
        timeout; an error reply is returned, not raised (a ConnectionError such as LOADING is raised).
        """
        reply = self._reply()
        if self._at >= len(self._data):
            self._data, self._at = b"", 0
        if isinstance(reply, RedisConnectionError):
            raise reply
        return reply

    def _reply(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self._bulk(int(rest))
        if kind == b"*":
            return None if rest == b"-1" else self._array(int(rest))
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        if kind == b"-":
            return self.parse_error(rest.decode("utf-8", errors="replace"))  # type: ignore[no-untyped-call]
        raise InvalidResponse(f"not a reply: {line[:100]!r}")

    def _array(self, count: int) -> list[Any]:
        items: list[Any] = []
        while len(items) < count:
            if self._data.startswith(b"*2\r\n$", self._at):
                self._entries(items, count)
            else:
                self._strings(items, count)
            if len(items) == count:
                break
            # An entry that is not yet complete in the buffer takes this path, as do all other items.
            item = self._reply()
            items.append(_as_written(item) if _is_entry(item) else item)
        return items

    def _entries(self, items: list[Any], count: int) -> None:
        """Append the entries that are completely in the buffer, up to `count` items."""
        data, at, size = self._data, self._at, len(self._data)
        head, append, as_tuple = _HEAD.match, items.append, tuple.__new__
        for _ in range(count - len(items)):
            match = head(data, at)
            if match is None:
                if (found := self._pack(at)) is None:
                    break
                pack, at = found
                append(pack)
                continue
            offset, time, sequence, headers, key_length, key, length = match.groups()
            start = match.end()
            end = start + int(length)
            if end + 2 > size or (key is not None and len(key) != int(key_length)):
                break
            number = None if sequence is None else int(sequence)
            append(as_tuple(Entry, (int(offset), int(time), key, data[start:end], headers, number)))
            at = end + 2
        self._at = at

    def _pack(self, at: int) -> tuple[Pack, int] | None:
        """The pack that begins at `at` and its end, if it is completely in the buffer."""
        match = _PACK_HEAD.match(self._data, at)
        if match is None:
            return None
        offset, time, number, tag_length, tag, key_length, key, lengths, length = match.groups()
        start = match.end()
        end = start + int(length)
        if end + 2 > len(self._data) or len(key) != int(key_length) or len(tag) != int(tag_length):
            return None
        values = self._data[start:end]
        return Pack(int(offset), int(time), key, values, _numbers(lengths), int(number), tag), end + 2

    def _strings(self, items: list[Any], count: int) -> None:
        """Append the strings that are completely in the buffer, up to `count` items."""
        data, at, size = self._data, self._at, len(self._data)
        for _ in range(count - len(items)):
            end = data.find(b"\r\n", at)
            if end < 0 or data[at] != _STRING:
                break
            length = int(data[at + 1 : end])
            start, at_end = end + 2, end + 2
            if length >= 0:
                at_end = start + length + 2
                if at_end > size:
                    break
            items.append(None if length < 0 else data[start : at_end - 2])
            at = at_end
        self._at = at

    def _line(self) -> bytes:
        while (end := self._data.find(b"\r\n", self._at)) < 0:
            self._fill()
        line = self._data[self._at : end]
        self._at = end + 2
        return line

    def _bulk(self, length: int) -> bytes:
        missing = self._at + length + 2 - len(self._data)
        if missing > 0:
            chunks = [self._data[self._at :]]
            while missing > 0:
                chunk = self._receive()
                chunks.append(chunk)
                missing -= len(chunk)
            self._data, self._at = b"".join(chunks), 0
        start = self._at
        self._at = start + length + 2
        return self._data[start : start + length]

    def _fill(self) -> None:
        self._data, self._at = self._data[self._at :] + self._receive(), 0

    def _receive(self) -> bytes:
        if self._socket is None:
            raise RedisConnectionError("not connected")
        chunk: bytes = self._socket.recv(_READ_SIZE)
        if not chunk:
            raise RedisConnectionError("the server closed the connection")
        return chunk


def _is_entry(item: Any) -> bool:
    return (
        type(item) is list
        and len(item) == 2
        and type(item[0]) is bytes
        and type(item[1]) is list
        and len(item[1]) >= 4
        and item[1][0] == b"t"
        and item[1][-2] == b"v"
        and item[0].endswith((b"-1", b"-2"))
    )


def _as_written(item: list[Any]) -> Entry | Pack | KeyedPack:
    pairs = dict(zip(item[1][::2], item[1][1::2], strict=True))
    stamp = pairs.get(b"s")
    sequence = int(stamp.partition(b".")[0]) if stamp else None
    offset, time = int(item[0][:-2]), int(pairs[b"t"])
    if item[0].endswith(b"-2"):
        lengths = _numbers(pairs[b"n"])
        if sequence is None:
            key_lengths = list(map(int, pairs[b"c"].split()))
            return KeyedPack(offset, time, pairs[b"k"], key_lengths, pairs[b"v"], lengths)
        return Pack(offset, time, pairs[b"k"], pairs[b"v"], lengths, sequence, pairs[b"g"])
    return Entry(offset, time, pairs.get(b"k"), pairs[b"v"], pairs.get(b"h"), sequence)
