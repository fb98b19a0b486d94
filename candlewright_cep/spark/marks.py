"""The words that only the trigger language has: where Spark SQL has no such function, or cannot parse them."""

from collections.abc import Container, Sequence

from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.spark.words import Word, closing, in_from

__all__ = ["FUNCTIONS", "is_mark"]

#: Functions that Spark lacks.
FUNCTIONS = frozenset(
    """
    APPROX_DISTINCT ARBITRARY DATE_CEIL DAY_OF_MONTH DAY_OF_WEEK DAY_OF_YEAR DOW DOY ENDS_WITH GEOMETRIC_MEAN ISODOW
    ISOYEAR IS_FINITE IS_INFINITE IS_NAN IS_OPEN JSON_VALUE MICROSECOND MILLISECOND MINUTE_OF_SESSION NANOSECOND ROW
    SESSION_CLOSE SESSION_OF SESSION_OPEN STARTS_WITH STRPOS TO_SECONDS TO_UNIXTIME TRUNCATE VWAP WEEK YEAR_OF_WEEK YOW
    """.split()  # noqa: SIM905
).union(INDICATORS)
_WINDOWS = frozenset(
    f"{name}{end}" for name in ("TUMBLE", "HOP", "CUMULATE", "SESSION") for end in ("", "_START", "_END", "_ROWTIME")
)
_CALLED = FUNCTIONS | _WINDOWS | {"UNNEST", "PATTERN"}
_NUMBER, _STRING = "number", "string"
#: Words in a row: for each the alternatives, which may be the kind of a word.
_PHRASES: tuple[tuple[frozenset[str], ...], ...] = tuple(
    tuple(frozenset(place.split("|")) for place in phrase.split())
    for phrase in (
        "ASOF JOIN|LEFT|INNER|RIGHT|FULL|CROSS",
        "BARS BY",
        "EMIT CHANGES",
        "QUALIFY",
        "AT TIME ZONE",
        "ARRAY [",
        "GROUPS BETWEEN|UNBOUNDED|CURRENT|number",
        "EXCLUDE CURRENT|GROUP|TIES|NO",
        "FETCH FIRST|NEXT",
        "OFFSET number ROW|ROWS",
        "IGNORE NULLS )",
        "DATE_ADD|DATE_DIFF ( string",
    )
)


def is_mark(words: Sequence[Word], place: int, views: Container[str]) -> bool:
    """Whether the words from this place on belong to the trigger language alone. `views`: the names of views that Spark
    does not know, in lower case.
    """
    word = words[place]
    if word.kind != "name":
        return False
    after = words[place + 1].text if place + 1 < len(words) else ""
    before = words[place - 1] if place else None
    if after == "(" and word.upper in _CALLED:
        return before is None or before.text != "."
    if any(_begins(words, place, phrase) for phrase in _PHRASES) or _is_filter_of_window(words, place):
        return True
    if before is None or after in (".", "(") or word.text.lower() not in views:
        return False
    return before.upper in ("FROM", "JOIN", "TABLE") or (before.text == "," and in_from(words, place))


def _begins(words: Sequence[Word], place: int, phrase: Sequence[frozenset[str]]) -> bool:
    if place + len(phrase) > len(words):
        return False
    return all(word.upper in wanted or word.kind in wanted for word, wanted in zip(words[place:], phrase, strict=False))


def _is_filter_of_window(words: Sequence[Word], place: int) -> bool:
    """FILTER (...) OVER, which Spark parses but does not support."""
    if words[place].upper != "FILTER" or place + 1 >= len(words) or words[place + 1].text != "(":
        return False
    end = closing(words, place + 1)
    return end is not None and end + 1 < len(words) and words[end + 1].upper == "OVER"
