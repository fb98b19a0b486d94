"""`candlewright trigger try --ticker`: a trigger over stored bars or trades of a ticker, as it would have run live."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright.cli.chart import Candle
from candlewright.cli.output import say
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period
from candlewright.wire.times import format_nanoseconds
from candlewright_cep import (
    Clock,
    Events,
    ReleaseBuffer,
    StreamQuery,
    TriggerRejected,
    TriggerStream,
    compile_query,
    compile_stream,
)
from candlewright_platform.cli.stored.near_tables import check_tables
from candlewright_platform.cli.stored.near_tickers import near_stored
from core.settings import Settings
from triggers.events.firings import firings
from triggers.records.intake import Intake
from triggers.running.cooldowns import fed
from triggers.texts.check import INPUTS, TriggerOptions, TriggerRules, compile_trigger

Progress = Callable[[int, int], None]

#: The bars that a text reads if its parameters name no period.
DEFAULT_PERIOD_SECONDS = 60
#: Rows that the engine gets at a time, and the time range of trades that is read at a time.
CHUNK_ROWS = 50_000
WINDOW_NS = 86_400 * SECOND
#: Candles kept for the chart of trades; beyond that, pairs are merged.
CHART_CANDLES = 2_000
_FAR_NS = (1 << 63) - 1


@dataclass(kw_only=True, slots=True)
class Backtest:
    """`table`: the trigger's rows; `fired`: event time (ns) of each event; `candles`: the input.

    `rows`: how many there were, from `first` to `last` (event times, ns).
    """

    table: pa.Table
    candles: list[Candle]
    what: str
    rows: int = 0
    first: int = 0
    last: int = 0
    fired: list[int] = field(default_factory=list)
    suppressed: int = 0


def run(
    settings: Settings,
    sql: str,
    parameters: Mapping[str, str],
    *,
    ticker: str,
    since: int | None,
    table: str | None,
    progress: Progress,
    views: Mapping[str, str] | None = None,
    as_seen: bool = False,
) -> Backtest:
    """`since` in ns; `table`: what a bare condition is about (ticks, or ohlc with a `period_seconds` parameter);
    `progress` is called with per cent; `views`: texts that it may read by name.

    `as_seen`: over bars as they were published after `since`, including late ones and corrections in order; the rows
    are those of the events of a trigger registered at that time.

    Raises TriggerRejected, and CandlewrightError where nothing is stored or `as_seen` cannot be answered.
    """
    options = TriggerOptions.of(parameters)
    if as_seen:
        return _run_as_seen(
            settings, sql, parameters, ticker=ticker, since=since or 0, table=table, progress=progress, views=views
        )
    default = table or ("ohlc" if options.period_seconds else "ticks")
    try:
        query = compile_stream(
            sql,
            INPUTS,
            parameters,
            default_table=default,
            partitions_close=True,
            period_seconds=options.period_seconds,
            views=views,
        )
    except TriggerRejected as live:
        return _run_whole(
            settings, sql, parameters, ticker=ticker, since=since, default=default, live=live, views=views
        )
    if query.joined is not None:
        return _run_whole(
            settings, sql, parameters, ticker=ticker, since=since, default=default, live=None, views=views
        )
    if options.deadman_ns:
        say("deadman_seconds uses the wall clock: silences are not part of a run over stored data")
    return _Runner(query, options, ticker).run(_stored(settings, query.input_name, options, ticker, since), progress)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Rows in order, in parts, each with the progress towards `total` after it."""

    what: str
    parts: Iterator[tuple[pa.Table, int]]
    total: int


class _Events:
    """The rows of events, without those that `cooldown_seconds` suppresses."""

    def __init__(self, query: StreamQuery, options: TriggerOptions) -> None:
        self._query = query
        self._options = options
        self._found: list[pa.Table] = []
        self._next_free: dict[int, int] = {}

    def add(self, events: Events, result: Backtest, label: int = 0) -> None:
        """`label`: of the input, each with its own cooldown."""
        kept: list[int] = []
        row = 0
        for firing in firings(events, self._query.columns, label, numbers_hold=True):
            rows = range(row, row + len(firing.rows))
            row = rows.stop
            if self._options.cooldown_ns and firing.time_ns < self._next_free.get(label, 0):
                result.suppressed += 1
                continue
            self._next_free[label] = firing.time_ns + self._options.cooldown_ns
            result.fired.append(firing.time_ns)
            kept.extend(rows)
        if kept:
            self._found.append(events.table.take(pa.array(kept)))

    def table(self) -> pa.Table:
        if self._found:
            return pa.concat_tables(self._found)
        return TriggerStream(query=self._query).feed(self._query.source.schema.empty_table(), Clock()).table


