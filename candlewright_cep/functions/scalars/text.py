"""String functions, and the conversion between text and other types."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.functions import decimals
from candlewright_cep.functions.scalars.time_format import formatted
from candlewright_cep.functions.signatures import Mismatch, fixed
from candlewright_cep.functions.usage import NOT_NEGATIVE, Declared, Usage
from candlewright_cep.limits import MADE_TEXT
from candlewright_cep.times import literal_time
from candlewright_cep.types import BIGINT, BOOLEAN, NANOSECONDS, STRING, Kind, SqlType
from candlewright_cep.vector import Vector, constant, from_column, from_list
from candlewright_cep.work import check_made

#: The texts made so far are checked after this many characters.
_STRETCH = 1 << 20


def _kernel(compute: Callable[..., Any]) -> Callable[[Sequence[Vector], SqlType, str], Vector]:
    """Wraps an Arrow kernel whose first argument is a string; further arguments are Arrow arrays or scalars."""

    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        if all(argument.constant for argument in arguments):
            found = compute(*(argument.text() if argument.type.is_text else _first(argument) for argument in arguments))
            return constant(kind, found.as_py(), arguments[0].length)
        first = arguments[0].expand()
        found = compute(first.text(), *(argument.text() for argument in arguments[1:]))
        made = from_column(found)
        return Vector(kind, made.values, made.valid)

    return run


def _first(argument: Vector) -> Any:
    return argument.to_arrow()[0]


def _rowwise(compute: Callable[..., Any], *, strict: bool = True) -> Callable[[Sequence[Vector], SqlType, str], Vector]:
    """Wraps a Python function, called once per distinct row of arguments. If `strict`, NULL in gives NULL out."""

    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        length = arguments[0].length
        constant_all = all(argument.constant for argument in arguments)
        if constant_all:
            arguments = [Vector(a.type, a.values, a.valid, length=1, constant=True) for a in arguments]
        known: dict[tuple[Any, ...], Any] = {}
        found: list[Any] = []
        size, checked = 0, _STRETCH
        for row in zip(*(argument.to_list() for argument in arguments), strict=True):
            if row not in known:
                known[row] = None if strict and any(value is None for value in row) else compute(*row)
            found.append(known[row])
            if kind.kind is Kind.STRING and known[row] is not None:
                size += len(known[row])
                if size > checked:
                    check_made(size)
                    checked = size + _STRETCH
        return constant(kind, found[0], length) if constant_all and found else from_list(kind, found)

    return run


def _concat(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    if all(argument.constant for argument in arguments):
        parts = [argument.text().as_py() for argument in arguments]
        whole = None if None in parts else "".join(parts)
        return constant(kind, None if whole is None or len(whole) > MADE_TEXT else whole, arguments[0].length)
    texts = [argument.text() for argument in arguments]
    sizes: Any = pa.scalar(0, pa.int64())
    for text in texts:
        sizes = pc.add(sizes, pc.cast(pc.binary_length(text), pa.int64()))
    fits = pc.less_equal(sizes, MADE_TEXT)
    check_made(pc.sum(pc.if_else(fits, sizes, 0)).as_py() or 0)
    # Checked before joining: a text that is too long becomes NULL without being built. Arrow would make room for a
    # constant in every row, so a column is replaced.
    place = next(place for place, argument in enumerate(arguments) if not argument.constant)
    texts[place] = pc.if_else(fits, texts[place], pa.scalar(None, pa.string()))
    made = from_column(pc.binary_join_element_wise(*texts, ""))
    return Vector(kind, made.values, made.valid)


def _concat_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if not types or any(kind.kind is Kind.OPAQUE for kind in types):
        raise Mismatch
    return [STRING] * len(types), STRING


def like_expression(pattern: str, escape: str | None) -> str:
    """The RE2 expression equivalent to a LIKE pattern."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            parts.append(re.escape(next(characters, escape)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return "(?s)^" + "".join(parts) + "$"


