"""Names that other dialects, libraries and tools use, and what they are called here."""

import re

# Names that other dialects use for functions of the table.
ALIASES = {
    "CHARACTER_LENGTH": "CHAR_LENGTH",
    "LEN": "LENGTH",
    "UCASE": "UPPER",
    "LCASE": "LOWER",
    "NVL": "COALESCE",
    "INSTR": "STRPOS",
    "POWER10": "POW",
    "IIF": "IF",
    "STARTSWITH": "STARTS_WITH",
    "ENDSWITH": "ENDS_WITH",
    "BTRIM": "TRIM",
    "REGEXP": "REGEXP_LIKE",
    "DATEDIFF": "DATE_DIFF",
    "DATEADD": "DATE_ADD",
    "DAYOFMONTH": "DAY_OF_MONTH",
    "DAYOFYEAR": "DAY_OF_YEAR",
    "WEEK_OF_YEAR": "WEEK",
    "DATETRUNC": "DATE_TRUNC",
    "TRUNC": "TRUNCATE",
    "FORMAT_DATETIME": "DATE_FORMAT",
    "CODEPOINT": "ASCII",
    "CHAR": "CHR",
    "ISNAN": "IS_NAN",
}
#: Names for the previous row's value of a column.
PREVIOUS = re.compile(r"(?:prev|previous|prior|lag)_?(\w+)|(\w+)_(?:prev|previous|prior|lag)")
#: Functions that only row patterns have, and what to use elsewhere.
OF_PATTERNS = {
    "FIRST": "elsewhere, FIRST_VALUE(price) OVER (...), or MIN_BY(price, ts) of a group",
    "LAST": "elsewhere, LAST_VALUE(price) OVER (...), or MAX_BY(price, ts) of a group",
    "PREV": "LAG(...) OVER (PARTITION BY ticker ORDER BY ts) is the value of the row before",
    "NEXT": "a later row is seen by a pattern of two rows",
    "CLASSIFIER": "it names the variable that a row of a match was found for",
    "MATCH_NUMBER": "ROW_NUMBER() OVER (PARTITION BY ticker ORDER BY ts) counts rows",
}
_ROWS_BEFORE = "OVER (PARTITION BY ticker ORDER BY open_time ROWS 19 PRECEDING)"
_FORMATTED = "write DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm')"
_WINDOWED = "write DATE_TRUNC('minute', ts), or GROUP BY TUMBLE(ts, INTERVAL '5' MINUTE)"
#: What to write instead of functions that other dialects have.
ELSEWHERE = {
    **dict.fromkeys(["TO_CHAR", "STRFTIME", "DATE_TO_STRING"], _FORMATTED),
    **dict.fromkeys(["TIME_BUCKET", "DATE_BIN", "TOSTARTOFMINUTE", "TOSTARTOFINTERVAL"], _WINDOWED),
    **dict.fromkeys(["ISNULL", "ZEROIFNULL"], "write COALESCE(price, 0), or price IS NULL"),
    **dict.fromkeys(["PERCENTILE", "QUANTILE"], "write PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY price)"),
    **dict.fromkeys(
        [
            "CROSSOVER",
            "CROSSUNDER",
            "CROSS",
            "CROSSES",
            "CROSS_ABOVE",
            "CROSSES_ABOVE",
            "CROSSED_ABOVE",
            "CROSS_BELOW",
            "CROSSES_BELOW",
            "CROSSED_BELOW",
        ],
        "compare with LAG(...) OVER (...), or write a pattern",
    ),
    **dict.fromkeys(["PCT_CHANGE", "RETURNS"], "write close / LAG(close) OVER (PARTITION BY ticker ORDER BY ...) - 1"),
    **dict.fromkeys(["DIFF", "DELTA", "CHANGE"], "write close - LAG(close) OVER (PARTITION BY ticker ORDER BY ...)"),
    **dict.fromkeys(["STD", "STDEV"], "write STDDEV(price)"),
    **dict.fromkeys(["AVERAGE", "MEAN"], "write AVG(x), or SMA(x, n) OVER (...) for the last n rows"),
    **dict.fromkeys(["HIGHEST", "ROLLING_MAX", "HHV"], f"write MAX(high) {_ROWS_BEFORE}"),
    **dict.fromkeys(["LOWEST", "ROLLING_MIN", "LLV"], f"write MIN(low) {_ROWS_BEFORE}"),
    **dict.fromkeys(
        ["BB", "BBANDS", "BOLLINGER", "BOLLINGER_BANDS"],
        "write BOLLINGER_UPPER(close, 20, 2), BOLLINGER_MIDDLE or BOLLINGER_LOWER, each with OVER",
    ),
    **dict.fromkeys(["STOCH", "STOCHASTIC"], "write STOCH_K or STOCH_D, each with OVER"),
    **dict.fromkeys(["MA", "MAVG", "MOVING_AVERAGE", "ROLLING_MEAN"], "write SMA(close, 20) OVER (...)"),
    **dict.fromkeys(["ARGMAX", "ARG_MAX"], "did you mean 'MAX_BY'?"),
    **dict.fromkeys(["ARGMIN", "ARG_MIN"], "did you mean 'MIN_BY'?"),
    "COUNTIF": "did you mean 'COUNT_IF'?",
    "ANY": "write ANY_VALUE(x), or x IN (1, 2)",
    "ALL": "compare with GREATEST(1, 2) or LEAST(1, 2)",
    "COLUMNS": "name the columns",
    "CONVERT_TZ": "write ts AT TIME ZONE 'America/New_York'",
    **dict.fromkeys(["SLIDE", "SLIDING", "HOPPING"], "write HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)"),
    "TUMBLING": "write TUMBLE(ts, INTERVAL '5' MINUTE)",
    "DECODE": "write CASE side WHEN 'buy' THEN 1 ELSE 0 END",
    "STRPTIME": "write CAST(x AS TIMESTAMP)",
    "SHIFT": "write LAG(price, 1) OVER (PARTITION BY ticker ORDER BY ts)",
    "REF": "write LAG(price, 1) OVER (PARTITION BY ticker ORDER BY ts)",
}
#: Names of columns elsewhere, and what they are called here, if the input has it.
COLUMNS = {
    **dict.fromkeys(["symbol", "sym", "pair", "instrument", "market", "asset", "coin"], ("ticker",)),
    **dict.fromkeys(["time", "timestamp", "datetime", "date", "event_time", "t"], ("ts", "open_time", "fired_at")),
    **dict.fromkeys(["last", "last_price", "px", "close"], ("price",)),
    "price": ("close",),
    **dict.fromkeys(["qty", "quantity", "amount", "vol", "volume"], ("size", "volume")),
    **dict.fromkeys(["interval", "period", "timeframe", "tf", "resolution"], ("period_seconds",)),
    **dict.fromkeys(["trades", "count"], ("trade_count",)),
    **dict.fromkeys(["closed", "final", "is_final", "confirmed"], ("complete",)),
}
#: EMA20 or EMA_20.
WITH_LENGTH = re.compile(r"([A-Z_]+?)_?(\d+)")
TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
OF_DAY = "write DATE_FORMAT(ts AT TIME ZONE 'America/New_York', 'HH:mm') >= '09:30'"
NOW = (
    "NOW",
    "TODAY",
    "GETDATE",
    "SYSDATE",
    "UTCNOW",
    "CURRENT_TIMESTAMP",
    "CURRENT_DATE",
    "CURRENT_TIME",
    "LOCALTIMESTAMP",
    "LOCALTIME",
    "RAND",
    "RANDOM",
    "UUID",
)
#: Functions whose names are likelier to be meant as columns.
LIKELY_COLUMNS = frozenset(["E", "PI", "DAY", "HOUR", "LEFT", "RIGHT", "ROW"])
#: Names of inputs elsewhere.
INPUTS = {
    **dict.fromkeys(["trades", "prices", "quotes", "tick", "trade"], "ticks"),
    **dict.fromkeys(["bars", "candles", "klines", "ohlcv", "candlesticks"], "ohlc"),
    **dict.fromkeys(["events", "alerts", "triggers"], "trigger_events"),
}
