"""Redis replies to Python, with a short way for the entries of the bus's streams.

`ReplyParser` takes the place of redis-py's own parser. Everything reads as usual (bytes, int, None, lists, exceptions
for error lines), but an entry that `lua/publish.lua` wrote becomes one `Entry` instead of a list of lists.
"""

import re
from typing import Any, NamedTuple

from redis import ConnectionError as RedisConnectionError
from redis import InvalidResponse
from redis._parsers import BaseParser

_READ_SIZE = 1 << 18

#: `[id, [t, time, (s, stamp,) first of h, k and v, ...]]` up to the first byte of that field's value.
_HEAD = re.compile(
    rb"\*2\r\n\$\d+\r\n(\d+)-1\r\n\*\d+\r\n\$1\r\nt\r\n\$\d+\r\n(\d+)\r\n"
    rb"(?:\$1\r\ns\r\n\$\d+\r\n(\d+)\.\d+\r\n)?\$1\r\n([hkv])\r\n\$(\d+)\r\n"
)
_NEXT = re.compile(rb"\r\n\$1\r\n([kv])\r\n\$(\d+)\r\n")


class Entry(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: bytes | None
    sequence: int | None


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
                if len(items) == count:
                    break
            # An entry that is not complete in the buffer yet comes this way, as do all other items.
            item = self._reply()
            items.append(_as_entry(item) if _is_entry(item) else item)
        return items

    def _entries(self, items: list[Any], count: int) -> None:
        """Append the entries that are whole in the buffer, up to `count` items."""
        data, at, size = self._data, self._at, len(self._data)
        head, following, append = _HEAD.match, _NEXT.match, items.append
        new, as_tuple = Entry, tuple.__new__
        for _ in range(count - len(items)):
            match = head(data, at)
            if match is None:
                break
            offset, time, sequence, name, length = match.groups()
            start = match.end()
            end = start + int(length)
            key = headers = None
            while name != b"v":
                match = following(data, end)
                if match is None:
                    break
                if name == b"k":
                    key = data[start:end]
                else:
                    headers = data[start:end]
                name, length = match.groups()
                start = match.end()
                end = start + int(length)
            if match is None or end + 2 > size:
                break
            append(
                as_tuple(
                    new,
                    (
                        int(offset),
                        int(time),
                        key,
                        data[start:end],
                        headers,
                        None if sequence is None else int(sequence),
                    ),
                )
            )
            at = end + 2
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
        and item[0].endswith(b"-1")
    )


def _as_entry(item: list[Any]) -> Entry:
    fields = dict(zip(item[1][::2], item[1][1::2], strict=True))
    stamp = fields.get(b"s")
    return Entry(
        int(item[0][:-2]),
        int(fields[b"t"]),
        fields.get(b"k"),
        fields[b"v"],
        fields.get(b"h"),
        int(stamp.partition(b".")[0]) if stamp else None,
    )
