from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import tick_columns
from candlewright.wire.candlewright_pb2 import Tick, TickBatch
from candlewright.wire.errors import BadFrame

_TIMES = st.integers(0, 2**63 - 1)
_IDS = st.one_of(
    st.integers(3_735_683_259, 3_735_703_162).map(str), st.text(min_size=1, max_size=40).filter(lambda t: "\0" not in t)
)
_PRICES = st.floats(0, 1e18, allow_nan=False)
_TICK = st.tuples(_TIMES, _PRICES, _PRICES, st.integers(0, 2), _IDS, _TIMES)


@st.composite
def _batches(draw: st.DrawFn) -> TickBatch:
    ticks = draw(st.lists(_TICK, max_size=20))
    time, price, size, side, trade_id, received = zip(*ticks, strict=True) if ticks else ([],) * 6
    return TickBatch(
        ticker=draw(st.sampled_from(["BTC/USDT.BINANCE", "Ö/USDT.KRAKEN", ""])),
        first_sequence=draw(st.integers(0, 2**40)),
        timestamp=time,
        price=price,
        size=size,
        side=side,
        trade_id=trade_id,
        received_at=received,
        clock_ahead=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        exchange_ahead=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
    )


def _same(columns: tick_columns.TickColumns, message: TickBatch) -> None:
    assert (columns.ticker, columns.first_sequence) == (message.ticker, message.first_sequence)
    assert columns.timestamp.tolist() == list(message.timestamp)
    assert columns.price.tolist() == list(message.price)
    assert columns.size.tolist() == list(message.size)
    assert columns.side.tolist() == list(message.side)
    assert [value.decode() for value in columns.trade_id.tolist()] == list(message.trade_id)
    assert columns.received_at.tolist() == list(message.received_at)
    assert columns.clock_ahead == (message.clock_ahead if message.HasField("clock_ahead") else None)
    assert columns.exchange_ahead == (message.exchange_ahead if message.HasField("exchange_ahead") else None)


@given(_batches())
def test_columns_are_those_of_the_protobuf_library(message: TickBatch) -> None:
    _same(tick_columns.decode(message.SerializeToString()), message)


@given(_batches())
def test_encoded_columns_are_read_by_the_protobuf_library(message: TickBatch) -> None:
    encoded = tick_columns.encode(tick_columns.decode(message.SerializeToString()))
    assert TickBatch.FromString(encoded) == message


@st.composite
def _alike(draw: st.DrawFn) -> list[bytes]:
    """Records of few lengths, some of them with a wrong byte or a number that the bus appended."""
    found = []
    count, width = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    for _ in range(draw(st.integers(8, 20))):
        message = TickBatch(
            ticker=draw(st.sampled_from(["AB/C.D", "AÖ/C.D", "EF/GH.I"])),
            timestamp=[draw(_TIMES) for _ in range(count)],
            price=[draw(_PRICES) for _ in range(count)],
            size=[draw(_PRICES) for _ in range(count)],
            side=[draw(st.integers(0, 2)) for _ in range(count)],
            received_at=[draw(_TIMES) for _ in range(count)],
            clock_ahead=draw(st.none() | st.integers(-3, 300)),
        )
        message.trade_id.extend(draw(st.text("0123456789é", min_size=width, max_size=width)) for _ in range(count))
        number = draw(st.sampled_from([1, 7, 300, 70_000, 2**62]))
        value = bytearray(message.SerializeToString() + TickBatch(first_sequence=number).SerializeToString())
        if draw(st.integers(0, 4)) == 0:
            value[draw(st.integers(0, len(value) - 1))] = draw(st.integers(0, 255))
        found.append(bytes(value))
    return found


@given(_alike())
def test_records_read_together_have_the_columns_of_each_alone(values: list[bytes]) -> None:
    with patch.object(tick_columns, "_FEW_ALIKE", 2):
        found = tick_columns.decode_all(values)
    for value, together in zip(values, found, strict=True):
        try:
            alone = tick_columns.decode(value)
        except BadFrame as error:
            assert isinstance(together, BadFrame)
            assert together.text == error.text
            continue
        assert isinstance(together, tick_columns.TickColumns)
        for part in fields(alone):
            one, other = getattr(alone, part.name), getattr(together, part.name)
            if isinstance(one, np.ndarray):
                assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
            else:
                assert (one, type(one)) == (other, type(other))


def test_records_that_are_alike_are_not_read_one_by_one() -> None:
    message = TickBatch(ticker="A/B.C", timestamp=[1], price=[1.0], size=[2.0], side=[1], received_at=[3])
    message.trade_id.append("12")
    values = [message.SerializeToString() + bytes((0x10, number)) for number in range(100)]
    with patch.object(tick_columns, "decode", side_effect=AssertionError):
        found = tick_columns.decode_all(values)
    assert [each.first_sequence for each in found if isinstance(each, tick_columns.TickColumns)] == list(range(100))


