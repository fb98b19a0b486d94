"""Frames of the UDF protocol."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.errors import BadFrame, SizeLimitExceeded
from protobuf import udf_frames
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import Request


def _in_pieces(data: bytes, size: int = 7) -> Callable[[int], bytes]:
    at = 0

    def read(wanted: int) -> bytes:
        nonlocal at
        piece = data[at : at + min(size, wanted)]
        at += len(piece)
        return piece

    return read


def _restore(state: bytes) -> Request:
    request = Request()
    request.restore.snapshot = state
    return request


@given(st.lists(st.binary(max_size=400), max_size=6), st.integers(1, 300))
def test_messages_come_back_however_the_bytes_are_cut(states: list[bytes], size: int) -> None:
    data = b"".join(udf_frames.encode(_restore(state)) for state in states)
    reader = FrameReader(_in_pieces(data, size), Request)
    assert [found.restore.snapshot for found in iter(reader.next, None)] == states
    assert reader.next() is None


def test_length_is_a_varint_of_base_128() -> None:
    frame = udf_frames.encode(_restore(b"x" * 300))
    length = len(frame) - 2
    assert frame[:2] == bytes([length & 0x7F | 0x80, length >> 7])


@pytest.mark.parametrize("cut", [1, 2, 3, 200])
def test_end_inside_a_frame_is_an_error(cut: int) -> None:
    data = udf_frames.encode(_restore(b"x" * 300))[:cut]
    with pytest.raises(BadFrame, match="TRUNCATED"):
        FrameReader(_in_pieces(data), Request).next()


def test_length_past_the_limit_is_refused_before_anything_more_is_read() -> None:
    asked = []

    def read(wanted: int) -> bytes:
        asked.append(wanted)
        return b"\xff\xff\xff\xff\x7f" if len(asked) == 1 else b""

    with pytest.raises(SizeLimitExceeded):
        FrameReader(read, Request).next()
    assert len(asked) == 1


def test_length_without_an_end_is_refused() -> None:
    with pytest.raises(BadFrame):
        FrameReader(_in_pieces(b"\x80" * 50), Request).next()


def test_bytes_that_are_not_a_message_are_refused() -> None:
    with pytest.raises(BadFrame, match="UNDECODABLE"):
        FrameReader(_in_pieces(b"\x03\xff\xff\xff"), Request).next()


@given(st.binary(max_size=200))
def test_any_bytes_give_messages_or_a_bad_frame(data: bytes) -> None:
    reader = FrameReader(_in_pieces(data), Request, limit=1_000)
    try:
        while reader.next() is not None:
            pass
    except BadFrame:
        pass
