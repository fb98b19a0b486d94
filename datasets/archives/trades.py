"""Reads trades from venues' public archives: long files, read and checked in pieces, in the order of ids or times."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from candlewright.wire.grid import EARLIEST_NS, LATEST_NS, SECOND
from candlewright.wire.ticker import Ticker
from datasets.archives import binance, kraken
from datasets.archives.candles import Wanted, times
from datasets.archives.files import BadFile, Lines, begins_with_header, checked_sum, chunks_of, kept, unpacked
from iceberg.tables import TICKS

#: Limits of a file's unpacked size, and of the trades of one import.
MAX_BYTES = 16 << 30
MAX_TRADES = 100_000_000
_MICRO = 1_000
#: Columns of an import; trades that were not received live have no `received_at`.
SCHEMA = pa.schema([field for field in TICKS.arrow_schema if field.name not in ("ts", "received_at")])

Places = NDArray[np.int64]


@dataclass(slots=True)
class Last:
    """The last trade so far, of this file or the previous one. `number`: its id, or its time (ns) if the files have no
    ids; `again`: the number of trades at that time so far; `missing`: the number of ids that the files skip.
    """

    file: Path | None = None
    number: int = -1
    again: int = 0
    missing: int = 0
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TradeFormat:
    """The format of one venue's files. `rows` converts lines to trades, and updates `Last`; `name` matches file names,
    with the market in the group `symbol`; `symbols` returns the names of a ticker's market; `has_sum`: files have a
    CHECKSUM file.
    """

    venue: str
    columns: tuple[str, ...]
    name: re.Pattern[str]
    symbols: Callable[[Ticker], Sequence[str]]
    rows: Callable[[Lines, Last], pa.Table]
    has_sum: bool = False

    def read(self, file: Path, wanted: Wanted, last: Last) -> Iterator[pa.Table]:
        """The file's trades in ascending order, in pieces. Raises BadFile."""
        names = self._names(file, wanted)
        with kept(file) as original:
            if self.has_sum and not checked_sum(file, original):
                last.remarks.append(f"there is no {file.name}.CHECKSUM beside it, so its content was not verified")
            with unpacked(file, original, MAX_BYTES, names=names) as content:
                has_header = begins_with_header(content.peek())
                for lines in chunks_of(file, content, self.columns, has_header=has_header):
                    found = self.rows(lines, last)
                    last.file = file
                    yield found.append_column("ticker", _constant(str(wanted.ticker), len(found))).select(SCHEMA.names)
        if last.file != file:
            raise BadFile(file, "it has no rows")

    def _names(self, file: Path, wanted: Wanted) -> list[str]:
        """Possible names of the wanted file inside a zip file. Raises BadFile for another venue or market."""
        if wanted.ticker.venue != self.venue:
            raise BadFile(file, f"the archive is from {self.venue}, but {wanted.ticker} is on {wanted.ticker.venue}")
        symbols = self.symbols(wanted.ticker)
        found = self.name.fullmatch(file.name)
        if found is not None and found["symbol"].upper() not in symbols:
            raise BadFile(file, f"its market is {found['symbol']}, not {wanted.ticker}")
        return [f"{symbol}.csv" for symbol in symbols] if self.venue == kraken.VENUE else []


def in_turn(files: Sequence[Path], form: TradeFormat, wanted: Wanted) -> list[Path]:
    """The files ordered by their first trades. Raises BadFile if one cannot be read."""
    firsts = []
    for file in files:
        last = Last()
        next(form.read(file, wanted, last))
        firsts.append((last.number, file))
    return [file for _, file in sorted(firsts)]


def _binance_trades(lines: Lines, last: Last) -> pa.Table:
    numbers = lines.integers("id")
    _go_on(lines, last, numbers, numbers, "id")
    ids = pa.array(numbers).cast(pa.string())
    return _table(lines, ids, times(lines, "time")[0], "price", "qty", _sides(lines))


def _binance_aggregates(lines: Lines, last: Last) -> pa.Table:
    first, final = lines.integers("first_id"), lines.integers("last_id")
    lines.refuse(final < first, "its last trade is before its first")
    _go_on(lines, last, first, final, "first_id")
    one, other = (pa.array(each).cast(pa.string()) for each in (first, final))
    several = pc.binary_join_element_wise(one, other, "-")
    ids = pc.if_else(pa.array(first == final), one, several)
    return _table(lines, ids, times(lines, "time")[0], "price", "qty", _sides(lines))


