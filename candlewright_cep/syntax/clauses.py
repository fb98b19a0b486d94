"""The forms of the grammar, for editors: each with a description and an example."""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CLAUSES", "Clause"]


@dataclass(frozen=True, slots=True)
class Clause:
    """`form`: key words in capitals, placeholders in lower case."""

    form: str
    text: str
    example: str

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word for word in self.form.replace("(", " ").replace(")", " ").split() if word.isupper())

    @property
    def key_words(self) -> str:
        """The key words at its beginning."""
        found: list[str] = []
        for part in self.form.split():
            word, parenthesis, _ = part.replace("[", "(").partition("(")
            if not word.isupper():
                break
            found.append(word)
            if parenthesis:
                break
        return " ".join(found)


#: For each form: the form, a description, and an example from the third line on.
_CLAUSES = """
SELECT columns
  what a row of the result has; * for every column
  SELECT ticker, price * size AS value FROM ticks

FROM table
  ticks, ohlc, trigger_events, a view, or a query in parentheses
  SELECT * FROM ticks

WHERE condition
  the rows for which it is true
  SELECT * FROM ticks WHERE size > 2

WITH name AS (query)
  a query under a name, for this text
  WITH big AS (SELECT * FROM ticks WHERE size > 2) SELECT * FROM big

CREATE VIEW name AS query
  a query under a name; before the text that reads it
  CREATE VIEW big AS SELECT * FROM ticks WHERE size > 2; SELECT * FROM big

GROUP BY columns
  one row for each group; on a stream with a window of time, or EMIT CHANGES
  SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
  GROUP BY ticker, window_start, window_end

GROUP BY ROLLUP (a, b)
  totals together with their parts: (a, b), (a) and ()
  SELECT ticker, side, window_start, SUM(size) AS volume FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1'
  MINUTE)) GROUP BY ROLLUP (ticker, side), window_start, window_end

GROUP BY CUBE (a, b)
  totals of every subset of the columns
  SELECT ticker, side, window_start, SUM(size) AS volume FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1'
  MINUTE)) GROUP BY CUBE (ticker, side), window_start, window_end

GROUP BY GROUPING SETS ((a, b), (a), ())
  totals of these sets of columns
  SELECT ticker, side, window_start, SUM(size) AS volume FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1'
  MINUTE)) GROUP BY GROUPING SETS ((ticker, side), (ticker)), window_start, window_end

HAVING condition
  the groups for which it is true
  SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
  GROUP BY ticker, window_start, window_end HAVING COUNT(*) > 10

QUALIFY condition
  filters by a window function
  SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
  GROUP BY ticker, window_start, window_end QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY COUNT(*)
  DESC) <= 3

EMIT CHANGES
  a row whenever a group changes, instead of one at the end
  SELECT ticker, MAX(price) AS top FROM ticks GROUP BY ticker EMIT CHANGES

ORDER BY x ASC NULLS LAST
  order of rows; DESC reverses it. NULLs come last unless NULLS FIRST is written
  SELECT * FROM ticks ORDER BY price ASC NULLS LAST

ORDER BY x DESC NULLS FIRST
  descending order
  SELECT * FROM ticks ORDER BY price DESC NULLS FIRST

LIMIT n
  the first n rows, over stored data
  SELECT * FROM ticks ORDER BY ts LIMIT 10

OFFSET n ROWS FETCH FIRST m ROWS ONLY
  m rows after the first n, over stored data
  SELECT * FROM ticks ORDER BY ts OFFSET 5 ROWS FETCH FIRST 10 ROWS ONLY

UNION ALL query
  the rows of both
  SELECT ts, price FROM ticks WHERE size > 5 UNION ALL SELECT ts, price FROM ticks WHERE price > 100

DISTINCT columns
  removes duplicate rows, over stored data; in an aggregate, duplicate values
  SELECT DISTINCT side FROM ticks

JOIN table ON condition
  pairs of rows; on a stream by event times that are equal or within an interval
  SELECT a.ts, b.price FROM ticks a JOIN ticks b ON b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts

INNER JOIN table USING (columns)
  pairs of rows that are equal in columns of one name
  SELECT a.price, b.size FROM ticks a INNER JOIN ticks b USING (ts)

LEFT JOIN table ON condition
  the same, with NULLs if nothing on the right matches
  SELECT a.ts, b.price FROM ticks a LEFT JOIN ticks b ON b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts

RIGHT JOIN table ON condition
  every row of the right side, with NULLs if nothing on the left matches
  SELECT b.ts, a.price FROM ticks a RIGHT JOIN ticks b ON b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts

FULL JOIN table ON condition
  every row of both sides, with NULLs if nothing on the other matches
  SELECT a.ts, b.price FROM ticks a FULL JOIN ticks b ON b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts

CROSS JOIN UNNEST (array) AS u(x)
  a row for each value; WITH ORDINALITY numbers them
  SELECT ts, x FROM ticks CROSS JOIN UNNEST(ARRAY[price, size]) WITH ORDINALITY AS u(x, n)

ASOF JOIN table ON condition
  the last row on the right that is not later
  SELECT t.ts, t.price, o.high FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND o.period_seconds = 60 AND
  t.ts >= o.close_time

VALUES (row), (row)
  a table written into the text
  SELECT t.ts FROM ticks t JOIN (VALUES ('BTC/USDT.BINANCE', 70000)) AS v(ticker, most) ON v.ticker = t.ticker WHERE
  t.price > v.most

BARS BY VOLUME size
  bars that end once this amount has been traded; also BY TRADES and BY VALUE
  SELECT * FROM ticks BARS BY VOLUME 100

BARS BY TRADES count
  bars of this many trades
  SELECT * FROM ticks BARS BY TRADES 1000

BARS BY VALUE size
  bars of this much price × size
  SELECT * FROM ticks BARS BY VALUE 1000000

TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), size))
  windows one after another; a zone or an exchange may follow
  SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
  GROUP BY ticker, window_start, window_end

TUMBLE(time, size)
  the same windows, in GROUP BY; TUMBLE_START and TUMBLE_END give their bounds
  SELECT ticker, TUMBLE_START(ts, INTERVAL '1' MINUTE) AS minute, COUNT(*) AS n FROM ticks GROUP BY ticker,
  TUMBLE(ts, INTERVAL '1' MINUTE)

HOP(time, slide, size)
  windows that overlap: one of this size begins each slide
  SELECT ticker, HOP_END(ts, INTERVAL '10' SECOND, INTERVAL '1' MINUTE) AS until, COUNT(*) AS n FROM ticks GROUP BY
  ticker, HOP(ts, INTERVAL '10' SECOND, INTERVAL '1' MINUTE)

CUMULATE(time, step, size)
  windows with the same start that grow by a step up to a size
  SELECT ticker, window_end, COUNT(*) AS n FROM TABLE(CUMULATE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' HOUR,
  INTERVAL '1' DAY)) GROUP BY ticker, window_start, window_end

SESSION(time, gap)
  windows that end with a pause of this length
  SELECT ticker, SESSION_END(ts, INTERVAL '30' SECOND) AS until, COUNT(*) AS n FROM ticks GROUP BY ticker,
  SESSION(ts, INTERVAL '30' SECOND)

OVER (PARTITION BY a ORDER BY b)
  for each row, a value over other rows; a frame may follow
  SELECT ts, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean FROM
  ticks

WINDOW name AS (specification)
  a window under a name, for OVER
  SELECT ts, AVG(price) OVER w AS mean, MAX(price) OVER w AS top FROM ticks WINDOW w AS (PARTITION BY ticker ORDER
  BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)

PARTITION BY columns
  rows with equal values belong together
  SELECT ts, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean FROM
  ticks

ROWS BETWEEN n PRECEDING AND CURRENT ROW
  a frame counted in rows; UNBOUNDED PRECEDING for all before
  SELECT ts, MAX(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS
  top FROM ticks

RANGE BETWEEN interval PRECEDING AND CURRENT ROW
  a frame in time
  SELECT ts, AVG(price) OVER (PARTITION BY ticker ORDER BY ts RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND
  CURRENT ROW) AS mean FROM ticks

GROUPS BETWEEN n PRECEDING AND m FOLLOWING
  a frame counted in different values of ORDER BY; FOLLOWING looks ahead
  SELECT ts, AVG(price) OVER (PARTITION BY ticker ORDER BY ts GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS mean
  FROM ticks

EXCLUDE CURRENT ROW
  leaves the row itself out of its frame; also GROUP, TIES and NO OTHERS
  SELECT ts, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW EXCLUDE
  CURRENT ROW) AS mean FROM ticks

FILTER (WHERE condition)
  an aggregate of the rows that meet it
  SELECT ticker, window_start, SUM(size) FILTER (WHERE side = 'buy') AS bought FROM TABLE(TUMBLE(TABLE ticks,
  DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end

WITHIN GROUP (ORDER BY x)
  the order of the values of an aggregate
  SELECT ticker, window_start, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY size) AS large FROM TABLE(TUMBLE(TABLE
  ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end

IGNORE NULLS
  LAG, LEAD, FIRST_VALUE, LAST_VALUE and NTH_VALUE over values that are not NULL; RESPECT NULLS is the default
  SELECT ts, LAG(price) IGNORE NULLS OVER (PARTITION BY ticker ORDER BY ts) AS before FROM ticks

GROUPING(column)
  1 in the rows of a total over all values of the column, otherwise 0
  SELECT ticker, window_start, GROUPING(ticker) AS total, SUM(size) AS volume FROM TABLE(TUMBLE(TABLE ticks,
  DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ROLLUP (ticker), window_start, window_end

MATCH_RECOGNIZE (…)
  sequences of rows, described by a pattern
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top PATTERN (A B+)
  DEFINE B AS price > PREV(price)) AS m

MEASURES x AS name
  columns of a match
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(price) AS bottom,
  LAST(B.price) AS top PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

ONE ROW PER MATCH
  a match is one row; this is the default. WITH TIMEOUT ROWS adds matches that did not finish in time
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top ONE ROW PER MATCH
  PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

ALL ROWS PER MATCH
  every row of a match; then SHOW EMPTY MATCHES, OMIT EMPTY MATCHES or WITH UNMATCHED ROWS
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top ALL ROWS PER
  MATCH OMIT EMPTY MATCHES PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

SHOW EMPTY MATCHES
  with ALL ROWS PER MATCH: matches without rows as well
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top ALL ROWS PER
  MATCH SHOW EMPTY MATCHES PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

WITH UNMATCHED ROWS
  with ALL ROWS PER MATCH: rows of no match as well
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top ALL ROWS PER
  MATCH WITH UNMATCHED ROWS PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

WITH TIMEOUT ROWS
  with ONE ROW PER MATCH and WITHIN: matches that began but did not finish in time
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top ONE ROW PER MATCH
  WITH TIMEOUT ROWS PATTERN (A B) WITHIN INTERVAL '30' SECOND DEFINE B AS price > PREV(price)) AS m

AFTER MATCH SKIP PAST LAST ROW
  the next match begins after this one; the default
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top AFTER MATCH SKIP
  PAST LAST ROW PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

AFTER MATCH SKIP TO NEXT ROW
  matches may overlap: the next may begin one row after the start of this one
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top AFTER MATCH SKIP
  TO NEXT ROW PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

AFTER MATCH SKIP TO LAST variable
  the next match begins with the last row of a variable; also TO FIRST
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top AFTER MATCH SKIP
  TO LAST B PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

AFTER MATCH SKIP TO FIRST variable
  the next match begins with the first row of a variable
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top AFTER MATCH SKIP
  TO FIRST B PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

PATTERN (A B+ C)
  the sequence: * + ? {n,m}, | for either, {- -} leaves rows out, ^ and $ for the ends
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top PATTERN (A B+ C)
  DEFINE B AS price > PREV(price), C AS price < PREV(price)) AS m

PERMUTE(A, B)
  in PATTERN: the variables in any order
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top PATTERN
  (PERMUTE(A, B)) DEFINE A AS size > 1, B AS price > 100) AS m

WITHIN interval
  bounds a match in time, from its first row to its last; FROM FIRST ROW may follow
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top PATTERN (A B+)
  WITHIN INTERVAL '5' MINUTE DEFINE B AS price > PREV(price)) AS m

WITHIN interval FROM PREVIOUS ROW
  bounds the time between each row of a match and the row before it
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top PATTERN (A B+)
  WITHIN INTERVAL '5' MINUTE, INTERVAL '10' SECOND FROM PREVIOUS ROW DEFINE B AS price > PREV(price)) AS m

SUBSET name = (A, B)
  several variables under one name
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(U.price) AS top PATTERN (A B+)
  SUBSET U = (A, B) DEFINE B AS price > PREV(price)) AS m

DEFINE variable AS condition
  what a row must satisfy; a variable without a definition takes any row
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS top PATTERN (A B+)
  DEFINE B AS price > PREV(price)) AS m

RUNNING expression
  in MEASURES: over the rows up to the current one
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES RUNNING MAX(price) AS top ALL ROWS
  PER MATCH PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

FINAL expression
  in MEASURES: over all rows of the match
  SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FINAL MAX(price) AS top ALL ROWS PER
  MATCH PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m

CASE WHEN condition THEN value ELSE value END
  the first value whose condition is true
  SELECT CASE WHEN side = 'buy' THEN size ELSE -size END AS signed FROM ticks

CAST(x AS type)
  another type, whole numbers rounded; NULL if x has no such value. TRY_CAST is the same
  SELECT CAST(price AS BIGINT) AS whole FROM ticks

TRY_CAST(x AS type)
  the same as CAST
  SELECT TRY_CAST(side AS DOUBLE) AS number FROM ticks

INTERVAL 'n' unit
  a span of time: SECOND, MINUTE, HOUR, DAY and others, and MONTH, QUARTER and YEAR
  ts > received_at - INTERVAL '5' SECOND

TIMESTAMP 'time'
  a time, in UTC
  ts >= TIMESTAMP '2024-01-31 09:30:00'

DATE 'day'
  a day
  CAST(ts AS DATE) = DATE '2024-01-31'

AT TIME ZONE 'Area/City'
  the wall clock there
  EXTRACT(HOUR FROM ts AT TIME ZONE 'America/New_York') = 9

BETWEEN a AND b
  whether a value is from a to b, both included
  price BETWEEN 100 AND 200

IN (a, b)
  whether a value is one of these
  side IN ('buy', 'sell')

LIKE 'pattern'
  % stands for any characters, _ for one; ESCAPE names a character before which they stand for themselves
  ticker LIKE 'BTC/%'

IS NULL
  whether the value is missing; also IS NOT NULL, IS TRUE, IS FALSE, IS DISTINCT FROM
  received_at IS NULL

AND condition
  both are true
  price > 100 AND size > 2

OR condition
  one of them is true
  price > 100 OR size > 2

NOT condition
  true where it is false; NULL stays NULL
  NOT (price > 100)

TRUE
  the condition that every row meets
  TRUE

FALSE
  the condition that no row meets
  FALSE

ARRAY[a, b]
  an array of values of one type
  ARRAY_CONTAINS(ARRAY['buy', 'sell'], side)

TIMESTAMPDIFF(unit, from, to)
  whole units from one time to another
  TIMESTAMPDIFF(SECOND, ts, received_at) > 5

TIMESTAMPADD(unit, count, time)
  the time this many units later
  TIMESTAMPADD(SECOND, 5, ts) < received_at

POSITION(part IN text)
  position of the first occurrence, from 1; 0 without one
  POSITION('/' IN ticker) = 4
"""


def _read(text: str) -> Iterator[Clause]:
    for block in text.strip().split("\n\n"):
        form, what, *example = (line.strip() for line in block.split("\n"))
        yield Clause(form, what, " ".join(example))


CLAUSES = tuple(_read(_CLAUSES))