class _Runner:
    def __init__(self, query: StreamQuery, options: TriggerOptions, ticker: str) -> None:
        self._query = query
        self._options = options
        self._ticker = ticker
        self._stream = TriggerStream(query=query)
        self._buffer = ReleaseBuffer(query.source.time_columns[-1], "ticker")
        self._events = _Events(query, options)

    def run(self, stored: _Stored, progress: Progress) -> Backtest:
        chart = _Chart()
        result = Backtest(table=pa.table({}), candles=[], what=stored.what)
        before = 0
        for part, done in stored.parts:
            if part.num_rows:
                times = _nanoseconds(part.column(self._query.source.time_columns[-1]))
                result.first = result.first if result.rows else int(times[0])
                result.last = int(times[-1])
                result.rows += part.num_rows
                chart.add(part, times)
                for start in range(0, part.num_rows, CHUNK_ROWS):
                    self._feed(self._buffer.push(part.slice(start, CHUNK_ROWS)).rows, result)
                    fed = min(1.0, (start + CHUNK_ROWS) / part.num_rows)
                    progress(round(100 * (before + fed * (done - before)) / stored.total), 100)
            before = done
        if result.rows:
            self._feed(self._buffer.close({self._ticker}), result)
        result.table = self._events.table()
        result.candles = chart.candles()
        return result

    def _feed(self, released: pa.Table, result: Backtest) -> None:
        self._events.add(fed(self._stream, released, self._buffer.clock, options=self._options), result)


# ---- as it was seen
def _run_as_seen(
    settings: Settings,
    sql: str,
    parameters: Mapping[str, str],
    *,
    ticker: str,
    since: int,
    table: str | None,
    progress: Progress,
    views: Mapping[str, str] | None,
) -> Backtest:
    """Bars go through the intake of the running engine, in the order in which they were published."""
    from iceberg import read_published

    rules = TriggerRules.of(settings.triggers)
    compiled = compile_trigger(sql, parameters, rules, default_table=table or "", views=views)
    options = compiled.options
    if not compiled.is_on_bars:
        raise CandlewrightError(
            "--as-seen is for triggers over ohlc: stored trades have neither their order of arrival nor their delay"
        )
    if options.deadman_ns:
        say("deadman_seconds uses the wall clock: silences are not part of a run over stored data")
    check_tables(settings)
    before, seen = read_published(settings, ticker, options.period_seconds, since_ns=since)
    what = f"bars of {format_period(options.period_seconds)}" if options.period_seconds else "bars"
    if not seen.num_rows:
        period = format_period(options.period_seconds or DEFAULT_PERIOD_SECONDS)
        raise CandlewrightError(
            f"no {what} of {ticker} were published{_since(since or None)}; a live subscription publishes them"
            f" (`candlewright watch {ticker} --period {period}`)"
        )
    intake = Intake(rules)
    for _ in intake.bars(_published(before), {}, 0):
        pass
    streams: dict[int, TriggerStream] = {}
    first, events, chart = intake.candles.next_row, _Events(compiled.query, options), _Chart()
    result = Backtest(table=pa.table({}), candles=[], what=f"{what} as they were published", rows=seen.num_rows)
    for start in range(0, seen.num_rows, CHUNK_ROWS):
        part = seen.slice(start, CHUNK_ROWS)
        values = _published(part)
        for due in intake.bars(values, {}, 0, revised=[compiled.query.needs_merge] if options.revisions else []):
            if due.revisions == options.revisions:
                stream = streams.setdefault(due.label, TriggerStream(query=compiled.query, active_from=first))
                events.add(stream.feed(due.moved.rows, due.moved.clock), result, due.label)
        progress(round(100 * min(1.0, (start + CHUNK_ROWS) / seen.num_rows)), 100)
    times = _nanoseconds(seen["open_time"].cast(pa.timestamp("ns", "UTC")))
    result.first, result.last = int(times.min()), int(times.max())
    if pc.count_distinct(seen["period_seconds"]).as_py() == 1:
        order = np.argsort(times, kind="stable")
        chart.add(seen.take(pa.array(order)), times[order])
    result.table, result.candles = events.table(), chart.candles()
    return result


