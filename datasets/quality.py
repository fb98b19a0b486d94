"""Assesses a stored series of candles: what is missing and why, what looks wrong, and how it compares with its own
trades.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And

from bars import exact
from bars.aggregate import Bars, from_trades
from candlewright.wire.grid import SECOND, count_opens, first_open_from
from candlewright.wire.ranges import common, without
from core.settings import Settings
from datasets.stored import missing_ranges, open_times
from iceberg.catalog import open_catalog
from iceberg.coverage import read_holes
from iceberg.filters import equal
from iceberg.read import read_gaps, read_ohlc, read_ticks, tick_bounds
from iceberg.scan import scan_table
from iceberg.tables import OHLC_REVISIONS

_DAY = 86_400 * SECOND
#: A candle is an outlier if its close moves by more than OUTLIER_TIMES the usual move of its series and by more than
#: OUTLIER_LEAST of the price. Requiring both keeps outliers rare in calm and in volatile markets.
OUTLIER_TIMES, OUTLIER_LEAST = 30.0, 0.02
_LISTED = 10
_VALUES = ("open", "high", "low", "close", "volume")


class Day(NamedTuple):
    """A UTC day of a series. `day`: days since 1970-01-01; `got`: stored candles; `holes`: candles that the venue does
    not have; `expected`: open times in the day.
    """

    day: int
    got: int
    holes: int
    expected: int


class Outlier(NamedTuple):
    """`time`: open time, ns; `move`: relative change of the close since the previous candle."""

    time: int
    move: float


@dataclass(slots=True)
class Trades:
    """The comparison of an exchange's candles with bars made from the trades that the platform itself received.

    Only candles with trades before and after them are compared, so that the start and end of a subscription do not
    matter. `volume_off`: the largest volume difference, relative to the candle's volume.
    """

    compared: int = 0
    equal: int = 0
    price_differs: int = 0
    volume_differs: int = 0
    volume_off: float = 0.0


@dataclass(kw_only=True, slots=True)
class Quality:
    """The quality of one series. Times are ns since the epoch; counts are of candles.

    `holes`: a finished request found that the venue has none. `unknown`: missing for an unknown reason. `malformed`: a
    price that is not positive, a negative volume, or a high and low that do not enclose open and close. `delay_ms`:
    (median, 99th percentile) of the time between a trade and its receipt, over the days with trades; None without
    trades. A negative delay means that the exchange's clock is ahead.
    """

    ticker: str
    period_seconds: int
    rows: int
    first: int | None = None
    last: int | None = None
    holes: int = 0
    unknown: int = 0
    incomplete: int = 0
    duplicates: int = 0
    malformed: int = 0
    without_trades: int = 0
    longest_without_trades: int = 0
    revised: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    outliers: list[Outlier] = field(default_factory=list)
    outlier_count: int = 0
    gaps_open: int = 0
    gaps_repaired: int = 0
    trades: Trades = field(default_factory=Trades)
    delay_ms: tuple[float, float] | None = None
    unknown_ranges: list[tuple[int, int]] = field(default_factory=list)
    days: list[Day] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """A sentence with a count for each kind of problem found; empty for a faultless series."""
        found = [
            ("candles missing inside the range", self.unknown),
            ("incomplete candles", self.incomplete),
            ("candles stored twice", self.duplicates),
            ("candles with impossible values", self.malformed),
            ("unrepaired gaps in live trades", self.gaps_open),
            ("candles whose prices differ from the received trades", self.trades.price_differs),
            ("candles whose volume differs from the received trades", self.trades.volume_differs),
            ("candles with a price jump", self.outlier_count),
        ]
        return [f"{text}: {count}" for text, count in found if count]


def examine(
    settings: Settings, ticker: str, period_seconds: int, *, start: int, end: int, with_trades: bool = True
) -> Quality:
    """Examine the stored candles with start <= open time < end (ns). `with_trades` also reads the stored trades of the
    range.
    """
    table = read_ohlc(settings, ticker, period_seconds, start_ns=start, end_ns=end)
    found = Quality(ticker=ticker, period_seconds=period_seconds, rows=table.num_rows)
    if table.num_rows:
        _shape(found, table)
        _presence(settings, found, open_times(table))
        found.revised = _revised(settings, found)
    gaps = read_gaps(settings, ticker)
    inside = pc.and_(
        pc.less(gaps["from_ts"].cast(pa.int64()), end // 1_000),
        pc.greater_equal(gaps["to_ts"].cast(pa.int64()), start // 1_000),
    )
    repaired = Counter(gaps.filter(inside)["repaired"].to_pylist())
    found.gaps_open, found.gaps_repaired = repaired[False], repaired[True]
    if with_trades:
        _beside_trades(settings, found, table, start, end)
    return found


def _shape(found: Quality, table: pa.Table) -> None:
    """Fill in what the rows themselves show."""
    opens = open_times(table)
    found.first, found.last = int(opens[0]), int(opens[-1])
    found.incomplete = table.num_rows - pc.sum(pc.fill_null(table["complete"], False)).as_py()
    found.duplicates = int((np.diff(opens) == 0).sum())
    found.sources = dict(sorted(Counter(table["source"].to_pylist()).items()))
    price_open, high, low, close, volume = (table[name].to_numpy() for name in _VALUES)
    sound = (low > 0) & (low <= np.minimum(price_open, close)) & (high >= np.maximum(price_open, close)) & (volume >= 0)
    found.malformed = int((~sound).sum())
    still = volume == 0
    found.without_trades = int(still.sum())
    found.longest_without_trades = _longest(still)
    with np.errstate(divide="ignore", invalid="ignore"):
        moves = np.diff(close) / close[:-1]
    usual = np.median(np.abs(moves[moves != 0])) if np.any(moves != 0) else 0.0
    jumps = np.flatnonzero(np.abs(moves) > max(OUTLIER_TIMES * usual, OUTLIER_LEAST))
    found.outlier_count = len(jumps)
    largest = jumps[np.argsort(-np.abs(moves[jumps]), kind="stable")][:_LISTED]
    found.outliers = [Outlier(int(opens[place + 1]), float(moves[place])) for place in np.sort(largest)]


def _longest(flags: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _presence(settings: Settings, found: Quality, opens: NDArray[np.int64]) -> None:
    period = found.period_seconds
    missing = missing_ranges(opens, period)
    holes = common(missing, read_holes(settings, found.ticker, period)) if missing else []
    total = sum(count_opens(*each, period) for each in missing)
    found.holes = sum(count_opens(*each, period) for each in holes)
    found.unknown = total - found.holes
    found.unknown_ranges = without(missing, holes)
    got = Counter((np.unique(opens) // _DAY).tolist())
    absent: Counter[int] = Counter()
    for start, end in holes:
        for day in range(start // _DAY, (end - 1) // _DAY + 1):
            absent[day] += count_opens(max(start, day * _DAY), min(end, (day + 1) * _DAY), period)
    first, end = int(opens[0]), int(opens[-1]) + 1
    for day in range(first // _DAY, (end - 1) // _DAY + 1):
        expected = count_opens(max(first, day * _DAY), min(end, (day + 1) * _DAY), period)
        if expected:
            found.days.append(Day(day, got[day], absent[day], expected))


def _revised(settings: Settings, found: Quality) -> int:
    """How many candles were corrected after their first publication."""
    try:
        table = open_catalog(settings).load_table(OHLC_REVISIONS.identifier)
    except NoSuchTableError:
        return 0
    wanted = And(equal("ticker", found.ticker), equal("period_seconds", found.period_seconds))
    rows = scan_table(table, wanted, selected_fields=("open_time", "revision")).to_arrow()
    corrected = rows.filter(pc.greater(rows["revision"], 0))
    times = np.unique(open_times(corrected)) if corrected.num_rows else np.empty(0, np.int64)
    return int(((times >= (found.first or 0)) & (times <= (found.last or 0))).sum())


def _beside_trades(settings: Settings, found: Quality, candles: pa.Table, start: int, end: int) -> None:
    bounds = tick_bounds(settings, found.ticker, start_ns=start, end_ns=end)
    if bounds is None:
        return
    own = candles.filter(pc.field("source") == "exchange")
    opens = open_times(own)
    delays = []
    # Complete candles of about a day, with one more on each side, since a candle is compared only if it has neighbours.
    step = found.period_seconds * SECOND
    length = -(-_DAY // step) * step
    begin = first_open_from(bounds[0] - step + 1, found.period_seconds)
    for first in range(begin, bounds[1], length):
        trades = read_ticks(settings, found.ticker, start_ns=first - step, end_ns=first + length + step)
        if not trades.num_rows:
            continue
        times = trades["ts_ns"].to_numpy()
        received = trades["received_at"].cast(pa.int64()).to_numpy(zero_copy_only=False) * 1_000.0
        delays.append((received - times)[(times >= first) & (times < first + length)] / 1e6)
        made = bars_of(trades, found.period_seconds)
        inside = own.slice(*_slice(opens, first, first + length))
        _compare(found.trades, inside, made, step)
    kept = np.concatenate([each[np.isfinite(each)] for each in delays]) if delays else np.empty(0)
    if len(kept):
        median, late = np.percentile(kept, (50, 99))
        found.delay_ms = round(float(median), 3), round(float(late), 3)


def _slice(opens: NDArray[np.int64], start: int, end: int) -> tuple[int, int]:
    first, last = np.searchsorted(opens, (start, end))
    return int(first), int(last - first)


def bars_of(trades: pa.Table, period_seconds: int) -> Bars:
    """The bars of one ticker's trades."""
    ids = trades["trade_id"]
    are_numbers = pc.all(pc.match_substring_regex(ids, r"^[0-9]{1,18}$")).as_py()
    order = ids.cast(pa.int64()).to_numpy() if are_numbers else np.arange(trades.num_rows)
    group = np.zeros(trades.num_rows, np.int64)
    times, prices, sizes = (trades[name].to_numpy() for name in ("ts_ns", "price", "size"))
    return from_trades(group, times, order, price=prices, size=sizes, period_seconds=period_seconds)


