"""Frames of the UDF protocol: the length as an unsigned varint, then that many bytes of a Request or a Response."""

from collections.abc import Callable
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from candlewright.wire.errors import BadFrame, SizeLimitExceeded

__all__ = ["MAX_FRAME_BYTES", "FrameReader", "encode"]

MAX_FRAME_BYTES = 64 << 20
_READ_BYTES = 64 << 10
#: A 64-bit varint has at most ten bytes.
_MAX_LENGTH_BYTES = 10

M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    body = message.SerializeToString()
    length = len(body)
    head = bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


class FrameReader(Generic[M]):
    """Messages of one kind from a byte stream. `read` returns up to the given number of bytes as soon as any arrive,
    and empty bytes at the end. No memory is allocated for a frame before its length is known to be allowed.
    """

    def __init__(self, read: Callable[[int], bytes], kind: type[M], limit: int = MAX_FRAME_BYTES) -> None:
        self._read = read
        self._kind = kind
        self._limit = limit
        self._buffer = bytearray()
        self._at = 0

    def next(self) -> M | None:
        """The next message; None if the input ends between two frames.

        Raises SizeLimitExceeded for a length beyond the limit, BadFrame if the input ends inside a frame or the bytes
        are not a message.
        """
        length = self._length()
        if length is None:
            return None
        self._fill(length)
        body = bytes(memoryview(self._buffer)[self._at : self._at + length])
        self._at += length
        try:
            return self._kind.FromString(body)
        except DecodeError as error:
            raise BadFrame("UNDECODABLE", f"{length} bytes that are not a valid {self._kind.__name__}") from error

    def _length(self) -> int | None:
        value = shift = 0
        while True:
            if self._at == len(self._buffer) and not self._more():
                if shift:
                    raise BadFrame("TRUNCATED", "the input ends inside the length of a frame")
                return None
            byte = self._buffer[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if value > self._limit:
                raise SizeLimitExceeded(value, self._limit)
            if byte < 0x80:
                return value
            if shift >= 7 * _MAX_LENGTH_BYTES:
                raise BadFrame("UNDECODABLE", "the length of a frame does not end")

    def _fill(self, length: int) -> None:
        while len(self._buffer) - self._at < length:
            if not self._more():
                raise BadFrame("TRUNCATED", f"the input ends inside a frame of {length} bytes")

    def _more(self) -> bool:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        data = self._read(_READ_BYTES)
        self._buffer += data
        return bool(data)
