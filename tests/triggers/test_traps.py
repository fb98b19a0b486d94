"""Rules of row patterns that are easy to get wrong. Each is a trigger whose events, with the rows split anywhere and
the engine restarted in between, equal the rows of the finished table.
"""

import random

import pytest

from candlewright.wire.grid import SECOND
from candlewright_cep import evaluate
from documentation.trigger_text import read
from tests.rounds import seeds
from tests.triggers.market import as_rows, records_of, streamed, table_of, trades
from tests.triggers.trigger_records import T0, rows

pytestmark = pytest.mark.timeout(120)

_TICKERS = ("BTC/USDT.BINANCE", "ETH/USDT.BINANCE", "SOL/USDT.BINANCE")
_FROM = "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES "
_ONE = "FIRST(trade_id) AS f, LAST(trade_id) AS l, COUNT(*) AS n "
_EACH = "CLASSIFIER() AS c, MATCH_NUMBER() AS m, COUNT(*) AS n "
#: The rule, and the clause from MEASURES on.
_CLAUSES = {
    "the left branch is taken whatever its length": f"{_ONE} PATTERN (A | A B) DEFINE A AS price < 100",
    "the left branch is left when the rest fails": f"{_ONE} PATTERN ((A | A B) C) DEFINE C AS price < PREV(price)",
    "a greedy loop gives rows back": f"{_ONE} PATTERN (A+ B) DEFINE B AS price < 99",
    "a reluctant loop takes as few rows as it can": f"{_ONE} PATTERN (A+? B) DEFINE B AS price < PREV(price)",
    "an empty iteration ends a loop": f"{_ONE} PATTERN ((A?)+ C) DEFINE A AS price > 101, C AS price < 101",
    "an empty iteration counts once": f"{_ONE} PATTERN ((A*){{2,}} C) DEFINE A AS price > 101, C AS price < 101",
    "nested loops end": f"{_ONE} PATTERN (((A*)*)* B) DEFINE A AS price > 99, B AS price < 98",
    "optional rows one after another": f"{_ONE} PATTERN (A? A? A? A? A? A? B) DEFINE A AS price > 99, B AS price < 98",
    "PERMUTE prefers the order of its list": f"{_EACH} ALL ROWS PER MATCH PATTERN (PERMUTE(A, B, C)) "
    "DEFINE A AS price > 99, B AS price < 102, C AS price > 98",
    "unknown is not true": f"{_ONE} PATTERN (A B) DEFINE A AS NULLIF(side, 'buy') = 'sell' OR price > 103, "
    "B AS NOT (NULLIF(size, size) > 1) OR price < PREV(price)",
    "a later variable is NULL": f"{_ONE} PATTERN (A C) DEFINE A AS C.price IS NULL, C AS price > A.price",
    "a condition counts its own row": f"{_ONE} PATTERN (A+ B) DEFINE A AS COUNT(A.*) <= 2, B AS COUNT(*) > 2",
    "offsets count from the ends": f"{_ONE}, LAST(A.price, 1) AS p, FIRST(A.price, 9) AS none PATTERN (A+ B) "
    "DEFINE A AS price >= LAST(A.price, 1) OR LAST(A.price, 1) IS NULL, B AS price < FIRST(A.price)",
    "first by variable, then by place": f"{_ONE}, PREV(LAST(A.price, 1), 2) AS p, NEXT(FIRST(A.price), 3) AS q "
    "PATTERN (A{2} B) DEFINE A AS price > 98",
    "PREV takes an expression": f"{_ONE}, PREV(price * 2 + size) AS p PATTERN (A) DEFINE A AS price > PREV(price + 1)",
    "PREV reaches rows of the match before": f"{_ONE} PATTERN (A B) DEFINE A AS price > PREV(price, 2)",
    "NEXT waits for its row": f"{_ONE}, NEXT(price, 2) AS p PATTERN (A B) DEFINE A AS NEXT(price, 2) > price",
    "a variable is a row's only one": f"{_EACH} ALL ROWS PER MATCH PATTERN (A+ B+) DEFINE A AS price > 99, "
    "B AS CLASSIFIER() = 'B' AND PREV(CLASSIFIER()) IN ('A', 'B') AND price < 103",
    "a subset is read in the order of rows": f"{_ONE}, CLASSIFIER(U) AS c, AVG(U.price) AS a PATTERN (A B C) "
    "SUBSET U = (A, B) DEFINE C AS price > AVG(U.price)",
    "empty matches have numbers": f"{_EACH} ALL ROWS PER MATCH PATTERN (A*) DEFINE A AS price > 101",
    "hidden empty matches have numbers": f"{_EACH} ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (A*) "
    "DEFINE A AS price > 101",
    "an empty match is one row": "COUNT(*) AS n, MATCH_NUMBER() AS m, CLASSIFIER() AS c, SUM(A.price) AS s "
    "ONE ROW PER MATCH PATTERN (A?) DEFINE A AS price > 101",
    "a condition sees the number of its match": f"{_ONE} PATTERN (A+) "
    "DEFINE A AS MATCH_NUMBER() % 2 = 1 OR price > 100",
    "unmatched rows come once": f"{_EACH} ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B C D | A B) "
    "DEFINE A AS price < 101, B AS price > 99, C AS price < 102, D AS price > 100",
    "excluded rows still count": f"{_EACH} ALL ROWS PER MATCH PATTERN (A {{- B+ -}} C) "
    "DEFINE B AS price < PREV(price), C AS price > PREV(price)",
    "FIRST is that of the row so far": f"{_EACH}, FIRST(B.price) AS b, FINAL LAST(B.price) AS e, "
    "FINAL COUNT(*) AS all_rows ALL ROWS PER MATCH PATTERN (A B+) DEFINE B AS price < PREV(price)",
    "matches may overlap": f"{_EACH} ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) "
    "DEFINE B AS price < PREV(price)",
    "skipping to the last row of a variable": f"{_ONE} AFTER MATCH SKIP TO LAST B PATTERN (A B+) "
    "DEFINE B AS price < PREV(price)",
    "skipping to an excluded row": f"{_EACH} ALL ROWS PER MATCH AFTER MATCH SKIP TO FIRST B PATTERN (A {{- B -}} C) "
    "DEFINE C AS price < PREV(price)",
    "skipping to a row of a subset": f"{_ONE} AFTER MATCH SKIP TO LAST U PATTERN (A B+ C) SUBSET U = (B, C) "
    "DEFINE B AS price < PREV(price), C AS price > PREV(price)",
    "the start of a branch": f"{_ONE} PATTERN (^ A | B C) DEFINE C AS price > 103",
    "the start is before the first row only": f"{_ONE} PATTERN (A ^ B)",
    "the end of a silent ticker": f"{_ONE} PATTERN (A B $)",
    "WITHIN excludes its bound": f"{_ONE} PATTERN (A B C) WITHIN INTERVAL '3' SECOND",
    "WITHIN from the previous row excludes its bound": f"{_ONE} PATTERN (A B*) "
    "WITHIN INTERVAL '2' SECOND FROM PREVIOUS ROW",
    "an attempt that a pause ended": f"{_ONE} ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A X* B) "
    "WITHIN INTERVAL '2' SECOND FROM PREVIOUS ROW DEFINE X AS price >= 99, B AS price < 99",
    "WITHIN takes a shorter match": f"{_ONE} PATTERN (A+) WITHIN INTERVAL '7' SECOND",
    "an attempt that time ended": f"{_ONE} ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A X* B) "
    "WITHIN INTERVAL '9' SECOND DEFINE X AS price >= 99, B AS price < 99",
    "none for a while": f"{_ONE} ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A X*) WITHIN INTERVAL '9' SECOND "
    "DEFINE A AS price > 101, X AS NOT price < 99",
    "none before another": f"{_ONE} PATTERN (A O*? C) DEFINE A AS price > 102, O AS NOT price < 99, C AS price > 103",
    "aggregates with FILTER and DISTINCT": f"{_ONE}, COUNT(DISTINCT ROUND(price)) AS d PATTERN (A+ B) "
    "DEFINE A AS COUNT(*) FILTER (WHERE price > 100) < 3, B AS price > 100",
    "a variable without a condition": f"{_ONE} PATTERN (A B{{,2}} C) DEFINE C AS price < PREV(price)",
    "an indicator skips what is unknown": f"{_ONE}, EMA(NULLIF(price, 100), 2) AS e PATTERN (A B) "
    "DEFINE B AS EMA(price, 3) > price",
}
_TEXTS = {rule: f"{_FROM}{clause}) AS m" for rule, clause in _CLAUSES.items()} | {
    "NULL is a partition": "SELECT * FROM (SELECT *, NULLIF(size > 1, TRUE) AS small FROM ticks) MATCH_RECOGNIZE ("
    f"PARTITION BY ticker, small ORDER BY ts MEASURES {_ONE} PATTERN (A B) DEFINE B AS price > PREV(price)) AS m",
    "no partition is one": f"SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES {_ONE}, A.ticker AS t "
    "PATTERN (A B) DEFINE B AS ticker <> A.ticker AND ts = A.ts) AS m",
    "a pattern over matches": "SELECT * FROM (SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts "
    "MEASURES LAST(ts) AS at, LAST(price) AS p PATTERN (A B) DEFINE B AS price < PREV(price)) AS m) "
    "MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY at MEASURES COUNT(*) AS n, LAST(at) AS l PATTERN (X Y+) "
    "DEFINE Y AS p < PREV(p)) AS o",
    "a pattern over windows of all tickers": "SELECT * FROM (SELECT ticker, window_end, AVG(price) AS p FROM TABLE("
    "TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY ticker, window_start, window_end) "
    "MATCH_RECOGNIZE (ORDER BY window_end MEASURES A.ticker AS a, B.ticker AS b, B.p AS p PATTERN (A B) "
    "DEFINE B AS p > A.p) AS m",
}


@pytest.mark.parametrize("seed", seeds(9))
def test_events_are_the_rows_of_the_finished_table(seed: int) -> None:
    market = trades(seed, _TICKERS, 150, start_ns=T0 + seed * SECOND)
    table = table_of(market, "ticks")
    texts = {rule: read(sql) for rule, sql in _TEXTS.items()}
    live, at_end = streamed(texts, records_of(market), random.Random(seed), restarts=True)
    found: dict[str, list[dict[str, object]]] = {rule: [] for rule in _TEXTS}
    for event in [*live, *at_end]:
        found[event.trigger_id] += rows(event)
    for rule, sql in _TEXTS.items():
        expected = as_rows(evaluate(sql, table))
        assert sorted(map(repr, found[rule])) == sorted(map(repr, expected)), rule
        assert expected or "only" in rule, rule
