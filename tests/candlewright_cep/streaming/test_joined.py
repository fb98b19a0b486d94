"""Joins by time give the results of a slow Python version, over finished tables and over streams in any order of
arrival.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from candlewright_cep import Clock, JoinedStream, Limits, ReleaseBuffer, StreamInput, TriggerRejected, compile_stream
from candlewright_cep.engine import compile_query, evaluate_named
from candlewright_cep.streaming.query import StreamQuery
from tests.rounds import rounds

SECOND = 10**9
TICKERS = ("A", "B")
TICKS = pa.schema([("ticker", pa.string()), ("ts", pa.timestamp("ns")), ("n", pa.int64())])
BARS = pa.schema(
    [
        ("ticker", pa.string()), ("period_seconds", pa.int32()), ("open_time", pa.timestamp("ns")),
        ("close", pa.float64()),
    ]
)  # fmt: skip
INPUTS = {
    "ticks": StreamInput(TICKS, ("ts",)),
    "ohlc": StreamInput(BARS, ("open_time",), period_column="period_seconds"),
}
#: A trade: ticker, seconds. A bar: ticker, index.
Trade = tuple[str, int]
_SETTINGS = settings(
    max_examples=rounds(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def trades_of(rows: Sequence[Trade]) -> pa.Table:
    columns = ([row[0] for row in rows], [row[1] * SECOND for row in rows], list(range(len(rows))))
    arrays = [
        pa.array(values, kind) for values, kind in zip(columns, (pa.string(), pa.int64(), pa.int64()), strict=True)
    ]
    return pa.Table.from_arrays([arrays[0], arrays[1].cast(pa.timestamp("ns")), arrays[2]], schema=TICKS)


def bars_of(rows: Sequence[Trade], period: int) -> pa.Table:
    """`rows`: tickers with the index of the bar; its close identifies it."""
    return pa.Table.from_arrays(
        [
            pa.array([row[0] for row in rows], pa.string()),
            pa.array([period] * len(rows), pa.int32()),
            pa.array([row[1] * period * SECOND for row in rows], pa.int64()).cast(pa.timestamp("ns")),
            pa.array([row[1] + place / 1000 for place, row in enumerate(rows)], pa.float64()),
        ],
        schema=BARS,
    )


@dataclass
class Feeding:
    """A running text, and the rows that it accepted (late ones are dropped)."""

    query: StreamQuery
    restarts: bool = False
    stream: JoinedStream = field(init=False)
    buffers: dict[tuple[str, int], ReleaseBuffer] = field(default_factory=dict)
    taken: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    found: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stream = JoinedStream(query=self.query)
        assert self.query.joined is not None
        for leaf in self.query.joined.leaves():
            place = leaf.name, leaf.period
            self.buffers[place] = ReleaseBuffer(leaf.source.time_columns[0], "ticker")
            self.taken[place] = []

    def push(self, place: tuple[str, int], rows: pa.Table) -> None:
        self._feed(place, self.buffers[place].push(rows).rows)

    def advance(self, place: tuple[str, int], seconds: int) -> None:
        self._feed(place, self.buffers[place].advance(dict.fromkeys(TICKERS, seconds * SECOND)))

    def end(self) -> list[tuple[Any, ...]]:
        for place, buffer in self.buffers.items():
            self._feed(place, buffer.close(set(TICKERS)))
        return sorted(self.found, key=repr)

    def tables(self) -> dict[str, pa.Table]:
        """The input of batch evaluation, in time order and arrival."""
        found: dict[str, list[pa.Table]] = {"ticks": [TICKS.empty_table()], "ohlc": [BARS.empty_table()]}
        for (name, _), parts in self.taken.items():
            if parts:
                time = INPUTS[name].time_columns[0]
                table = pa.concat_tables(parts).sort_by([(time, "ascending"), ("_sequence", "ascending")])
                found[name].append(table.select(INPUTS[name].schema.names))
        return {name: pa.concat_tables(parts) for name, parts in found.items()}

    def _feed(self, place: tuple[str, int], released: pa.Table) -> None:
        if released.num_rows:
            self.taken[place].append(released)
        known = self.buffers[place].clock
        # As for a trigger with named tickers, tickers without rows so far are waited for.
        clock = Clock({ticker: known.watermarks.get(ticker, -(2**63)) for ticker in TICKERS}, set(known.closed))
        events = self.stream.feed_input(*place, released, clock=clock)
        self.found += [tuple(row) for row in zip(*(column.to_pylist() for column in events.table.columns), strict=True)]
        if self.restarts:
            state = self.stream.snapshot()
            self.stream = JoinedStream(query=self.query)
            self.stream.restore(state)


def running(sql: str, period: int = 0, limits: Limits | None = None) -> StreamQuery:
    return compile_stream(sql, INPUTS, partitions_close=True, period_seconds=period, limits=limits or Limits())


def rows_of(sql: str, tables: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    found = evaluate_named(sql, tables)
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)


TEXTS = {
    "last closed bar": """SELECT t.ts, t.n, o.close FROM ticks t ASOF JOIN ohlc o
        ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60""",
    "last closed bar or none, not older than two minutes": """SELECT t.ts, t.n, o.close FROM ticks t
        ASOF LEFT JOIN ohlc o ON o.ticker = t.ticker AND o.close_time <= t.ts
        AND o.close_time > t.ts - INTERVAL '2' MINUTE AND o.period_seconds = 60""",
    "bars with their trades": """SELECT o.open_time, o.close, t.n FROM ohlc o LEFT JOIN ticks t ON o.ticker = t.ticker
        AND t.ts >= o.open_time AND t.ts < o.open_time + INTERVAL '60' SECOND WHERE o.period_seconds = 60""",
    "the last trade before a bar ended": """SELECT o.open_time, o.close, t.n FROM ohlc o ASOF JOIN ticks t
        ON o.ticker = t.ticker AND t.ts < o.close_time WHERE o.period_seconds = 60""",
    "two tickers": """SELECT a.ts, a.n, b.n AS m FROM ticks a ASOF LEFT JOIN ticks b
        ON a.ts >= b.ts AND b.ticker = 'B' WHERE a.ticker = 'A'""",
    "two tickers close together": """SELECT a.ts, a.n, b.n AS m FROM ticks a JOIN ticks b
        ON b.ts BETWEEN a.ts - INTERVAL '20' SECOND AND a.ts + INTERVAL '5' SECOND
        WHERE a.ticker = 'A' AND b.ticker = 'B'""",
    "two periods": """SELECT a.open_time, a.close, b.close AS five FROM ohlc a ASOF JOIN ohlc b
        ON a.ticker = b.ticker AND a.close_time >= b.close_time AND b.period_seconds = 300
        WHERE a.period_seconds = 60""",
    "a trend over the other side": """WITH b AS (SELECT *, AVG(close) OVER (PARTITION BY ticker ORDER BY open_time
        ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS mean FROM ohlc WHERE period_seconds = 60)
        SELECT t.ts, t.n, b.mean FROM ticks t ASOF JOIN b ON t.ticker = b.ticker AND t.ts >= b.close_time""",
    "three inputs": """SELECT t.n, a.close, b.close AS five FROM ticks t
        ASOF LEFT JOIN ohlc a ON t.ticker = a.ticker AND t.ts >= a.close_time AND a.period_seconds = 60
        ASOF LEFT JOIN ohlc b ON t.ticker = b.ticker AND t.ts >= b.close_time AND b.period_seconds = 300""",
    "a pattern over a join": """SELECT first_n, last_n, c FROM (SELECT t.ticker, t.ts, t.n, o.close FROM ticks t
        ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60)
        MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(n) AS first_n, LAST(n) AS last_n,
        LAST(close) AS c PATTERN (A B) DEFINE B AS close > A.close)""",
    "totals over a join": """SELECT t.n, o.close, LAG(o.close) OVER (PARTITION BY t.ticker ORDER BY t.ts) AS before
        FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60""",
    "windows over a join": """SELECT t.ticker, TUMBLE_START(t.ts, INTERVAL '1' MINUTE) AS w, COUNT(o.close) AS c
        FROM ticks t ASOF LEFT JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60
        GROUP BY t.ticker, TUMBLE(t.ts, INTERVAL '1' MINUTE)""",
    "equal times of two inputs": """SELECT t.n, o.close FROM ticks t LEFT JOIN ohlc o
        ON t.ticker = o.ticker AND t.ts = o.open_time AND o.period_seconds = 60""",
    "bars and trades, with or without each other": """SELECT t.n, o.close FROM ticks t
        FULL JOIN (SELECT * FROM ohlc WHERE period_seconds = 60) o ON o.ticker = t.ticker AND t.ts >= o.open_time
        AND t.ts < o.open_time + INTERVAL '60' SECOND AND t.n % 2 = 0 AND o.close > 1""",
    "two tickers, with or without each other": """SELECT a.ts, a.n, b.ts AS at, b.n AS m
        FROM (SELECT * FROM ticks WHERE ticker = 'A') a FULL JOIN (SELECT * FROM ticks WHERE ticker = 'B') b
        ON b.ts BETWEEN a.ts - INTERVAL '20' SECOND AND a.ts - INTERVAL '5' SECOND""",
    "every bar, with the trades before its end": """SELECT t.n, o.close FROM ticks t RIGHT JOIN ohlc o
        ON o.ticker = t.ticker AND t.ts > o.close_time - INTERVAL '20' SECOND AND t.ts <= o.close_time AND t.n % 2 = 0
        WHERE o.period_seconds = 60""",
    "totals over rows of either side": """SELECT ts, n, close, COUNT(n) OVER w AS trades, SUM(close) OVER w AS total
        FROM (SELECT COALESCE(t.ticker, o.ticker) AS ticker, COALESCE(t.ts, o.open_time) AS ts, n, close FROM ticks t
        FULL JOIN (SELECT * FROM ohlc WHERE period_seconds = 60) o
        ON o.ticker = t.ticker AND o.open_time BETWEEN t.ts - INTERVAL '70' SECOND AND t.ts + INTERVAL '5' SECOND)
        WINDOW w AS (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)""",
    "equal times, with or without each other": """SELECT ticker, ts, a.n, b.n AS m, COUNT(*) OVER (PARTITION BY ticker
        ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS c
        FROM (SELECT * FROM ticks WHERE n % 3 <> 1) a FULL JOIN (SELECT * FROM ticks WHERE n % 3 <> 2) b
        USING (ticker, ts)""",
    "limits named first": """SELECT t.n, v.most FROM (VALUES ('A', 1.5), ('C', NULL)) AS v(ticker, most)
        RIGHT JOIN ticks t ON v.ticker = t.ticker
        ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60""",
    "limits of the text": """SELECT t.n, o.close, v.most FROM ticks t
        ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60
        JOIN (VALUES ('A', 1.5), ('B', NULL)) AS v(ticker, most) ON v.ticker = t.ticker WHERE o.close > v.most""",
}

ARRIVALS = st.lists(st.tuples(st.sampled_from(TICKERS), st.integers(0, 700)), max_size=14)
NUMBERS = st.lists(st.tuples(st.sampled_from(TICKERS), st.integers(0, 11)), max_size=10)


@_SETTINGS
@given(st.sampled_from(sorted(TEXTS)), ARRIVALS, NUMBERS, NUMBERS, st.data(), st.booleans(), st.booleans())
def test_a_stream_gives_the_rows_of_the_batch(
    name: str,
    trades: list[Trade],
    minutes: list[Trade],
    fives: list[Trade],
    data: st.DataObject,
    restarts: bool,
    is_sorted: bool,
) -> None:
    feeding = Feeding(running(TEXTS[name]), restarts)
    if is_sorted:
        trades, minutes, fives = (sorted(rows, key=lambda row: row[1]) for rows in (trades, minutes, fives))
    left = {
        ("ticks", 0): trades_of(trades),
        ("ohlc", 60): bars_of(minutes, 60),
        ("ohlc", 300): bars_of([(ticker, number // 5) for ticker, number in fives], 300),
    }
    left = {place: rows for place, rows in left.items() if place in feeding.buffers}
    while left:
        place = data.draw(st.sampled_from(sorted(left)))
        count = data.draw(st.integers(1, 5))
        feeding.push(place, left[place].slice(0, count))
        if data.draw(st.booleans()):
            feeding.advance(place, data.draw(st.integers(0, 700)))
        left[place] = left[place].slice(count)
        if not left[place].num_rows:
            del left[place]
    assert feeding.end() == rows_of(TEXTS[name], feeding.tables())


@dataclass(frozen=True)
class Random:
    """A join of trades `a` and `b`."""

    is_asof: bool
    kind: str
    by_ticker: bool
    strict: bool
    lower: int | None
    upper: int

    @property
    def sql(self) -> str:
        later = "<" if self.strict else "<="
        parts = [f"b.ts {later} a.ts + INTERVAL '{self.upper}' SECOND"]
        if self.lower is not None:
            parts.append(f"b.ts >= a.ts - INTERVAL '{self.lower}' SECOND")
        if self.by_ticker:
            parts.append("a.ticker = b.ticker")
        kind = f"{'ASOF ' if self.is_asof else ''}{self.kind}"
        return f"SELECT a.n, b.n AS m FROM ticks a {kind} JOIN other b ON {' AND '.join(parts)}"

    def naive(self, left: Sequence[Trade], right: Sequence[Trade]) -> list[tuple[int | None, int | None]]:
        found: list[tuple[int | None, int | None]] = []
        for number, (ticker, at) in enumerate(left):
            own = [
                (time, place)
                for place, (other, time) in enumerate(right)
                if (other == ticker or not self.by_ticker)
                and (time < at + self.upper if self.strict else time <= at + self.upper)
                and (self.lower is None or time >= at - self.lower)
            ]
            partners = [max(own)[1]] if own and self.is_asof else [place for _, place in own]
            found += [(number, place) for place in partners]
            if not own and self.kind != "INNER":
                found.append((number, None))
        if self.kind == "FULL":
            met = {place for _, place in found}
            found += [(None, place) for place in range(len(right)) if place not in met]
        return sorted(found, key=repr)


@settings(_SETTINGS, max_examples=rounds(150))
@given(
    st.builds(
        Random,
        st.booleans(),
        st.sampled_from(["INNER", "LEFT", "FULL"]),
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(0, 20),
        st.integers(-5, 5),
    ),
    st.lists(st.tuples(st.sampled_from(TICKERS), st.integers(0, 40)), max_size=12),
    st.lists(st.tuples(st.sampled_from(TICKERS), st.integers(0, 40)), max_size=12),
)
def test_joins_agree_with_a_slow_version(case: Random, left: list[Trade], right: list[Trade]) -> None:
    has_bounds = case.by_ticker or case.lower is not None
    assume(case.kind != "FULL" if case.is_asof else case.kind == "INNER" or has_bounds)
    found = rows_of(case.sql, {"ticks": trades_of(left), "other": trades_of(right)})
    assert found == case.naive(left, right), case.sql


def test_times_and_keys_that_are_null_meet_nothing() -> None:
    known = pa.table(
        {
            "ticker": ["A", None, "A"],
            "ts": pa.array([5, 5, None], pa.int64()).cast(pa.timestamp("ns")),
            "n": [1, 2, 3],
        }
    )
    sql = "SELECT a.n, b.n AS m FROM a ASOF LEFT JOIN b ON a.ticker = b.ticker AND a.ts >= b.ts"
    assert rows_of(sql, {"a": known, "b": known}) == [(1, 1), (2, None), (3, None)]
    sql = "SELECT a.n, b.n AS m FROM a JOIN b ON b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts"
    assert rows_of(sql, {"a": known, "b": known}) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_times_at_the_ends_of_their_range_do_not_overflow() -> None:
    ends = pa.table({"ts": pa.array([-(2**63), 0, 2**63 - 1], pa.int64()).cast(pa.timestamp("ns")), "n": [0, 1, 2]})
    sql = "SELECT a.n, b.n AS m FROM a ASOF JOIN b ON a.ts >= b.ts"
    assert rows_of(sql, {"a": ends, "b": ends}) == [(0, 0), (1, 1), (2, 2)]
    sql = "SELECT a.n, b.n AS m FROM a JOIN b ON b.ts BETWEEN a.ts - INTERVAL '9' DAY AND a.ts + INTERVAL '9' DAY"
    assert rows_of(sql, {"a": ends, "b": ends}) == [(0, 0), (1, 1), (2, 2)]


def test_a_trade_waits_for_the_bar_that_decides_it_and_no_longer() -> None:
    feeding = Feeding(running(TEXTS["last closed bar"]))
    feeding.push(("ticks", 0), trades_of([("A", 30), ("A", 65), ("A", 119), ("A", 125)]))
    assert feeding.found == []
    feeding.push(("ohlc", 60), bars_of([("A", 0)], 60))
    assert feeding.found == []
    feeding.advance(("ohlc", 60), 60)
    # The bar of the second minute ends at 120, so the trade at 119 cannot meet it.
    assert [row[1] for row in feeding.found] == [1, 2]


@pytest.mark.parametrize("name", ["two tickers close together", "two tickers, with or without each other"])
def test_rows_out_of_reach_are_dropped(name: str) -> None:
    feeding = Feeding(running(TEXTS[name]))
    for second in range(0, 3_000, 10):
        feeding.push(("ticks", 0), trades_of([("A", second), ("B", second)]))
    assert feeding.stream.retained_rows < 12


def test_a_row_without_a_partner_waits_for_all_that_it_could_meet_and_no_longer() -> None:
    feeding = Feeding(running(TEXTS["two tickers, with or without each other"]))
    feeding.push(("ticks", 0), trades_of([("A", 20), ("B", 30)]))
    feeding.advance(("ticks", 0), 50)
    assert [(a, b) for _, a, _, b in feeding.found] == [(0, None)]
    # A trade of the other ticker at 50, which is yet to come, could have met the one at 30; none after it.
    feeding.advance(("ticks", 0), 51)
    assert [(a, b) for _, a, _, b in feeding.found] == [(0, None), (None, 1)]


def test_a_side_that_stops_ends_the_trigger_before_memory_does() -> None:
    feeding = Feeding(running(TEXTS["last closed bar"], limits=Limits(retained_rows=50)))
    with pytest.raises(TriggerRejected, match="the join keeps 60 rows of a ticker; 50 are allowed"):
        feeding.push(("ticks", 0), trades_of([("A", second) for second in range(60)]))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT a.n FROM ticks a JOIN ohlc b ON a.ticker = b.ticker AND a.ts > b.close_time",
            "a join on a stream uses event times, or it would keep every row",
        ),
        (
            "SELECT a.n FROM ticks a FULL JOIN ticks b ON a.ticker = b.ticker",
            "1:25: a join on a stream uses event times, or it would keep every row",
        ),
        (
            "SELECT t.n FROM ticks t FULL JOIN ohlc o ON t.ts BETWEEN o.open_time AND o.open_time + INTERVAL '9' SECOND"
            " AND o.period_seconds = 60",
            "(FULL JOIN (SELECT * FROM ohlc WHERE period_seconds = 60), or the parameter period_seconds)",
        ),
        (
            "SELECT a.n FROM ticks a CROSS JOIN (SELECT * FROM ticks) b, ohlc",
            "a CROSS JOIN is not possible on a stream: it would keep every row",
        ),
        (
            "SELECT a.n FROM ticks a ASOF JOIN ticks b ON a.ticker = b.ticker AND a.ts <= b.ts",
            "needs a latest time of the right side (AND b.ts <= a.ts)",
        ),
        (
            "SELECT a.n FROM ticks a JOIN ohlc b ON a.ticker = b.ticker AND a.ts >= b.close_time",
            "uses event times, or it would keep every row (ON ... AND b.ts BETWEEN",
        ),
        (
            "SELECT n FROM ticks t JOIN ohlc o ON t.ts >= o.open_time AND t.ts < o.close_time AND t.ticker = o.ticker",
            "(give both bounds by one time, as in b.open_time + INTERVAL '60' SECOND instead of b.close_time)",
        ),
        (
            "SELECT a.n FROM ticks a ASOF JOIN ticks b ON a.ticker = b.ticker AND a.n >= b.n",
            "compares the event times of both sides (here ts and ts)",
        ),
        (
            "SELECT a.n FROM ticks a ASOF JOIN (SELECT MAX(ts) AS ts FROM ticks GROUP BY ticker) b ON a.ts >= b.ts",
            "takes inputs with filters, expressions and OVER (join first, then aggregate or match)",
        ),
        (
            "SELECT t.n FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.open_time",
            "needs to know which period_seconds of ohlc to use (AND ohlc.period_seconds = 60 in ON",
        ),
        ("SELECT * FROM (VALUES (1)) AS v", "VALUES is not an input"),
        (
            "SELECT t0.n FROM ticks t0 "
            + " ".join(f"ASOF JOIN ticks t{n} ON t0.ticker = t{n}.ticker AND t0.ts >= t{n}.ts" for n in range(1, 17)),
            "the text joins 17 inputs by time; 16 are allowed on a stream",
        ),
        ("SELECT n FROM ticks FULL JOIN (VALUES (1)) AS v(m) ON m = n", "cannot keep the rows of VALUES"),
        ("SELECT n FROM ticks RIGHT JOIN (VALUES (1)) AS v(m) ON m = n", "cannot keep the rows of VALUES"),
        ("SELECT n FROM (VALUES (1)) AS v(m) LEFT JOIN ticks ON m = n", "cannot keep the rows of VALUES"),
    ],
)
def test_joins_that_no_stream_can_run_are_refused_with_the_reason(sql: str, message: str) -> None:
    compile_query(sql, {name: source.schema for name, source in INPUTS.items()})
    with pytest.raises(TriggerRejected) as caught:
        running(sql, 60 if "close_time" in sql else 0)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT a.n FROM ticks a ASOF JOIN ticks b ON a.ticker = b.ticker", "needs a comparison of two times in ON"),
        ("SELECT a.n FROM ticks a ASOF FULL JOIN ticks b ON a.ts >= b.ts", "ASOF FULL JOIN is not possible"),
        ("SELECT a.n FROM ticks a ASOF JOIN ticks b USING (ts)", "ASOF JOIN takes ON"),
        (
            "SELECT a.n FROM ticks a ASOF JOIN ticks b ON a.ts >= b.ts AND a.n + b.n > 3",
            "put other conditions in WHERE",
        ),
        ("SELECT * FROM (VALUES (1, 2), (3)) AS v", "this row of VALUES has 1 values, the first one 2"),
        ("SELECT * FROM (VALUES (1), ('x')) AS v", "column 1 of VALUES has the types int and string"),
        ("SELECT * FROM ticks t JOIN (VALUES (n)) AS v ON TRUE", "unknown column 'n'"),
    ],
)
def test_invalid_joins_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected) as caught:
        compile_query(sql, {"ticks": TICKS})
    assert message in str(caught.value)


def test_a_join_on_the_open_time_of_a_bar_gets_a_warning() -> None:
    schemas = {name: source.schema for name, source in INPUTS.items()}
    ahead = "SELECT t.n FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.open_time"
    assert "looks ahead: at its open_time a bar of o has not closed yet" in compile_query(ahead, schemas).warnings[0]
    later = ahead.replace("t.ts >= o.open_time", "t.ts - INTERVAL '1' MINUTE >= o.open_time")
    closed = ahead.replace("open_time", "close_time")
    within = f"{ahead} AND t.ts < o.close_time".replace("ASOF ", "")
    assert [len(compile_query(sql, schemas).warnings) for sql in (later, closed, within)] == [0, 0, 1]