def _like(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    """`extra` holds the expression compiled when the trigger was checked."""
    return _kernel(lambda text: pc.match_substring_regex(text, extra))(arguments[:1], kind, extra)


def _concat_ws(separator: str | None, *parts: str | None) -> str | None:
    whole = None if separator is None else separator.join(part for part in parts if part is not None)
    return None if whole is None or len(whole) > MADE_TEXT else whole


def _replace(text: str, old: str, new: str = "") -> str | None:
    # An empty text occurs before every character and at the end.
    size = len(text) + text.count(old) * (len(new) - len(old))
    return text.replace(old, new) if size <= MADE_TEXT else None


def named_group(pattern: str, group: int) -> str | None:
    """The pattern with the group of this number named `found` and the other groups unnumbered, as Arrow requires.

    Group 0 is the whole match. None for a group that the pattern lacks, or if groups have names.
    """
    parts: list[str] = []
    count, index, in_class = 0, 0, False
    while index < len(pattern):
        character = pattern[index]
        width = 1
        if character == "\\":
            width = 2
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
            width = 3 if pattern.startswith("^]", index + 1) else 2 if pattern.startswith("]", index + 1) else 1
        elif character == "(" and not pattern.startswith("?", index + 1):
            count += 1
            character = "(?P<found>" if count == group else "(?:"
            parts.append(character)
            index += 1
            continue
        elif character == "(" and pattern.startswith(("?P<", "?<"), index + 1):
            return None
        parts.append(pattern[index : index + width])
        index += width
    if group == 0:
        return f"(?P<found>{''.join(parts)})"
    return "".join(parts) if group <= count else None


def _regexp_extract(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    """`extra` holds the pattern, whose group `found` is the result."""
    whole = arguments[0].expand()
    texts = whole.text()
    found = pc.extract_regex(texts, extra)
    made = from_column(pc.struct_field(found, "found"))
    missing = ~np.asarray(pc.is_valid(found).to_numpy(zero_copy_only=False))
    return Vector(kind, made.values, made.valid).with_nulls(missing)


_SEPARATOR = "\x00"


def replacement_form(pattern: str, replacement: str = "") -> str:
    """The arguments of REGEXP_REPLACE: a pattern, and a replacement in which $1 refers to a group ($ and \\ are escaped
    as in Java).
    """
    parts: list[str] = []
    for token in re.finditer(r"\\(.)|\$([0-9])|(.)", replacement, re.DOTALL):
        literal = token.group(1) or token.group(3)
        parts.append(f"\\{token.group(2)}" if literal is None else literal.replace("\\", "\\\\"))
    return pattern + _SEPARATOR + "".join(parts)


def _regexp_replace(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    """`extra` is the result of `replacement_form`."""
    pattern, _, replacement = extra.partition(_SEPARATOR)
    references = len(re.findall(r"\\[0-9]", replacement))

    def replaced(text: Any) -> Any:
        # Checked before replacing, as in `_concat`: at worst, every match is replaced, and every reference is the whole
        # text.
        size = pc.cast(pc.binary_length(text), pa.int64())
        count = pc.cast(pc.count_substring_regex(text, pattern), pa.int64())
        bound = pc.add(pc.multiply(size, 1 + references), pc.multiply(count, len(replacement.encode())))
        fits = pc.less_equal(bound, MADE_TEXT)
        check_made(pc.sum(pc.if_else(fits, bound, 0)).as_py() or 0)
        short = pc.if_else(fits, text, pa.scalar(None, pa.string()))
        return pc.replace_substring_regex(short, pattern, replacement)

    return _kernel(replaced)(arguments, kind, extra)


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, int | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), ord(new[place]) if place < len(new) else None)
    return text.translate(table)


def _written_time(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    return _rowwise(lambda value: formatted(value, extra))(arguments, kind, extra)


def _one_time(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or not types[0].is_time:
        raise Mismatch
    return list(types), STRING


def _texts(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) < 2:
        raise Mismatch
    return _concat_signature(types)


def _substring(text: str, start: int, length: int | None = None) -> str:
    if start == 0 or (length is not None and length <= 0):
        return ""
    begin = start - 1 if start > 0 else len(text) + start
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _pad(*, left: bool) -> Callable[[str, int, str], str | None]:
    def run(text: str, size: int, fill: str = " ") -> str | None:
        if not 0 <= size <= MADE_TEXT or not fill:
            return None
        missing = max(0, size - len(text))
        padding = (fill * (missing // len(fill) + 1))[:missing]
        return (padding + text if left else text + padding)[:size] if missing else text[:size]

    return run


def _split_part(text: str, separator: str, index: int) -> str | None:
    if not separator or index < 1:
        return None
    parts = text.split(separator)
    return parts[index - 1] if index <= len(parts) else None


def _repeat(text: str, count: int) -> str | None:
    return text * max(0, count) if len(text) * max(0, count) <= MADE_TEXT else None


_TRIMS: dict[str, Callable[..., str]] = {"TRIM": str.strip, "LTRIM": str.lstrip, "RTRIM": str.rstrip}


def _trim(name: str) -> Callable[..., str]:
    return lambda text, characters=" ": _TRIMS[name](text, characters)


ENTRIES: list[Declared] = [
    (
        "UPPER",
        fixed(STRING, STRING),
        _kernel(pc.utf8_upper),
        Usage("UPPER(text)", "the text in upper case", "UPPER('buy') = 'BUY'"),
    ),
    (
        "LOWER",
        fixed(STRING, STRING),
        _kernel(pc.utf8_lower),
        Usage("LOWER(text)", "the text in lower case", "LOWER('Buy') = 'buy'"),
    ),
    (
        "REVERSE",
        fixed(STRING, STRING),
        _kernel(pc.utf8_reverse),
        Usage("REVERSE(text)", "the text reversed", "REVERSE('abc') = 'cba'"),
    ),
    (
        "LENGTH",
        fixed(BIGINT, STRING),
        _kernel(lambda text: pc.utf8_length(text).cast(pa.int64())),
        Usage("LENGTH(text)", "number of characters", "LENGTH('BTC') = 3", values=NOT_NEGATIVE),
    ),
    (
        "CHAR_LENGTH",
        fixed(BIGINT, STRING),
        _kernel(lambda text: pc.utf8_length(text).cast(pa.int64())),
        Usage("CHAR_LENGTH(text)", "the same as LENGTH", "CHAR_LENGTH('BTC') = 3", values=NOT_NEGATIVE),
    ),
    (
        "TRIM",
        fixed(STRING, STRING, STRING, optional=1),
        _rowwise(_trim("TRIM")),
        Usage(
            "TRIM(text, characters)", "the text without these characters (spaces) at both ends", "TRIM('  a ') = 'a'"
        ),
    ),
    (
        "LTRIM",
        fixed(STRING, STRING, STRING, optional=1),
        _rowwise(_trim("LTRIM")),
        Usage(
            "LTRIM(text, characters)", "the text without these characters (spaces) at its start", "LTRIM('  a') = 'a'"
        ),
    ),
    (
        "RTRIM",
        fixed(STRING, STRING, STRING, optional=1),
        _rowwise(_trim("RTRIM")),
        Usage("RTRIM(text, characters)", "the text without these characters (spaces) at its end", "RTRIM('a  ') = 'a'"),
    ),
    ("||", _concat_signature, _concat, None),
    (
        "CONCAT",
        _concat_signature,
        _concat,
        Usage("CONCAT(a, b, …)", "the texts one after another, as ||", "CONCAT('BTC', '/', 'USDT') = 'BTC/USDT'"),
    ),
    ("LIKE", fixed(BOOLEAN, STRING, STRING, STRING, optional=2), _like, None),
    (
        "REGEXP_LIKE",
        fixed(BOOLEAN, STRING, STRING, optional=1),
        _like,
        Usage(
            "REGEXP_LIKE(text, pattern)",
            "whether the pattern (RE2) occurs in the text",
            "REGEXP_LIKE('BTC/USDT', '^BTC')",
        ),
    ),
    (
        "SUBSTRING",
        fixed(STRING, STRING, BIGINT, BIGINT, optional=1),
        _rowwise(_substring),
        Usage(
            "SUBSTRING(text, start, length)",
            "the part from a position on (1 is the first, negative counts from the end)",
            "SUBSTRING('BTC/USDT', 5) = 'USDT'",
        ),
    ),
    (
        "SUBSTR",
        fixed(STRING, STRING, BIGINT, BIGINT, optional=1),
        _rowwise(_substring),
        Usage("SUBSTR(text, start, length)", "the same as SUBSTRING", "SUBSTR('BTC/USDT', 1, 3) = 'BTC'"),
    ),
    (
        "LEFT",
        fixed(STRING, STRING, BIGINT),
        _rowwise(lambda text, count: text[: max(0, count)]),
        Usage("LEFT(text, count)", "the first characters", "LEFT('BTC/USDT', 3) = 'BTC'"),
    ),
    (
        "RIGHT",
        fixed(STRING, STRING, BIGINT),
        _rowwise(lambda text, count: text[-count:] if count > 0 else ""),
        Usage("RIGHT(text, count)", "the last characters", "RIGHT('BTC/USDT', 4) = 'USDT'"),
    ),
    (
        "REPLACE",
        fixed(STRING, STRING, STRING, STRING, optional=1),
        _rowwise(_replace),
        Usage(
            "REPLACE(text, part, by)",
            "the text with every occurrence of the part replaced (removed without by)",
            "REPLACE('a-b-c', '-', '+') = 'a+b+c'",
        ),
    ),
    (
        "STRPOS",
        fixed(BIGINT, STRING, STRING),
        _rowwise(lambda text, part: text.find(part) + 1),
        Usage(
            "STRPOS(text, part)",
            "position of the first occurrence, from 1; 0 without one",
            "STRPOS('BTC/USDT', '/') = 4",
        ),
    ),
    (
        "STARTS_WITH",
        fixed(BOOLEAN, STRING, STRING),
        _rowwise(lambda text, part: text.startswith(part)),
        Usage("STARTS_WITH(text, part)", "whether the text starts with the part", "STARTS_WITH('BTC/USDT', 'BTC')"),
    ),
    (
        "ENDS_WITH",
        fixed(BOOLEAN, STRING, STRING),
        _rowwise(lambda text, part: text.endswith(part)),
        Usage("ENDS_WITH(text, part)", "whether the text ends with the part", "ENDS_WITH('BTC/USDT', 'USDT')"),
    ),
    (
        "CONTAINS",
        fixed(BOOLEAN, STRING, STRING),
        _rowwise(lambda text, part: part in text),
        Usage("CONTAINS(text, part)", "whether the part occurs in the text", "CONTAINS('BTC/USDT', 'C/U')"),
    ),
    (
        "SPLIT_PART",
        fixed(STRING, STRING, STRING, BIGINT),
        _rowwise(_split_part),
        Usage(
            "SPLIT_PART(text, separator, n)",
            "the nth piece between separators, from 1",
            "SPLIT_PART('BTC/USDT.BINANCE', '.', 2) = 'BINANCE'",
            "NULL if an argument is NULL, or the text has fewer pieces",
        ),
    ),
    (
        "LPAD",
        fixed(STRING, STRING, BIGINT, STRING, optional=1),
        _rowwise(_pad(left=True)),
        Usage(
            "LPAD(text, size, fill)",
            "the text filled at its start (with spaces) or cut to a size",
            "LPAD('7', 3, '0') = '007'",
        ),
    ),
    (
        "RPAD",
        fixed(STRING, STRING, BIGINT, STRING, optional=1),
        _rowwise(_pad(left=False)),
        Usage(
            "RPAD(text, size, fill)",
            "the text filled at its end (with spaces) or cut to a size",
            "RPAD('7', 3, '0') = '700'",
        ),
    ),
    (
        "CONCAT_WS",
        _texts,
        _rowwise(_concat_ws, strict=False),
        Usage(
            "CONCAT_WS(separator, a, b, …)",
            "the texts with a separator between them",
            "CONCAT_WS(', ', 'a', NULL, 'b') = 'a, b'",
            "NULLs are left out; NULL if the separator is NULL",
        ),
    ),
    (
        "REGEXP_EXTRACT",
        fixed(STRING, STRING),
        _regexp_extract,
        Usage(
            "REGEXP_EXTRACT(text, pattern, group)",
            "the first match of the pattern, or of its group",
            "REGEXP_EXTRACT('BTC/USDT', '/(.*)', 1) = 'USDT'",
            "NULL if an argument is NULL, or nothing matches",
        ),
    ),
    (
        "REGEXP_REPLACE",
        fixed(STRING, STRING),
        _regexp_replace,
        Usage(
            "REGEXP_REPLACE(text, pattern, by)",
            "the text with every match of the pattern replaced",
            "REGEXP_REPLACE('a1b2', '[0-9]', '') = 'ab'",
        ),
    ),
    (
        "TRANSLATE",
        fixed(STRING, STRING, STRING, STRING),
        _rowwise(_translate),
        Usage(
            "TRANSLATE(text, from, to)",
            "the text with each character of from replaced by the one at the same position in to",
            "TRANSLATE('a-b', '-', '_') = 'a_b'",
        ),
    ),
    (
        "DATE_FORMAT",
        _one_time,
        _written_time,
        Usage(
            "DATE_FORMAT(time, format)",
            "the time as text, by letters such as yyyy-MM-dd HH:mm:ss",
            "DATE_FORMAT(TIMESTAMP '2024-01-31 09:30:00', 'HH:mm') = '09:30'",
        ),
    ),
    (
        "INITCAP",
        fixed(STRING, STRING),
        _rowwise(lambda text: re.sub(r"\w+", lambda word: word[0].capitalize(), text)),
        Usage("INITCAP(text)", "the text with each word capitalised", "INITCAP('new york') = 'New York'"),
    ),
    (
        "ASCII",
        fixed(BIGINT, STRING),
        _rowwise(lambda text: ord(text[0]) if text else 0),
        Usage("ASCII(text)", "number of the first character", "ASCII('A') = 65"),
    ),
    (
        "CHR",
        fixed(STRING, BIGINT),
        _rowwise(lambda code: chr(code) if 0 < code < 0xD800 else None),
        Usage("CHR(number)", "the character of a number", "CHR(65) = 'A'"),
    ),
    (
        "REPEAT",
        fixed(STRING, STRING, BIGINT),
        _rowwise(_repeat),
        Usage("REPEAT(text, count)", "the text repeated this many times", "REPEAT('ab', 2) = 'abab'"),
    ),
]


def written(vector: Vector) -> Vector:
    """CAST(... AS VARCHAR)."""
    kind = vector.type.kind
    if kind is Kind.OPAQUE:
        raise Mismatch
    if kind is Kind.DECIMAL:
        return decimals.written(vector)
    whole = vector.expand()
    if kind is Kind.BOOLEAN:
        texts: list[str | None] = ["true" if value else "false" for value in whole.values.tolist()]
    elif kind is Kind.DOUBLE:
        texts = [_double_text(value) for value in whole.values.tolist()]
    elif whole.type.is_time:
        texts = [time_text(value, whole.type) for value in whole.values.tolist()]
    else:
        texts = [str(value) for value in whole.values.tolist()]
    found = from_list(STRING, texts)
    return Vector(STRING, found.values, whole.valid)


def _double_text(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    # Scientific notation as Trino and Spark write it: one digit before the point, E, no plus sign.
    mantissa, _, exponent = f"{Decimal(text).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def time_text(value: int, kind: SqlType) -> str:
    """A time in nanoseconds as ISO text with a space, in the precision of its type."""
    if kind.kind is Kind.DATE:
        return str(np.datetime64(value, "ns").astype("datetime64[D]"))
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
    text = str(np.datetime64(value, "ns")).replace("T", " ")
    return text[: 19 + (digits + 1 if digits else 0)]


def _read_number(text: str) -> float | None:
    try:
        # float() accepts the digits of all scripts.
        return float(text) if "_" not in text and text.isascii() else None
    except ValueError:
        return None


def _read_integer(text: str) -> int | None:
    found = re.fullmatch(r"\s*([+-]?0*[0-9]{1,19})\s*", text)
    value = int(found.group(1)) if found else None
    return value if value is not None and -(2**63) <= value < 2**63 else None


def read(text: str, target: SqlType) -> Any:
    """The value of `text` as type `target` (times as nanoseconds), or None. Raises Mismatch for other types."""
    if target.kind is Kind.DOUBLE:
        return _read_number(text)
    if target.is_integer:
        value = _read_integer(text)
        return value if value is None or target.kind is Kind.BIGINT or -(2**31) <= value < 2**31 else None
    if target.kind is Kind.BOOLEAN:
        return {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}.get(text.strip().lower())
    if target.is_time:
        found = literal_time(text)
        if found is None:
            return None
        unit = NANOSECONDS["D" if target.kind is Kind.DATE else target.unit]
        return found[0] - found[0] % unit
    if target.kind is Kind.STRING:
        return text
    if target.kind is Kind.DECIMAL:
        return decimals.of_text(text, target)
    raise Mismatch


def parsed(vector: Vector, target: SqlType) -> Vector:
    """CAST of text: NULL where it is not a value of the type."""
    read("", target)
    return _rowwise(lambda text: read(text, target))([vector], target, "")
