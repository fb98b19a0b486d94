"""Steps over steps: whatever a pattern, OVER or a window reads, a stream gives the rows of the finished table."""

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from candlewright_cep import SkipFailed, TriggerRejected
from tests.candlewright_cep.streams import assert_streams
from tests.rounds import rounds, seeds

pytestmark = pytest.mark.timeout(120)

_START = 1_706_711_280 * 10**9
_PLACES = "DESCRIPTOR(ts), INTERVAL '5' SECOND"
_WINDOWS = (
    f"TUMBLE(TABLE {{}}, {_PLACES})",
    f"HOP(TABLE {{}}, {_PLACES}, INTERVAL '10' SECOND)",
    f"CUMULATE(TABLE {{}}, {_PLACES}, INTERVAL '20' SECOND)",
)
_SESSION = "SESSION(TABLE {} PARTITION BY ticker, DESCRIPTOR(ts), INTERVAL '3' SECOND)"
_AGGREGATES = (
    "SUM(v)", "AVG(p)", "MIN(p)", "MAX(v)", "COUNT(*)", "COUNT(DISTINCT v)", "MEDIAN(p)", "MODE(v)", "STDDEV(p)",
    "PERCENTILE_DISC(0.7) WITHIN GROUP (ORDER BY v)", "ARRAY_JOIN(ARRAY_AGG(v), '-')", "STRING_AGG(side, ',')",
    "MAX_BY(v, p)", "SUM(v) FILTER (WHERE side = 'buy')", "SUM(CAST(p AS DECIMAL(20, 4)))", "REGR_SLOPE(p, v)",
    "VWAP(p, v)",
)  # fmt: skip
_OVER = (
    *_AGGREGATES, "FIRST_VALUE(p)", "LAST_VALUE(p IGNORE NULLS)", "NTH_VALUE(p, 2)",
)  # fmt: skip
_FRAMES = (
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING", "RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW",
    "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW", "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "GROUPS 2 PRECEDING",
    "RANGE UNBOUNDED PRECEDING", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
)  # fmt: skip
_EXCLUDED = ("", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
_INDICATORS = (
    "EMA(p, 3)", "RSI(p, 3)", "MACD(p, 2, 4, 2)", "ATR(p, p, p, 2)", "OBV(p, v)", "KAMA(p, 3)", "LAG(p, 2)",
    "LAG(p) IGNORE NULLS", "LEAD(p)", "ROW_NUMBER()",
)  # fmt: skip
_PATTERNS = (
    "A B", "A+ B", "A B*? C", "A | B C", "A{2,3}", "PERMUTE(A, B)", "A?", "{- A -} B+", "^ A B", "(A | B)+ C",
    "A (B | ())", "(A B){1,2}",
)  # fmt: skip
_CONDITIONS = (
    "p > PREV(p)", "p > 100", "side = 'buy'", "p > A.p", "SUM(A.v) < 9", "COUNT(*) < 4", "NEXT(p) > p", "p IS NULL",
    "SUM(v) FILTER (WHERE side = 'buy') < 8", "p > LAST(A.p, 1)", "MATCH_NUMBER() < 5", "EMA(p, 2) > p",
    "ts - FIRST(ts) < INTERVAL '4' SECOND",
)  # fmt: skip
_MEASURES = (
    "FIRST(p) AS f", "COUNT(*) AS n", "SUM(A.v) AS s", "CLASSIFIER() AS c", "MATCH_NUMBER() AS m", "NEXT(p) AS x",
    "FINAL LAST(p) AS l", "ARRAY_JOIN(ARRAY_AGG(p), ',') AS a", "MEDIAN(p) AS d", "LAST(ts) AS t",
)  # fmt: skip
#: A stream refuses some of the texts; at least this share of them must run, of this many if there are fewer rounds.
_RUNS, _LEAST = 0.3, 20


def _trades(chance: random.Random) -> pa.Table:
    """Two tickers, NULLs, many rows at the same time, and pauses."""
    time, rows = _START, []
    for _ in range(chance.randint(1, 60)):
        time += chance.choice([0, 0, 400, 900, 1500, 2500, 20_000, 70_000]) * 10**6
        price = None if chance.random() < 0.1 else float(chance.randint(90, 110))
        size = None if chance.random() < 0.1 else chance.randint(1, 6)
        rows.append((chance.choice("AB"), time, price, size, chance.choice(["buy", "sell", None])))
    ticker, times, prices, sizes, sides = zip(*rows, strict=True)
    return pa.table(
        {
            "ticker": pa.array(ticker),
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "p": pa.array(prices, pa.float64()),
            "v": pa.array(sizes, pa.int64()),
            "side": pa.array(sides, pa.string()),
        }
    )


def _read(chance: random.Random) -> str:
    """What a step reads: the trades, some of them, or the result of another step, with the columns of trades."""
    window = chance.choice([*_WINDOWS, _SESSION]).format("ticks")
    value = chance.choice(["MAX(p)", "SUM(v)", "EMA(p, 2)", "LAG(p)"])
    return chance.choice(
        [
            "ticks",
            "ticks",
            f"(SELECT * FROM ticks WHERE {chance.choice(['p > 95', 'v IS NOT NULL'])})",
            f"(SELECT ticker, ts, {value} OVER (PARTITION BY ticker ORDER BY ts) AS p, v, side FROM ticks)",
            "(SELECT ticker, window_end AS ts, AVG(p) AS p, COUNT(*) AS v, MIN(side) AS side "
            f"FROM TABLE({window}) GROUP BY ticker, window_start, window_end)",
            "(SELECT ticker, close_time AS ts, close AS p, trade_count AS v, 'x' AS side "
            "FROM (SELECT ticker, ts, p AS price, CAST(v AS DOUBLE) AS size FROM ticks) BARS BY TRADES 3)",
            "(SELECT ticker, ts, x AS p, v, side FROM ticks CROSS JOIN UNNEST(ARRAY[p, p + 1]) AS u(x))",
        ]
    )


def _partition(chance: random.Random) -> str:
    return chance.choice(["PARTITION BY ticker ", "PARTITION BY ticker ", "PARTITION BY ticker, side ", ""])


def _pattern(chance: random.Random) -> str:
    pattern = chance.choice(_PATTERNS)
    names = [name for name in "ABC" if name in pattern.replace("PERMUTE", "")]
    defines = [f"{name} AS {' AND '.join(chance.sample(_CONDITIONS, chance.choice([1, 1, 2])))}" for name in names]
    subset = " SUBSET U = (A, B)" if "B" in names else ""
    bounds = ["INTERVAL '4' SECOND", "INTERVAL '30' SECOND", "INTERVAL '3' SECOND FROM PREVIOUS ROW"]
    within = chance.choice(["", *(f" WITHIN {bound}" for bound in bounds)])
    modes = ["ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"]
    modes += [] if "{-" in pattern else ["ALL ROWS PER MATCH WITH UNMATCHED ROWS"]
    modes += ["ONE ROW PER MATCH WITH TIMEOUT ROWS"] if within else []
    skips = ["PAST LAST ROW", "TO NEXT ROW", f"TO LAST {names[-1]}", f"TO FIRST {names[-1]}"]
    skips += ["TO FIRST U", "TO LAST U"] if subset else []
    measures = chance.sample(_MEASURES, chance.randint(1, 3)) + (["LAST(U.p) AS u"] if subset else [])
    return (
        f"SELECT * FROM {_read(chance)} MATCH_RECOGNIZE ({_partition(chance)}ORDER BY ts "
        f"MEASURES {', '.join(measures)} {chance.choice(modes)} AFTER MATCH SKIP {chance.choice(skips)} "
        f"PATTERN ({pattern}){within}{subset} DEFINE {', '.join(defines)}) AS m"
    )


def _over(chance: random.Random) -> str:
    if chance.random() < 0.3:
        return f"{chance.choice(_INDICATORS)} OVER ({_partition(chance)}ORDER BY ts)"
    frame = chance.choice(_FRAMES) + chance.choice(_EXCLUDED)
    return f"{chance.choice(_OVER)} OVER ({_partition(chance)}ORDER BY ts {frame})"


def _rows(chance: random.Random) -> str:
    end = chance.choice(["", " WHERE p > 95", f" QUALIFY {_over(chance)} IS NOT NULL"])
    return f"SELECT ticker, ts, p, v, {_over(chance)} AS o1, {_over(chance)} AS o2 FROM {_read(chance)}{end}"


def _groups(chance: random.Random) -> str:
    first, second = (chance.choice(_AGGREGATES) for _ in range(2))
    read = _read(chance)
    beginning = "" if read == "ticks" else f"WITH q AS {read} "
    named = "q" if beginning else "ticks"
    keys, window = chance.choice(
        [
            ("window_start, window_end, ticker", chance.choice([*_WINDOWS, _SESSION])),
            ("window_start, window_end, ROLLUP (ticker, side)", chance.choice(_WINDOWS)),
            ("window_start, window_end, CUBE (ticker, side)", chance.choice(_WINDOWS)),
            ("GROUPING SETS ((window_start, window_end, ticker), (window_start, window_end))", _WINDOWS[0]),
        ]
    )
    return (
        f"{beginning}SELECT window_start, window_end, ticker, {first} AS a1, {second} AS a2 "
        f"FROM TABLE({window.format(named)}) GROUP BY {keys}"
    )


def _changes(chance: random.Random) -> str:
    aggregate = chance.choice(["SUM(v)", "MAX(p)", "STDDEV(p)", "MAX_BY(v, p)"])
    return f"SELECT ticker, {aggregate} AS a FROM {_read(chance)} GROUP BY ticker EMIT CHANGES"


def _join(chance: random.Random) -> str:
    """One time of both sides, an interval, or the last row before."""
    interval = chance.choice(
        [
            "b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts",
            "b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts + INTERVAL '1' SECOND",
            "b.ts > a.ts AND b.ts <= a.ts + INTERVAL '3' SECOND",
            "a.ts = b.ts",
        ]
    )
    last = chance.choice(["a.ts >= b.ts", "a.ts > b.ts AND b.ts >= a.ts - INTERVAL '2' SECOND"])
    kind, on = chance.choice(
        [
            *((kind, interval) for kind in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")),
            *((kind, last) for kind in ("ASOF JOIN", "ASOF LEFT JOIN")),
        ]
    )
    same = chance.choice([" AND a.ticker = b.ticker", ""])
    more = "" if kind.startswith("ASOF") else chance.choice(["", " AND a.p > b.p", " AND a.ticker <> b.ticker"])
    left, right = (_read(chance) for _ in range(2))
    where = chance.choice(["", " WHERE b.p IS NULL OR a.p > 95"])
    return (
        "SELECT a.ticker AS x, b.ticker AS y, a.ts, b.ts AS other, a.p, b.p AS q, a.v, b.v AS w "
        f"FROM {left} AS a {kind} {right} AS b ON {on}{same}{more}{where}"
    )


@pytest.mark.parametrize("made", [_pattern, _rows, _groups, _changes, _join])
@pytest.mark.parametrize("seed", seeds(9))
def test_a_step_over_another_gives_the_same_rows_on_a_stream(made: Callable[[random.Random], str], seed: int) -> None:
    chance = random.Random(f"{made.__name__}{seed}")
    ran, count = 0, rounds(40)
    for number in range(max(count, _LEAST)):
        if number >= count and ran > count * _RUNS:
            break
        sql, table = made(chance), _trades(chance)
        try:
            assert_streams(sql, table, number)
        except (TriggerRejected, SkipFailed):
            continue
        ran += 1
    assert ran > count * _RUNS