def _compare(total: Trades, candles: pa.Table, made: Bars, step: int) -> None:
    rows, places = _shared(candles, made, step)
    if not rows.num_rows:
        return
    prices, volumes = _equal(rows, made, places)
    total.compared += len(places)
    total.equal += int((prices & volumes).sum())
    total.price_differs += int((~prices).sum())
    total.volume_differs += int((~volumes).sum())
    theirs, ours = rows["volume"].to_numpy(), exact.to_doubles(made.volume)[places]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(ours - theirs) / np.where(theirs == 0, 1.0, theirs)
    total.volume_off = max(total.volume_off, float(off.max(initial=0.0)))


def agreement(candles: pa.Table, made: Bars, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The open times (ns) of the candles that can be compared with bars of trades, and which of them are equal."""
    rows, places = _shared(candles, made, step)
    prices, volumes = _equal(rows, made, places)
    return open_times(rows), prices & volumes


def _shared(candles: pa.Table, made: Bars, step: int) -> tuple[pa.Table, NDArray[np.int64]]:
    """The candles that have trades before and after them, and the index of each one's bar."""
    bars = made.open_time
    inner = np.zeros(len(bars), np.bool_)
    inner[1:-1] = (np.diff(bars)[:-1] == step) & (np.diff(bars)[1:] == step)
    opens = open_times(candles)
    places = np.searchsorted(bars, opens)
    places[places == len(bars)] = 0
    shared = (bars[places] == opens) & inner[places] if len(bars) else np.zeros(len(opens), np.bool_)
    return candles.filter(pa.array(shared)), places[shared]


def _equal(rows: pa.Table, made: Bars, places: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each row, whether its prices and whether its volume equal those of its bar."""
    pairs = [(rows[name].to_numpy(), getattr(made, name)[places]) for name in ("open", "high", "low", "close")]
    prices = np.logical_and.reduce([theirs == ours for theirs, ours in pairs])
    volumes: NDArray[np.bool_] = rows["volume"].to_numpy() == exact.to_doubles(made.volume)[places]
    return prices, volumes
