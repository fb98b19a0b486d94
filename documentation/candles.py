# ruff: noqa: E501  (prose)
"""The candle patterns: their columns and views."""

from candlewright_cep.functions.indicators.candles import CANDLES, column_of
from documentation.markdown import code, page, table

INTRODUCTION = """
The 61 candle patterns of [TA-Lib](https://ta-lib.org), as functions and as [built-in views](../triggers.md#built-in-views) over `ohlc`. Each
has a column of the view `candle_patterns`, and a view of the same name with the bars on which it was found.

```sql
-- parameters: period_seconds=60
SELECT * FROM candle_patterns MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY open_time
  MEASURES H.open_time AS hammer, LAST(open_time) AS at
  PATTERN (H W{0,2} E)
  DEFINE H AS H.hammer > 0, W AS W.engulfing <= 0, E AS E.engulfing > 0
) AS turn
```

The value is 0 where a bar does not complete the pattern, positive for a bullish pattern, negative for a bearish one, and NULL during the
first bars. 80 instead of 100 means that two bodies share an end; 200 means that a later bar confirmed the pattern.
"""
DIFFERENCES = """
## Differences from TA-Lib

No pattern is defined differently. Sizes are compared with the mean of the preceding bars, which TA-Lib computes with a running sum, and
candlewright from the bars of that mean alone. If a size equals the mean exactly, TA-Lib's rounding errors can decide otherwise; in a month
of recorded one-minute bars this never happens.

The functions use TA-Lib's default settings. Those with a *penetration* take it as an optional fifth argument, whose default is TA-Lib's; the
views use the default. Where TA-Lib returns 0 for the first bars, the value here is NULL.
"""


def markdown() -> str:
    rows = []
    for candle in CANDLES:
        values = candle.values.only if candle.values is not None else ()
        found = ", ".join(f"{value:g}" for value in sorted(values) if value)
        names = code(column_of(candle)), code(candle.name), code(candle.name.replace("_", ""))
        rows.append((names[0], candle.text, found, *names[1:]))
    head = ("column and view", "pattern", "values", "function", "TA-Lib")
    return page("Candle patterns", INTRODUCTION, table(head, rows), DIFFERENCES)