def _kraken_trades(lines: Lines, last: Last) -> pa.Table:
    """Kraken's files have no ids, so a trade's id is made of its time and its position among those of that time."""
    lines.refuse(~_are_times(lines), "time is not a time in seconds: {}", "time")
    parts = pc.split_pattern(pc.utf8_trim_whitespace(lines.table["time"]), ".", max_splits=1).combine_chunks()
    whole = pc.list_element(parts, 0).cast(pa.int64())
    fractions = pc.if_else(pc.equal(pc.list_value_length(parts), 2), _second_of(parts), "")
    found = whole.to_numpy() * SECOND + pc.utf8_rpad(fractions, 9, "0").cast(pa.int64()).to_numpy()
    lines.refuse((found < EARLIEST_NS) | (found >= LATEST_NS), "time is not a plausible time in seconds: {}", "time")
    _check_end(lines, last, int(found[0]))
    lines.refuse(
        np.diff(found, prepend=max(last.number, 0)) < 0, "time is before that of the previous line: {}", "time"
    )
    starts = np.flatnonzero(np.diff(found, prepend=-1))
    place = np.arange(len(found)) - np.repeat(starts, np.diff(starts, append=len(found)))
    if last.number == found[0]:
        same = int(starts[1]) if len(starts) > 1 else len(found)
        place[:same] += last.again
    last.number, last.again = int(found[-1]), int(place[-1]) + 1
    moments, numbers = (pa.array(each).cast(pa.string()) for each in (found, place))
    ids = pc.binary_join_element_wise("t", pc.binary_join_element_wise(moments, numbers, "."), "")
    return _table(lines, ids, found, "price", "volume", _constant("unknown", len(found)))


def _second_of(parts: pa.ListArray) -> pa.Array:
    """The last element of each list."""
    return pc.take(parts.flatten(), pc.cumulative_sum(pc.list_value_length(parts)).cast(pa.int64()).to_numpy() - 1)


def _are_times(lines: Lines) -> NDArray[np.bool_]:
    column = pc.match_substring_regex(lines.table["time"], r"^ *[0-9]{9,10}(\.[0-9]{1,9})? *$")
    found: NDArray[np.bool_] = column.to_numpy()
    return found


def _go_on(lines: Lines, last: Last, first: Places, final: Places, name: str) -> None:
    """Check that ids ascend, across files too, and count the skipped ones."""
    _check_end(lines, last, int(first[0]))
    before = np.concatenate([[last.number], final[:-1]])
    lines.refuse(first == before, f"{name} repeats that of the previous line: {{}}", name)
    lines.refuse(first < before, f"{name} is before that of the previous line: {{}}", name)
    began = first[0] if last.number < 0 else before[0] + 1
    last.missing += int(final[-1] - began + 1 - (final - first + 1).sum())
    last.number = int(final[-1])


def _check_end(lines: Lines, last: Last, first: int) -> None:
    if last.file not in (None, lines.file) and first <= last.number:
        raise BadFile(lines.file, f"it begins before {last.file} ends: pass each trade only once", lines.place(0))


def _sides(lines: Lines) -> pa.Array:
    """The taker's side: it sold if the buyer was the maker."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(lines.table["is_buyer_maker"]))
    is_known = pc.is_in(text, pa.array(["true", "false"]))
    lines.refuse(~is_known.to_numpy(), "is_buyer_maker is neither true nor false: {}", "is_buyer_maker")
    return pc.if_else(pc.equal(text, "true"), "sell", "buy").combine_chunks()


def _table(lines: Lines, ids: pa.Array, moments: Places, price: str, size: str, side: pa.Array) -> pa.Table:
    prices, sizes = lines.numbers(price), lines.numbers(size)
    lines.refuse(prices <= 0, f"{price} is not above zero: {{}}", price)
    lines.refuse(sizes <= 0, f"{size} is not above zero: {{}}", size)
    columns = {"trade_id": ids, "ts_ns": moments, "price": prices, "size": sizes, "side": side}
    return pa.table(columns)


def _constant(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _binance_symbols(ticker: Ticker) -> list[str]:
    return [ticker.symbol.replace("/", "").upper()]


def _binance_name(kind: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<symbol>[^-]+)-{kind}-[0-9]{{4}}-[0-9]{{2}}(-[0-9]{{2}})?\.(zip|csv)", re.IGNORECASE)


_OF_BINANCE = ("time", "is_buyer_maker", "is_best_match")
TRADE_FORMATS = {
    "binance-trades": TradeFormat(
        binance.VENUE,
        ("id", "price", "qty", "quote_qty", *_OF_BINANCE),
        _binance_name("trades"),
        _binance_symbols,
        _binance_trades,
        has_sum=True,
    ),
    "binance-aggtrades": TradeFormat(
        binance.VENUE,
        ("aggregate_id", "price", "qty", "first_id", "last_id", *_OF_BINANCE),
        _binance_name("aggTrades"),
        _binance_symbols,
        _binance_aggregates,
        has_sum=True,
    ),
    "kraken-trades": TradeFormat(
        kraken.VENUE,
        ("time", "price", "volume"),
        re.compile(r"(?P<symbol>[A-Z0-9.]+)\.csv", re.IGNORECASE),
        kraken.pairs_of,
        _kraken_trades,
    ),
}
