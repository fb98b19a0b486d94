"""TickBatch as numpy columns, to and from its wire bytes, without a Python step per tick.

A packed fixed64 or double field already is a little-endian array. Trade ids are strings, one field each; as long as
they have the same length, as millions of neighbouring ids do, the run of fields is a byte matrix. Anything else is left
to the protobuf library, so that every valid message is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from candlewright.wire.candlewright_pb2 import Tick, TickBatch
from candlewright.wire.errors import BadFrame
from candlewright.wire.varint import read_varint, varint

__all__ = ["TickColumns", "are_sound", "decode", "decode_all", "encode", "reason_against", "time_range"]

_TICKER, _FIRST_SEQUENCE, _TIMESTAMP, _PRICE, _SIZE, _SIDE, _TRADE_ID, _RECEIVED_AT, _CLOCK_AHEAD, _EXCHANGE_AHEAD = (
    range(1, 11)
)
_VARINT, _BYTES = 0, 2
_ID_TAG = _TRADE_ID << 3 | _BYTES
_ID_TAG_BYTE = bytes((_ID_TAG,))
_MAX_ID_RUNS = 8
_ID_TYPES = [np.dtype(f"S{length}") for length in range(128)]
_SCALARS = frozenset(number << 3 | _VARINT for number in (_FIRST_SEQUENCE, _CLOCK_AHEAD, _EXCHANGE_AHEAD))
_TIMESTAMPS_TAG = _TIMESTAMP << 3 | _BYTES
#: No trade has a time (ns) from 2200 on, or a longer id.
LATEST_NS = 7_258_118_400_000_000_000
MAX_ID_BYTES = 300
_SIDES = bytes(range(3))
_INTEGER, _DOUBLE = np.dtype("<i8"), np.dtype("<f8")
_NUMBERS: dict[int, np.dtype[Any]] = {_TIMESTAMP: _INTEGER, _PRICE: _DOUBLE, _SIZE: _DOUBLE, _RECEIVED_AT: _INTEGER}
#: The columns of a whole record but the ids: the numbers and the sides.
_COLUMNS = len(_NUMBERS) + 1
#: The extremes of so many values take less time than a comparison of each.
_MANY = 256
#: So few ids are encoded one by one.
_FEW_IDS = 16
#: Fewer records of one length are read one by one.
_FEW_ALIKE = 8


@dataclass(kw_only=True, frozen=True, slots=True)
class TickColumns:
    """Columns of equal length. `timestamp`, `received_at`: ns since the epoch, int64; `side`: 0 unknown, 1 buy, 2 sell;
    `trade_id`: fixed-width bytes (dtype S). `clock_ahead`: ns; None for trades that arrived as they happened.
    `exchange_ahead`: ns; None if it was not measured.
    """

    ticker: str
    first_sequence: int
    timestamp: NDArray[np.int64]
    price: NDArray[np.float64]
    size: NDArray[np.float64]
    side: NDArray[np.uint8]
    trade_id: NDArray[np.bytes_]
    received_at: NDArray[np.int64]
    clock_ahead: int | None = None
    exchange_ahead: int | None = None

    def __len__(self) -> int:
        return len(self.timestamp)


def are_sound(
    *, time: NDArray[np.int64], price: NDArray[np.float64], size: NDArray[np.float64], ids: NDArray[np.bytes_]
) -> NDArray[np.bool_]:
    """Which trades have usable values: a time within the tables' range, a finite price, a size that is not negative,
    and an id that is not too long.
    """
    if (
        len(time) >= _MANY
        and ids.dtype.itemsize <= MAX_ID_BYTES
        and time.min() > 0
        and time.max() < LATEST_NS
        and size.min() >= 0
        and size.max() < np.inf
        and -np.inf < price.min()
        and price.max() < np.inf
    ):
        # Usually all are. A NaN is the extreme of its column, and no comparison with it holds.
        return np.ones(len(time), np.bool_)
    found: NDArray[np.bool_] = np.isfinite(price) & np.isfinite(size) & (size >= 0) & (time > 0) & (time < LATEST_NS)
    if ids.dtype.itemsize > MAX_ID_BYTES:
        found &= np.char.str_len(ids) <= MAX_ID_BYTES
    return found


def reason_against(bad: int, trades: int) -> str:
    """The error for a batch with `bad` invalid trades."""
    return f"{bad} of {trades} trades have an impossible time, price, size or id"


def encode(columns: TickColumns) -> bytes:
    """The serialised TickBatch."""
    parts = [_field(_TICKER, columns.ticker.encode())]
    # Ahead of the columns, so that `time_range` need not read them.
    for number, ahead in ((_EXCHANGE_AHEAD, columns.exchange_ahead), (_CLOCK_AHEAD, columns.clock_ahead)):
        if ahead is not None:
            parts.append(bytes((number << 3 | _VARINT,)) + varint(ahead * 2 if ahead >= 0 else -ahead * 2 - 1))
    if columns.first_sequence:
        parts.append(bytes((_FIRST_SEQUENCE << 3 | _VARINT,)) + varint(columns.first_sequence))
    if len(columns):
        parts += [
            _field(_TIMESTAMP, columns.timestamp.astype("<i8").tobytes()),
            _field(_PRICE, columns.price.astype("<f8").tobytes()),
            _field(_SIZE, columns.size.astype("<f8").tobytes()),
            _field(_SIDE, columns.side.astype(np.uint8).tobytes()),
            _encode_ids(columns.trade_id),
            _field(_RECEIVED_AT, columns.received_at.astype("<i8").tobytes()),
        ]
    return b"".join(parts)


def decode(data: bytes) -> TickColumns:
    """The columns of a serialised TickBatch, or of one Tick; raises BadFrame for other bytes, or columns of unequal
    length.
    """
    columns = _decode_usual(data)
    if columns is None:
        columns = _decode_any(data)
    if len(columns) == 0 and (tick := _decode_tick(data, columns.first_sequence)) is not None:
        return tick
    count = len(columns)
    if not (
        len(columns.price) == len(columns.size) == len(columns.side) == count
        and len(columns.trade_id) == len(columns.received_at) == count
    ):
        raise BadFrame("MALFORMED", "the columns of this TickBatch differ in length")
    return columns


def decode_all(values: Sequence[bytes]) -> list[TickColumns | BadFrame]:
    """`decode` of each record, or its error. Records that are alike are read together: of few trades each, that takes a
    fifth of the time.
    """
    found: list[TickColumns | None] = [None] * len(values)
    by_length: dict[int, list[int]] = {}
    for place, value in enumerate(values):
        by_length.setdefault(len(value), []).append(place)
    for length, places in by_length.items():
        if length and len(places) >= _FEW_ALIKE:
            for place, columns in zip(places, _decode_alike([values[place] for place in places]), strict=True):
                found[place] = columns
    return [_decoded(value) if columns is None else columns for value, columns in zip(values, found, strict=True)]


def _decoded(value: bytes) -> TickColumns | BadFrame:
    try:
        return decode(value)
    except BadFrame as error:
        return error


def time_range(data: bytes) -> tuple[int, int, int | None] | None:
    """The oldest and newest `timestamp` of a TickBatch, and `exchange_ahead`, at a fraction of the cost of `decode`;
    None if only `decode` can find them.
    """
    if len(data) < 2 or data[0] != _TICKER << 3 | _BYTES or data[1] > 0x7F:
        return None
    at = 2 + data[1]
    scalars: dict[int, int] = {}
    while at < len(data) and data[at] in _SCALARS:
        read = read_varint(data, at + 1)
        if read is None:
            return None
        scalars[data[at] >> 3], at = read
    if at >= len(data) or data[at] != _TIMESTAMPS_TAG or (read := read_varint(data, at + 1)) is None:
        return None
    length, start = read
    if length == 0 or length % 8 or start + length > len(data):
        return None
    if length == 8:
        oldest = newest = int.from_bytes(data[start : start + 8], "little", signed=True)
    else:
        times = np.frombuffer(data, _NUMBERS[_TIMESTAMP], length // 8, start)
        oldest, newest = int(times.min()), int(times.max())
    return oldest, newest, _signed(scalars.get(_EXCHANGE_AHEAD))


def _encode_ids(ids: NDArray[np.bytes_]) -> bytes:
    if len(ids) <= _FEW_IDS:
        return b"".join([_field(_TRADE_ID, value) for value in ids.tolist()])
    text = np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), ids.dtype.itemsize)
    # numpy pads shorter strings with zeros at the end.
    width = int(np.count_nonzero(text[0]))
    if 0 < width < 128 and np.all(text[:, :width]) and not np.any(text[:, width:]):
        rows = np.empty((len(ids), width + 2), np.uint8)
        rows[:, 0] = _ID_TAG
        rows[:, 1] = width
        rows[:, 2:] = text[:, :width]
        return rows.tobytes()
    return b"".join(_field(_TRADE_ID, value) for value in ids.tolist())


@dataclass(slots=True)
class _Layout:
    """Where the contents of a record's fields begin and end: `scalars` and `columns` by the number of the field, `ids`
    with all tags and lengths.
    """

    ticker: tuple[int, int] = (0, 0)
    values: dict[int, int] = field(default_factory=dict)
    scalars: dict[int, tuple[int, int]] = field(default_factory=dict)
    columns: dict[int, tuple[int, int]] = field(default_factory=dict)
    ids: tuple[int, int] = (0, 0)
    trade_id: NDArray[np.bytes_] | None = None


def _layout(data: bytes) -> _Layout | None:
    """None if a field is split, unpacked, missing, unknown or of an unsupported width."""
    found = _Layout()
    columns = found.columns
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        number = tag >> 3
        is_short = at + 1 < end and data[at + 1] < 0x80
        read = (data[at + 1], at + 2) if is_short else read_varint(data, at + 1)
        if tag in _SCALARS:
            if read is None:
                return None
            # A number that the bus appends wins over the first.
            found.scalars[number] = at + 1, read[1]
            found.values[number], at = read
            continue
        if tag & 7 != _BYTES or read is None:
            return None
        length, start = read
        stop = start + length
        if stop > end:
            return None
        if number == _TRADE_ID and found.trade_id is None:
            first, last = columns.get(_TIMESTAMP, (0, 0))
            ids = _read_ids(data, at, (last - first) // 8)
            if ids is None:
                return None
            found.trade_id, stop = ids
            found.ids = at, stop
        elif number == _TICKER:
            found.ticker = start, stop
        elif number in _NUMBERS and number not in columns and length % 8 == 0:
            columns[number] = start, stop
        elif number == _SIDE and number not in columns:
            columns[number] = start, stop
            if data[start:stop].translate(None, _SIDES):
                return None
        else:
            return None
        at = stop
    return found if found.trade_id is not None and len(columns) == _COLUMNS else None


def _decode_usual(data: bytes) -> TickColumns | None:
    """None for an unusual layout."""
    layout = _layout(data)
    ticker = None if layout is None else _text(data, layout.ticker)
    if layout is None or ticker is None or layout.trade_id is None:
        return None
    columns = layout.columns
    start, stop = columns[_SIDE]
    return TickColumns(
        ticker=ticker,
        first_sequence=layout.values.get(_FIRST_SEQUENCE, 0),
        timestamp=_numbers(data, columns[_TIMESTAMP], _INTEGER, np.int64),
        price=_numbers(data, columns[_PRICE], _DOUBLE, np.float64),
        size=_numbers(data, columns[_SIZE], _DOUBLE, np.float64),
        side=np.frombuffer(data, np.uint8, stop - start, start),
        trade_id=layout.trade_id,
        received_at=_numbers(data, columns[_RECEIVED_AT], _INTEGER, np.int64),
        clock_ahead=_signed(layout.values.get(_CLOCK_AHEAD)),
        exchange_ahead=_signed(layout.values.get(_EXCHANGE_AHEAD)),
    )


def _numbers(data: bytes, span: tuple[int, int], written: "np.dtype[Any]", kind: type) -> NDArray[Any]:
    start, stop = span
    return np.frombuffer(data, written, (stop - start) // 8, start).astype(kind, copy=False)


def _text(data: bytes, span: tuple[int, int]) -> str | None:
    """None for bytes that are not UTF-8."""
    found = data[span[0] : span[1]].decode(errors="replace")
    return None if "\ufffd" in found else found


def _decode_alike(values: Sequence[bytes]) -> list[TickColumns | None]:
    """The columns of records of one length; None for those whose layout is unusual or not that of the first."""
    found: list[TickColumns | None] = [None] * len(values)
    layout = _layout(values[0])
    if layout is None:
        return found
    count = (layout.columns[_TIMESTAMP][1] - layout.columns[_TIMESTAMP][0]) // 8
    width = values[0][layout.ids[0] + 1] + 2
    sizes = {number: stop - start for number, (start, stop) in layout.columns.items()}
    if sizes != dict.fromkeys(_NUMBERS, 8 * count) | {_SIDE: count} or layout.ids[1] - layout.ids[0] != count * width:
        return found
    block = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), len(values[0]))
    is_content = np.zeros(block.shape[1], np.bool_)
    for start, stop in (layout.ticker, layout.ids, *layout.scalars.values(), *layout.columns.values()):
        is_content[start:stop] = True
    ids = block[:, slice(*layout.ids)].reshape(len(values), count, width)
    side = block[:, slice(*layout.columns[_SIDE])]
    is_alike = (block[:, ~is_content] == block[0, ~is_content]).all(axis=1) & (side < len(_SIDES)).all(axis=1)
    # As for one record: ids with zero bytes or non-ASCII bytes are read one by one.
    is_alike &= (ids[:, :, :2] == ids[0, 0, :2]).all(axis=(1, 2)) & (ids[:, :, 2:] - np.uint8(1) < 127).all(axis=(1, 2))
    scalars: dict[int, list[int]] = {}
    for number, (start, stop) in layout.scalars.items():
        digits = block[:, start:stop]
        is_alike &= (digits >> 7 == block[0, start:stop] >> 7).all(axis=1)
        shifts = np.arange(0, 7 * (stop - start), 7, dtype=np.uint64)
        scalars[number] = ((digits & 0x7F).astype(np.uint64) << shifts).sum(axis=1).tolist()

    def numbers(number: int, kind: type) -> NDArray[Any]:
        part = np.ascontiguousarray(block[:, slice(*layout.columns[number])])
        return part.view(_NUMBERS[number]).astype(kind, copy=False)

    timestamp, received_at = numbers(_TIMESTAMP, np.int64), numbers(_RECEIVED_AT, np.int64)
    price, size = numbers(_PRICE, np.float64), numbers(_SIZE, np.float64)
    trade_id = np.ascontiguousarray(ids[:, :, 2:]).view(f"S{width - 2}").reshape(len(values), count)
    for place in np.flatnonzero(is_alike).tolist():
        ticker = _text(values[place], layout.ticker)
        if ticker is None:
            continue
        own = {number: known[place] for number, known in scalars.items()}
        found[place] = TickColumns(
            ticker=ticker,
            first_sequence=own.get(_FIRST_SEQUENCE, 0),
            timestamp=timestamp[place],
            price=price[place],
            size=size[place],
            side=side[place],
            trade_id=trade_id[place],
            received_at=received_at[place],
            clock_ahead=_signed(own.get(_CLOCK_AHEAD)),
            exchange_ahead=_signed(own.get(_EXCHANGE_AHEAD)),
        )
    return found


def _signed(zigzag: int | None) -> int | None:
    if zigzag is None:
        return None
    return -(zigzag + 1 >> 1) if zigzag & 1 else zigzag >> 1


def _read_ids(data: bytes, at: int, count: int) -> tuple[NDArray[np.bytes_], int] | None:
    """`count` neighbouring fields from `at` on, in a few runs of equal length, and their end; or None."""
    runs: list[NDArray[np.bytes_]] = []
    while count and len(runs) < _MAX_ID_RUNS and at + 1 < len(data):
        length = data[at + 1]
        width = length + 2
        possible = min(count, (len(data) - at) // width)
        if data[at] != _ID_TAG or not 0 < length < 128 or not possible:
            return None
        stop = at + possible * width
        # Compared as bytes, because that costs far less than arrays for the few trades of most records.
        if data[at:stop:width].strip(_ID_TAG_BYTE) or data[at + 1 : stop : width].strip(data[at + 1 : at + 2]):
            rows = np.frombuffer(data, np.uint8, stop - at, at).reshape(possible, width)
            possible = int(((rows[:, 0] != _ID_TAG) | (rows[:, 1] != length)).argmax())
            stop = at + possible * width
        run = data[at:stop]
        # A fixed-width string would lose trailing zero bytes, and non-ASCII bytes must be checked to be UTF-8.
        if not run.isascii() or b"\0" in run:
            return None
        # A view without the tags and lengths: joining the ids of several records then copies them only once.
        runs.append(np.ndarray((possible,), _ID_TYPES[length], data, at + 2, (width,)))
        at = stop
        count -= possible
    if count or not runs:
        return None
    return (runs[0] if len(runs) == 1 else np.concatenate(runs)), at


def _decode_any(data: bytes) -> TickColumns:
    message = TickBatch()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadFrame("MALFORMED", "this is not a valid TickBatch") from error
    ids = [text.encode() for text in message.trade_id]
    if any(value.endswith(b"\0") for value in ids):
        raise BadFrame("MALFORMED", "a trade id ends with a zero byte")
    times = np.array(message.timestamp, np.uint64), np.array(message.received_at, np.uint64)
    return TickColumns(
        ticker=message.ticker,
        first_sequence=message.first_sequence,
        timestamp=times[0].astype(np.int64),
        price=np.array(message.price, np.float64),
        size=np.array(message.size, np.float64),
        side=np.array([side if 0 <= side <= 2 else 0 for side in message.side], np.uint8),
        trade_id=np.array(ids, np.bytes_) if ids else np.empty(0, "S1"),
        received_at=times[1].astype(np.int64),
        clock_ahead=message.clock_ahead if message.HasField("clock_ahead") else None,
        exchange_ahead=message.exchange_ahead if message.HasField("exchange_ahead") else None,
    )


def _decode_tick(data: bytes, sequence: int) -> TickColumns | None:
    """One Tick as columns. Its id and time have different wire types from the same field numbers of a TickBatch."""
    tick = Tick()
    try:
        tick.ParseFromString(data)
    except DecodeError:
        return None
    trade_id = tick.trade_id.encode()
    if not tick.timestamp or not trade_id or trade_id.endswith(b"\0"):
        return None
    return TickColumns(
        ticker=tick.ticker,
        first_sequence=sequence,
        timestamp=np.array([tick.timestamp], np.uint64).astype(np.int64),
        price=np.array([tick.price]),
        size=np.array([tick.size]),
        side=np.array([tick.side if 0 <= tick.side <= 2 else 0], np.uint8),
        trade_id=np.array([trade_id], np.bytes_),
        received_at=np.array([tick.received_at], np.uint64).astype(np.int64),
    )


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | _BYTES,)) + varint(len(value)) + value
