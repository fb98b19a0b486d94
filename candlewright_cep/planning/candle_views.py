"""Views that every text may read: the candle patterns of `ohlc`. A view or table of the same name hides them."""

from collections.abc import Collection, Mapping

from candlewright_cep.functions.indicators.candles import CANDLES, column_of
from candlewright_cep.functions.indicators.indicator import Indicator

__all__ = ["CANDLE_PATTERNS", "CANDLE_VIEWS", "KEYS", "candle_view"]

#: The view that has a column for each pattern. Each pattern has a view of its own as well.
CANDLE_PATTERNS = "candle_patterns"
#: The columns by which `ohlc` is partitioned.
KEYS = ("ticker", "period_seconds")


_CANDLES = {column_of(candle): candle for candle in CANDLES}
#: What each view contains, by name.
CANDLE_VIEWS: Mapping[str, str] = {
    CANDLE_PATTERNS: "every bar, with a column for each candle pattern",
    **{name: f"the bars with this pattern: {candle.text}" for name, candle in _CANDLES.items()},
}


def candle_view(name: str, keys: Collection[str] = KEYS, read: Collection[str] | None = None) -> str:
    """The text of one of CANDLE_VIEWS. `keys`: the columns by which the bars are partitioned; `read`: the columns that
    are computed, the others being NULL.
    """
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    window = f"({partition}ORDER BY open_time)"
    if name != CANDLE_PATTERNS:
        found = f"SELECT *, {_call(_CANDLES[name])} OVER {window} AS value FROM ohlc"
        return f"SELECT * FROM ({found}) WHERE value <> 0"
    columns = (
        f"  {f'{_call(candle)} OVER bars' if read is None or each in read else 'CAST(NULL AS DOUBLE)'} AS {each}"
        for each, candle in _CANDLES.items()
    )
    return "SELECT *,\n" + ",\n".join(columns) + f"\nFROM ohlc\nWINDOW bars AS {window}"


def _call(candle: Indicator) -> str:
    return f"{candle.name}({', '.join(candle.inputs)})"