def _published(bars: pa.Table) -> list[bytes]:
    """Rows of `market.ohlc_revisions` as records of the topic."""
    columns = {name: bars[name] for name in bars.column_names if name != "known_at"}
    columns["open_time"] = columns["open_time"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    return [OHLCV(**dict(zip(columns, row, strict=True))).SerializeToString() for row in rows]


# ---- what is stored
def _stored(settings: Settings, name: str, options: TriggerOptions, ticker: str, since: int | None) -> _Stored:
    check_tables(settings)
    if name == "ohlc":
        period = options.period_seconds or DEFAULT_PERIOD_SECONDS
        bars = _bars(settings, ticker, period, since)
        if not bars.num_rows:
            raise CandlewrightError(
                f"no bars of {format_period(period)} of {ticker} are stored{_since(since)}"
                f"{near_stored(settings, ticker)}; fetch some with"
                f" `candlewright history {ticker} --period {format_period(period)} --start … --end …`"
            )
        return _Stored(f"bars of {format_period(period)}", _cut(bars), bars.num_rows)
    windows = _windows(settings, ticker, since)
    parts = _peeked(_ticks(settings, ticker, windows))
    if parts is None:
        raise CandlewrightError(
            f"no trades of {ticker} are stored{_since(since)}{near_stored(settings, ticker)}; a realtime request"
            " stores them (`client.realtime(ticker)`), and bars are tried with --param period_seconds=60"
        )
    return _Stored("trades", parts, len(windows))


def _bars(settings: Settings, ticker: str, period: int, since: int | None) -> pa.Table:
    from iceberg.read import read_ohlc

    return read_ohlc(settings, ticker, period, start_ns=since or 0, end_ns=_FAR_NS).cast(INPUTS["ohlc"].schema)


def _cut(table: pa.Table) -> Iterator[tuple[pa.Table, int]]:
    for start in range(0, table.num_rows, CHUNK_ROWS):
        part = table.slice(start, CHUNK_ROWS)
        yield part, start + part.num_rows


def _windows(settings: Settings, ticker: str, since: int | None) -> list[tuple[int, int]]:
    """Ranges of a day each that may have trades."""
    from iceberg.read import tick_bounds

    bounds = tick_bounds(settings, ticker, start_ns=since or 0, end_ns=_FAR_NS)
    if bounds is None:
        return []
    starts = list(range(bounds[0], bounds[1], WINDOW_NS))
    return list(zip(starts, [*starts[1:], bounds[1]], strict=True))


def _ticks(settings: Settings, ticker: str, windows: list[tuple[int, int]]) -> Iterator[tuple[pa.Table, int]]:
    from iceberg.read import read_ticks

    for number, (start, end) in enumerate(windows, start=1):
        yield (
            in_trade_order(read_ticks(settings, ticker, start_ns=start, end_ns=end)).cast(INPUTS["ticks"].schema),
            number,
        )


def in_trade_order(ticks: pa.Table) -> pa.Table:
    """By time; trades of the same time by their ids if these are numbers."""
    ids = ticks.column("trade_id")
    are_numbers = pc.all(pc.match_substring_regex(ids, r"^[0-9]{1,18}$")).as_py()
    if not ticks.num_rows or not are_numbers:
        return ticks
    numbered = ticks.append_column("_number", ids.cast(pa.int64()))
    order = pc.sort_indices(numbered, sort_keys=[("ts_ns", "ascending"), ("_number", "ascending")])
    return ticks.take(order)


def _peeked(parts: Iterator[tuple[pa.Table, int]]) -> Iterator[tuple[pa.Table, int]] | None:
    """None if no part has a row; empty parts at the beginning are skipped."""
    for part, done in parts:
        if part.num_rows:
            return _chained((part, done), parts)
    return None


def _chained(first: tuple[pa.Table, int], rest: Iterator[tuple[pa.Table, int]]) -> Iterator[tuple[pa.Table, int]]:
    yield first
    yield from rest


def _since(since: int | None) -> str:
    return f" since {format_nanoseconds(since)}" if since is not None else ""


# ---- texts that only a finished table can answer
def _run_whole(
    settings: Settings,
    sql: str,
    parameters: Mapping[str, str],
    *,
    ticker: str,
    since: int | None,
    default: str,
    live: TriggerRejected | None,
    views: Mapping[str, str] | None,
) -> Backtest:
    """ORDER BY, LIMIT and the like, and joins: gives the rows, but not when the trigger would have fired."""
    schemas = {name: source.schema for name, source in INPUTS.items()}
    query = compile_query(sql, schemas, parameters, default_table=default, is_stored=True, views=views)
    if live is not None:
        say(f"over stored data only; as a running trigger this text is refused: {live}")
    options = TriggerOptions.of(parameters)
    check_tables(settings)
    periods = _periods(sql, parameters, options, views)
    ticks = [part for part, _ in _ticks(settings, ticker, [(since or 0, _FAR_NS)])]
    tables = {
        "ticks": pa.concat_tables(ticks),
        "ohlc": pa.concat_tables(_bars(settings, ticker, period, since) for period in periods),
    }
    what = f"trades and bars of {' and '.join(map(format_period, periods))}"
    if not any(table.num_rows for table in tables.values()):
        raise CandlewrightError(f"no {what} of {ticker} are stored{_since(since)}")
    return Backtest(
        table=query.run(tables), candles=[], what=what, rows=sum(table.num_rows for table in tables.values())
    )


def _periods(
    sql: str, parameters: Mapping[str, str], options: TriggerOptions, views: Mapping[str, str] | None
) -> list[int]:
    """The periods of the bars that a text reads."""
    try:
        labels = compile_trigger(sql, parameters, TriggerRules(idle_ns=SECOND), views=views).labels
    except TriggerRejected:
        labels = ()
    return sorted(label for label in labels if label > 0) or [options.period_seconds or DEFAULT_PERIOD_SECONDS]


# ---- the chart
def _nanoseconds(column: pa.ChunkedArray) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = column.cast(pa.int64()).to_numpy()
    return found


class _Chart:
    """Bars unchanged, trades as candles whose length grows with the range shown."""

    def __init__(self) -> None:
        self._candles: dict[int, Candle] = {}
        self._length = SECOND

    def add(self, rows: pa.Table, times: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        if "price" in rows.column_names:
            self._add_trades(rows, times)
            return
        columns = [rows.column(name).to_pylist() for name in ("open", "high", "low", "close", "volume")]
        for time, *values in zip(times.tolist(), *columns, strict=True):
            self._candles[time] = Candle(time / SECOND, *values)

    def _add_trades(self, rows: pa.Table, times: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        price, size = rows.column("price").to_numpy(), rows.column("size").to_numpy()
        places = times // self._length
        starts = np.concatenate([[0], np.flatnonzero(np.diff(places)) + 1])
        ends = np.concatenate([starts[1:], [len(places)]]) - 1
        high, low = np.maximum.reduceat(price, starts), np.minimum.reduceat(price, starts)
        volume = np.add.reduceat(size, starts)
        for number, start in enumerate(starts.tolist()):
            self._join(
                int(places[start]) * self._length,
                Candle(
                    0.0,
                    float(price[start]),
                    float(high[number]),
                    float(low[number]),
                    float(price[ends[number]]),
                    float(volume[number]),
                ),
            )
        while len(self._candles) > CHART_CANDLES:
            self._length *= 2
            before, self._candles = self._candles, {}
            for time, candle in before.items():
                self._join(time // self._length * self._length, candle)

    def _join(self, time: int, new: Candle) -> None:
        known = self._candles.get(time)
        first = known or new
        self._candles[time] = Candle(
            time / SECOND,
            first.open,
            max(first.high, new.high),
            min(first.low, new.low),
            new.close,
            (known.volume if known else 0.0) + new.volume,
        )

    def candles(self) -> list[Candle]:
        return list(self._candles.values())