@pytest.mark.parametrize("first", [7, 98, 995])
def test_ids_that_gain_a_digit_are_read_in_their_order(first: int) -> None:
    ids = [str(number) for number in range(first, first + 20)]
    count = len(ids)
    message = TickBatch(timestamp=range(count), price=[1.0] * count, size=[1.0] * count, side=[1] * count)
    message.trade_id.extend(ids)
    message.received_at.extend(range(count))
    _same(tick_columns.decode(message.SerializeToString()), message)


def test_a_number_that_the_bus_appends_wins_over_the_first() -> None:
    message = TickBatch(ticker="A/B.C", first_sequence=7, timestamp=[1], price=[1.0], size=[2.0], side=[1])
    message.trade_id.append("12")
    message.received_at.append(3)
    stamped = message.SerializeToString() + b"\x10\xac\x02"
    assert tick_columns.decode(stamped).first_sequence == 300
    assert len(tick_columns.decode(stamped)) == 1


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(BadFrame, match="length"):
        tick_columns.decode(TickBatch(ticker="A/B.C", timestamp=[1, 2], price=[1.0]).SerializeToString())


@given(st.binary(max_size=200), _batches(), st.data())
def test_no_bytes_raise_anything_but_bad_frame(noise: bytes, message: TickBatch, data: st.DataObject) -> None:
    whole = message.SerializeToString()
    cut = data.draw(st.integers(0, len(whole)))
    for candidate in (noise, whole[:cut] + noise, whole[:cut] + noise + whole[cut:]):
        try:
            tick_columns.decode(candidate)
        except BadFrame:
            pass


def test_a_thousand_ticks_with_ids_of_one_width_take_the_vector_path() -> None:
    ids = np.arange(10_000, 11_000).astype("S5")
    numbers = np.arange(1_000)
    columns = tick_columns.TickColumns(
        ticker="BTC/USDT.BINANCE",
        first_sequence=1,
        timestamp=numbers,
        price=numbers * 1.5,
        size=numbers * 0.5,
        side=(numbers % 3).astype(np.uint8),
        trade_id=ids,
        received_at=numbers,
        clock_ahead=-7,
    )
    encoded = tick_columns.encode(columns)
    assert tick_columns._decode_usual(encoded) is not None
    _same(tick_columns.decode(encoded), TickBatch.FromString(encoded))


@given(_TICK)
def test_a_single_tick_is_read_as_one_row(values: tuple[int, float, float, int, str, int]) -> None:
    time, price, size, side, trade_id, received = values
    tick = Tick(
        ticker="A/B.C",
        trade_id=trade_id,
        timestamp=time // 2 + 1,
        price=price,
        size=size,
        side=side,
        received_at=received,
    )  # type: ignore[arg-type]
    columns = tick_columns.decode(tick.SerializeToString() + b"\x10\x07")
    assert (len(columns), columns.ticker, columns.first_sequence) == (1, "A/B.C", 7)
    assert (columns.trade_id[0].decode(), columns.price[0], columns.size[0]) == (trade_id, price, size)
    assert (columns.timestamp[0], columns.side[0], columns.received_at[0]) == (time // 2 + 1, side, received)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("time", 0),
        ("time", tick_columns.LATEST_NS),
        ("price", np.nan),
        ("price", np.inf),
        ("price", -np.inf),
        ("size", np.nan),
        ("size", np.inf),
        ("size", -0.5),
    ],
)
@pytest.mark.parametrize("count", [3, 1_000])
def test_one_impossible_value_makes_its_trade_unsound_and_no_other(column: str, value: Any, count: int) -> None:
    whole = np.arange(1, count + 1)
    columns: dict[str, Any] = {"time": whole, "price": whole - 2.0, "size": whole - 1.0, "ids": whole.astype("S9")}
    assert tick_columns.are_sound(**columns).all()
    columns[column][1] = value
    assert np.flatnonzero(~tick_columns.are_sound(**columns)).tolist() == [1]


def test_one_id_that_is_too_long_makes_its_trade_unsound() -> None:
    columns: dict[str, Any] = {"time": np.arange(1, 1_001), "price": np.ones(1_000), "size": np.ones(1_000)}
    assert tick_columns.are_sound(**columns, ids=np.full(1_000, b"1" * 300)).all()
    ids = np.full(1_000, b"1" * 301)
    ids[2:] = b"1"
    assert np.flatnonzero(~tick_columns.are_sound(**columns, ids=ids)).tolist() == [0, 1]
