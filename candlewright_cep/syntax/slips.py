"""Slips that the text around an error shows, with what to write instead.

Authors bring forms of other dialects, libraries and languages. A parser cannot expect all of them; it reports the
place where reading stopped, and this table says what was probably meant there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from re import IGNORECASE

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits
from candlewright_cep.syntax.tokens import Token, TokenKind, tokenize
from candlewright_cep.times import unit_name

_AROUND = 200
_UNIT = r"(MILLISECOND|SECOND|MINUTE|HOUR|DAY|WEEK)S?"
_LAG = "LAG({0}) OVER (PARTITION BY ticker ORDER BY {time})"
_LOOK_BACK = "PARTITION BY ticker ORDER BY {time} RANGE BETWEEN INTERVAL '5' MINUTE PRECEDING AND CURRENT ROW"
_OF_BARS = re.compile(r"\b(?:ohlc|open|high|low|close|volume|open_time)\b", IGNORECASE)
_PRICE = re.compile(r"\bprice\b")
_SEQUENCE = "write variables with blanks between them, as in (A B); a variable without a definition takes any row"


@dataclass(frozen=True, slots=True)
class Slip:
    """`form`: what is written. `hint`: what to write, with the groups of the form as {0}, {1} and {time} for the
    column of event time. `mended`: what replaces the form, if that is obvious.
    """

    form: re.Pattern[str]
    hint: str
    mended: str | None = None


def _slip(form: str, hint: str, mended: str | None = None) -> Slip:
    return Slip(re.compile(form, IGNORECASE), hint, mended)


def _instead(form: str, mended: str) -> Slip:
    return _slip(form, f"write {mended.strip()}", mended)


#: An error at one of its parts has a hint about columns, which this one replaces.
_TICKER = _slip(r"(?-i:\b([A-Z0-9]+/[A-Z0-9]+\.[A-Z0-9_]+))(?![\w.])", "write '{0}' in single quotes", "'{0}'")
#: The first that covers the place of an error applies.
_SLIPS = (
    # Tickers without quotes.
    _instead(r"\bFROM\s+((?-i:[A-Z0-9]+/[A-Z0-9]+\.[A-Z0-9_]+))(?![\w.])", "FROM ticks WHERE ticker = '{0}'"),
    _TICKER,
    # Characters of word processors.
    *(_instead(form, mended) for form, mended in zip("≥≤≠×÷", (">=", "<=", "<>", "*", "/"), strict=True)),
    _slip("[‘’‚“”„´]([^'‘’“”„´\n]*)[‘’“”´]", "write texts in plain single quotes", "'{0}'"),
    _slip("[‘’‚“”„´]", "write texts in plain single quotes", "'"),
    _slip("[–—−]", "write -", "-"),
    _slip("[\u00a0\u2000-\u200b\u202f\u3000\ufeff]", "write a plain blank", " "),
    _slip(r"[^\x00-\x7f]", "names in the text are ASCII letters, digits and _"),
    # Numbers.
    _slip(r"\bBETWEEN\s+(\d+),(?=\d{3}\s*\Z)", "write BETWEEN low AND high", "BETWEEN {0} AND "),
    _slip(r"(?<![\w.])(\d+)(?:_|,(?=\d{3}(?!\w)))(\d+)", "write numbers without separators, as 70000.5", "{0}{1}"),
    _instead(r"(?<![\w.])(\d+(?:\.\d+)?)k\b", "{0}e3"),
    _slip(r"(?<![\w.])\d+(?:\.\d+)?(?:m|mm|mn|b|bn)\b", "write numbers in full, as 1000000 or 1e6"),
    _slip(r"\d\s*%", "write a percentage as a number: 1.02 is 2 % more"),
    _slip(r"[$€£](?=\s*\d)", "write the number alone", ""),
    # Intervals.
    _instead(rf"\bINTERVAL\s+'(\d+)\s*{_UNIT}'", "INTERVAL '{0}' {1}"),
    _slip(r"\bINTERVAL\s+'[^'\n]*[a-z][^'\n]*'", "write INTERVAL '5' MINUTE"),
    _instead(rf"\bWITHIN\s+'?(\d+)'?\s*{_UNIT}\b'?", "WITHIN INTERVAL '{0}' {1}"),
    _instead(
        r"\bWITHIN\s+(INTERVAL\s+\S+\s+\w+)\s+(?!FROM\s+PREVIOUS\s+ROW\b)(?:(?:FROM|SINCE|OF|AFTER)\s+)?(?:THE\s+)?"
        r"(?:PREV|PREVIOUS|PRIOR|PRECEDING|LAST)\b(?:\s+(?:ROWS?|EVENT|ONE)\b)?",
        "WITHIN {0} FROM PREVIOUS ROW",
    ),
    _instead(r"\bWITHIN\s+(INTERVAL\s+\S+\s+\w+)\s+(?:AND|WITHIN)\s+(?=INTERVAL\b)", "WITHIN {0}, "),
    _slip(r"\bWITHIN\s+['\d]", "write WITHIN INTERVAL '5' MINUTE"),
    _instead(rf"'(\d+)\s*{_UNIT}'(?=\s+(?:PRECEDING|FOLLOWING))", "INTERVAL '{0}' {1}"),
    _instead(rf"(?<=,)\s*'?(\d+)'?\s*{_UNIT}\b'?(?=\s*[,)])", " INTERVAL '{0}' {1}"),
    _instead(rf"(?<=[-+])\s*'?(\d+)'?\s*{_UNIT}\b'?", " INTERVAL '{0}' {1}"),
    # Row patterns.
    _instead(r"\bPATTERN\s*\(([^()]*?)\s+DEFINE\s+(\w+)\s+(?=AS\b)", "PATTERN ({0}) DEFINE {1} "),
    _slip(r"\bPATTERN\s*\([^)]*!", "define a variable by the opposite, as in X AS NOT price > 1"),
    _slip(r"\bPATTERN\s*\([^)]*?(?:->|~>|=>|[.\[~&/;:])", _SEQUENCE),
    _instead(r"\bPATTERN\s+(?!\()([^()]*?)(?=\s+(?:DEFINE|WITHIN|SUBSET)\b)", "PATTERN ({0})"),
    _instead(r"\bSKIP\s+PAST\s+LAST(?!\s+ROW)", "SKIP PAST LAST ROW"),
    _instead(r"\bSKIP\s+TO\s+NEXT(?!\s+ROW)", "SKIP TO NEXT ROW"),
    _slip(
        r"\bAFTER\s+MATCH\b(?:\s+\w+){0,4}",
        "write AFTER MATCH SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST A or SKIP TO LAST A",
    ),
    _instead(r"\bALL\s+ROWS(?!\s+PER\b)", "ALL ROWS PER MATCH"),
    _instead(r"\bONE\s+ROW(?!\s+PER\b)", "ONE ROW PER MATCH"),
    _slip(
        r"\bMATCH_RECOGNIZE\s+(?=PARTITION|ORDER|MEASURES|PATTERN)",
        "write the clauses in parentheses: MATCH_RECOGNIZE (PARTITION BY ... DEFINE ...) AS m",
    ),
    _instead(r"\bSUBSET\s+(\w+)\s*=?\s*(?:\(([^()]*)\)|(\w+(?:\s*,\s*\w+)*)(?=\s+DEFINE\b))", "SUBSET {0} = ({1}{2})"),
    _instead(r"\bMATCH\s+RECOGNIZE\b", "MATCH_RECOGNIZE"),
    _instead(r"\*\s+(?=MATCH_RECOGNIZE\b)", "* FROM ticks "),
    _slip(
        r"\bFROM\s+(\w+)\s+WHERE\s+(\S[^;]*?)\s+(?=MATCH_RECOGNIZE\b)",
        "filter in a sub-query: FROM (SELECT * FROM {0} WHERE ...) MATCH_RECOGNIZE (...)",
        "FROM (SELECT * FROM {0} WHERE {1}) ",
    ),
    _slip(
        r"\A\s*(?:MATCH_RECOGNIZE|PATTERN)\b[\s(\w]*",
        "write SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts PATTERN (...) DEFINE ...) AS m",
    ),
    _slip(
        r"\b(DEFINE\b[^;]*?[\w)'])\s+(?=\w+\s+AS\b)",
        "separate the definitions with commas, as in A AS ..., B AS ...",
        "{0}, ",
    ),
    # Windows.
    _slip(r"\b(TUMBLE|HOP|CUMULATE|SESSION)\s*\(\s*(?:INTERVAL\b|'\d+')", "write {0}(ts, INTERVAL '5' MINUTE)"),
    _slip(
        r"\b(TUMBLE|HOP|CUMULATE|SESSION)\s*\(\s*(?:TABLE\s+)?(\w+)\s*,\s*(?!DESCRIPTOR)",
        "write TABLE({0}(TABLE {1}, DESCRIPTOR({time}), INTERVAL '5' MINUTE))",
    ),
    _slip(r"\bWINDOW\s+(?:TUMBLING|HOPPING|SESSION)\b", "write GROUP BY ticker, TUMBLE({time}, INTERVAL '1' MINUTE)"),
    _slip(r"\bSAMPLE\b", "write GROUP BY ticker, TUMBLE({time}, INTERVAL '1' MINUTE)"),
    _slip(r"\bOVER\s+\d+", "write OVER (PARTITION BY ticker ORDER BY {time} ROWS 19 PRECEDING)"),
    _slip(
        r"\bOVER\s+(?:PARTITION|ORDER)(?:\s+BY)?\b",
        "write the window in parentheses: OVER (PARTITION BY ... ORDER BY ...)",
    ),
    _instead(r"\b(ROWS|GROUPS)\s+(\d+)\s*(?=\))", "{0} {1} PRECEDING"),
    _instead(r"\bBETWEEN\s+(\d+)\s+(?=AND\s+CURRENT)", "BETWEEN {0} PRECEDING "),
    _instead(
        r"\b(ROWS|RANGE|GROUPS)\s+BETWEEN\s+([^()]*?)\s+PRECEDING\s*(?=\))", "{0} BETWEEN {1} PRECEDING AND CURRENT ROW"
    ),
    _slip(r"\bFILTER\s*\(\s*(?!WHERE\b)", "write FILTER (WHERE ...)", "FILTER (WHERE "),
    _slip(r"\bquantile\w*\(([\d.]+)\)", "write PERCENTILE_CONT({0}) WITHIN GROUP (ORDER BY price)"),
    # Methods of data frames, and qualified functions.
    _instead(r"\b(\w+)\.shift\(\s*1?\s*\)", _LAG),
    _instead(r"\b(\w+)\.(?:prev|previous)\b(?!\s*\()", _LAG),
    _slip(r"\b(\w+)\.shift\(", "write LAG({0}, 2) OVER (PARTITION BY ticker ORDER BY {time})"),
    _slip(
        r"\b(\w+)\.(?:rolling|ewm|expanding)\(",
        "write AVG({0}) OVER (PARTITION BY ticker ORDER BY {time} ROWS BETWEEN 19 PRECEDING AND CURRENT ROW)",
    ),
    _instead(r"\b(\w+)\.pct_change\(\s*\)", f"({{0}} / {_LAG} - 1)"),
    _instead(r"\b(\w+)\.diff\(\s*\)", f"({{0}} - {_LAG})"),
    _slip(r"\b(?:ta|talib|pta|np|numpy|math|pd|df|F|fn)\.(\w+)\s*\(", "write {0}(...) alone", "{0}("),
    _instead(r"\b(\w+)\.(\w+)\(\s*\)", "{1}({0})"),
    _slip(r"\b(\w+)\.(\w+)\(", "write {1}({0}, ...)"),
    # Parameters.
    _instead(r"(?:\$|@)([a-z_]\w*)|\{([a-z_]\w*)\}|%\((\w+)\)s", ":{0}{1}{2}"),
    _slip(r"[\[(,=<>+*/-]\s*\?(?!\s*[\w'.]+\s*:)", "name the parameter, as in :limit"),
    # Clauses.
    _instead(r"\A\s*FROM\b(?![\s\S]*\bSELECT\b)", "SELECT * FROM"),
    _slip(r"\A\s*FROM\b", "write SELECT ... FROM ..."),
    _instead(r"\b(GROUP|ORDER|PARTITION)\s+(?!BY\b)(?=[a-z_])", "{0} BY "),
    _slip(r",(\s*)(?=FROM\b|WHERE\b|GROUP\b|PATTERN\b|\))", "leave out the comma before it", "{0}"),
    _slip(
        r"\bDISTINCT\s+ON\b",
        "write QUALIFY ROW_NUMBER() OVER (PARTITION BY ticker ORDER BY {time}) = 1 at the end of the SELECT",
    ),
    _slip(r"\bWITH\s+\w+\s+AS\s+(?=SELECT)", "write the query in parentheses, as in WITH a AS (SELECT ...)"),
    _slip(r"\*\s*(?:EXCLUDE|EXCEPT|REPLACE)\b", "name the columns"),
    _instead(r"\b(LEFT|INNER)\s+ASOF\b", "ASOF {0}"),
    _slip(r"\bMATCH_CONDITION\b", "write ON a.ticker = b.ticker AND a.ts >= b.close_time"),
    _slip(
        r"\b(?:LATERAL|FOR\s+SYSTEM_TIME)\b",
        "write ASOF JOIN ohlc AS b ON ... AND a.ts >= b.close_time",
    ),
    _slip(r"\bPIVOT\b\s*\(?\s*\w*", "write SUM(size) FILTER (WHERE side = 'buy') AS buys for each value"),
    _slip(r"\bINTO\s+\w*", "leave it out: the rows of a trigger are its events"),
    _slip(r"\bRECURSIVE\b", "a row pattern or a trigger over trigger_events follows a chain of rows"),
    _instead(r"\A(?![\s\S]*\b(?:SELECT|FROM)\b)([\s\S]*?)\bWHERE\b", "{0}AND"),
    _instead(r"\bFROM\s+(\w+)\s+(\w+)\s*(?=[<>=])", "FROM {0} WHERE {1} "),
    # Expressions.
    _slip(r"\bBETWEEN\s+([\w.:']+)(?:\s*,|\s+TO\b)\s*", "write BETWEEN low AND high", "BETWEEN {0} AND "),
    _slip(r"\bBETWEEN\s+[\w.:']+\s*\Z", "write BETWEEN low AND high"),
    _slip(r"\b(?:AND|OR)\s+(?=[<>=])", "write both sides, as in price > 3 AND price < 5"),
    _slip(r"\b(?:AND|OR)\s+(?=(?:AND|OR)\b)", "leave one of them out"),
    _slip(r"\bIS\s+NOT\s+(?=[\d'])", "write <>", "<> "),
    _slip(r"\bIS\s+(?=[\d'])", "write =", "= "),
    _instead(r"\bISNULL\b(?!\s*\()", "IS NULL"),
    _instead(r"\bNOT\s*NULL\b", "IS NOT NULL"),
    _slip(r"~\*?|\b(?:RLIKE|REGEXP|GLOB|SIMILAR)\b", "write REGEXP_LIKE(side, 'b.*')"),
    _slip(r"\bNOT\s+ILIKE\b", "write NOT LOWER(side) LIKE 'b%'"),
    _slip(r"\bCAST\s*\(\s*([\w.]+)\s*,\s*(\w+)", "write CAST({0} AS {1})", "CAST({0} AS {1}"),
    _slip(r"\bCASE\s+\w+\s+(?=')", "write CASE side WHEN 'buy' THEN 1 ELSE 0 END"),
    _slip(r"\bDIV\b", "write FLOOR(price / 2)"),
    _slip(r"(?<![\w\])])\[", "write ARRAY[price, size]"),
    _slip(r"\{\s*'[^'\n]*'\s*(?=:)", "write ROW(price AS name)"),
    _instead(">>", ">"),
    _slip("->", "write MATCH_RECOGNIZE (... PATTERN (A B) DEFINE A AS ..., B AS ...)"),
    _slip(r"\bIN\s+(?:'([^'\n]*)'|\"([^\"\n]*)\")", "write IN ('a', 'b')", "IN ('{0}{1}')"),
    _slip(r"\bIN\s+\[([^\]\n]*)\]", "write IN (1, 2)", "IN ({0})"),
    _slip(r"('[^'\n]*')\s+('[^'\n]*')", "separate the values with commas", "{0}, {1}"),
    _slip(r"\bEXTRACT\s*\(\s*'?([a-z]+)'?\s*,\s*", "write EXTRACT({0} FROM ts)", "EXTRACT({0} FROM "),
    _instead(r"\bAT\s+TIMEZONE\b", "AT TIME ZONE"),
    _slip(r"\?\s*[\w'.]+\s*:", "write IF(condition, then, else)"),
    _instead("=<", "<="),
    _instead("><|=!", "<>"),
    _slip(r"\*\*", "write POWER(price, 2)"),
    _slip("//", "write FLOOR(price / 2)"),
    _slip(r"\bXOR\b", "write <> between two conditions in parentheses"),
    _instead(r"\|(?!\|)", "OR"),
    _slip(r"!(?!=)\s*(?=[\w(])", "write NOT or <>", "NOT "),
    _slip(
        r"\b(?:cross|rise|fall|drop|jump|increase|decrease|break)(?:s|es|ed)?\b",
        f"compare with an earlier value, as in price > 5 AND {_LAG.replace('{0}', 'price')} <= 5",
    ),
    _slip(r"\bFOR\s+\d+\s*\w+", f"write MIN(price) OVER ({_LOOK_BACK}) > 5"),
    _slip(r"(?<!\A)\bWHEN\b", "write one condition, as in price > 3 AND size > 2"),
    _slip(r"\A\s*(?:IF|WHEN)\s+(?!\()", "write the condition alone"),
)


#: Three digits after a comma, the first of them zero: the end of a number with separators, never a number alone.
_THOUSANDS = re.compile(r",0\d\d(?!\w)")
_SEPARATED = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)")


def separated_numbers(text: str, limits: Limits) -> Iterator[str]:
    """A warning for each number with separators, such as 70,000, that a list takes as two."""
    if not _THOUSANDS.search(text):
        return
    end = 0
    for token in tokenize(text, limits):
        found = _SEPARATED.match(text, token.start) if token.kind is TokenKind.NUMBER else None
        if found and token.start >= end and _THOUSANDS.search(found[0]):
            end = found.end()
            # More than one separator may also come from a list without blanks.
            number = found[0].replace(",", "") if found[0].count(",") == 1 else "numbers without separators, as 70000.5"
            place = f"line {token.at.line}, column {token.at.column}"
            yield f"{found[0]} ({place}) is a list of numbers: write {number}"


def divided_numbers(text: str, limits: Limits) -> Iterator[str]:
    """A warning for each quotient of two written whole numbers that is cut to one, such as 1 / 2."""
    tokens = tokenize(text, limits)
    for before, number, symbol, other in zip(tokens[-1:] + tokens, tokens, tokens[1:], tokens[2:], strict=False):
        # A product or quotient to the left is divided instead.
        if symbol.text != "/" or before.text in ("*", "/", "%") or not (_is_whole(number) and _is_whole(other)):
            continue
        quotient, rest = divmod(int(number.text), int(other.text) or 1)
        if rest:
            place, by = f"line {number.at.line}, column {number.at.column}", other.text
            yield f"{number.text} / {by} ({place}) is {quotient}, a whole number: write {number.text}.0 / {by}"


def _is_whole(token: Token) -> bool:
    return token.kind is TokenKind.NUMBER and token.text.isdigit() and len(token.text) < 19


def _slip_at(text: str, line: int, column: int) -> tuple[Slip, re.Match[str], int] | None:
    """The slip that covers the position, or ends before it with only blanks between. Also: where the match's text
    begins in `text`.
    """
    place = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
    begin = max(0, place - _AROUND)
    near = text[begin : place + _AROUND]
    for slip in _SLIPS:
        for found in slip.form.finditer(near):
            if found.start() <= place - begin and not near[found.end() : max(found.end(), place - begin)].strip():
                return slip, found, begin
    return None


def _filled(form: str, found: re.Match[str], text: str) -> str:
    groups = [group.upper() if unit_name(group) else group for group in found.groups("")]
    is_of_bars = _OF_BARS.search(text) is not None
    form = _PRICE.sub("close", form) if is_of_bars else form
    return form.format(*groups, time="open_time" if is_of_bars else "ts")


def hinted(error: TriggerRejected, text: str) -> TriggerRejected:
    """The error with the hint of a slip, if it has none."""
    found = _slip_at(text, error.line, error.column)
    if found is None or (error.hint and found[0] is not _TICKER):
        return error
    slip, match, _ = found
    return TriggerRejected(error.message, error.line, error.column, hint=_filled(slip.hint, match, text))


def mended_at(text: str, error: TriggerRejected) -> tuple[int, int, str] | None:
    """Where the slip of an error that `hinted` made begins in `text`, its length, and what replaces it."""
    if (found := _slip_at(text, error.line, error.column)) is None:
        return None
    slip, match, begin = found
    if slip.mended is None or error.hint != _filled(slip.hint, match, text):
        return None
    return begin + match.start(), len(match.group()), _filled(slip.mended, match, text)
