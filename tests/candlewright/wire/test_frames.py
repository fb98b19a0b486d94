import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame, SizeLimitExceeded


@pytest.mark.parametrize("row", frames.FRAMES, ids=lambda row: f"{row.type_id:#04x}")
def test_each_frame_comes_back_as_its_message(row: frames.FrameType) -> None:
    encoded = frames.encode(row.message(), row.type_id)
    assert encoded[0] == b"\x01"
    assert encoded[1][0] == row.type_id
    assert frames.decode(encoded, row.routes) == row.message()


def test_type_ids_are_unique_and_each_class_but_the_dispatch_has_one() -> None:
    assert len({row.type_id for row in frames.FRAMES}) == len(frames.FRAMES)
    assert len({row.message for row in frames.FRAMES}) == len(frames.FRAMES) - 1


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([], "MALFORMED"),
        ([b"\x01"], "MALFORMED"),
        ([b"\x01", b"\x10", b""], "MALFORMED"),
        ([b"\x01"] * 10_000, "MALFORMED"),
        ([b"\x01", b""], "MALFORMED"),
        ([b"\x02", b"\x10"], "UNKNOWN_VERSION"),
        ([b"", b"\x10"], "UNKNOWN_VERSION"),
        ([b"\x01", b"\xff"], "UNKNOWN_TYPE"),
        ([b"\x01", b"\x20"], "UNEXPECTED_TYPE"),
        ([b"\x01", b"\x10\x0a\xff"], "MALFORMED"),
        ([b"\x01", b"\x10\x0a\x02\xff\xfe"], "MALFORMED"),
    ],
)
def test_the_error_of_a_bad_frame_names_the_fault(parts: list[bytes], code: str) -> None:
    with pytest.raises(BadFrame) as caught:
        frames.decode(parts, frames.CLIENT_TO_RELAY)
    assert caught.value.code == code


def test_a_frame_over_its_limit_is_refused_before_it_is_parsed() -> None:
    body = b"\x10" + b"\xff" * (64 << 10)
    with pytest.raises(SizeLimitExceeded) as caught:
        frames.decode([b"\x01", body])
    assert (caught.value.size, caught.value.limit) == (len(body), 64 << 10)


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_no_frames_raise_anything_but_bad_frame(parts: list[bytes]) -> None:
    try:
        frames.decode(parts)
    except BadFrame:
        pass


@given(st.sampled_from(frames.FRAMES), st.binary(max_size=500))
def test_no_bytes_after_a_known_type_raise_anything_but_bad_frame(row: frames.FrameType, rest: bytes) -> None:
    try:
        frames.decode([frames.VERSION, bytes((row.type_id,)) + rest])
    except BadFrame:
        pass


@given(st.data())
def test_a_cut_or_flipped_message_raises_nothing_but_bad_frame(data: st.DataObject) -> None:
    message = ing.CEPTriggerRequest(
        trigger_id="t", sql_pattern="price > 1", tickers=["BTC/USDT.BINANCE"], parameters={"a": "1"}
    )
    body = bytearray(frames.encode_body(message))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        frames.decode_body(bytes(body[: data.draw(st.integers(0, len(body)))]))
    except BadFrame:
        pass


def test_a_bar_has_the_numbers_that_clients_rely_on() -> None:
    numbers = {field.name: field.number for field in cw.OHLCV.DESCRIPTOR.fields}
    assert numbers == {
        "open_time": 1,
        "open": 2,
        "high": 3,
        "low": 4,
        "close": 5,
        "volume": 6,
        "quote_volume": 7,
        "trade_count": 8,
        "period_seconds": 9,
        "ticker": 10,
        "complete": 11,
        "revision": 12,
        "sequence": 13,
        "source": 14,
        "from_client": 15,
    }
