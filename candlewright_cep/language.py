"""The language as data for editors, generated from the declarations of its functions and forms."""

from collections.abc import Iterator
from dataclasses import dataclass

from candlewright_cep.binding.pattern_binder import USAGES as OF_PATTERNS
from candlewright_cep.functions.aggregates.aggregates import AGGREGATE_ALIASES, AGGREGATES
from candlewright_cep.functions.indicators.candles import CANDLES
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.scalars.scalar import FUNCTIONS
from candlewright_cep.functions.usage import Usage
from candlewright_cep.planning.over import RANKING
from candlewright_cep.planning.over import USAGES as OF_WINDOWS
from candlewright_cep.syntax.clauses import CLAUSES
from candlewright_cep.syntax.reader import KEY_WORDS, RESERVED
from candlewright_cep.syntax.type_parser import DECIMALS, TYPES

__all__ = ["Entry", "Form", "forms", "functions", "keywords", "types"]

_YES = "yes"
_GROUPED = "with a time window, over a frame with a start, in MEASURES and DEFINE, and with EMIT CHANGES"
_GROWING = "with a time window, over a frame with a start, and in MEASURES"
_OF_AGGREGATES = {
    "APPROX_PERCENTILE": "with a time window, over a frame, in MEASURES, and with EMIT CHANGES",
}
_RANKED = "within a time window (PARTITION BY window_start)"
_OF_WINDOWS = {
    "LEAD": "as the last step: a row is emitted once the rows that it looks at have arrived",
    "NTH_VALUE": "over a frame with a start",
}

#: Key words that the forms do not show.
_FURTHER = """
    ARRAY BOTH ESCAPE FOR HOP_END HOP_START INITIAL LEADING NO OMIT ORDINALITY OTHERS OUTER RESPECT RETURNING SEEK
    SESSION_END SESSION_START SYMMETRIC TIES TRAILING TRY_CAST TUMBLE_END TUMBLE_START UNKNOWN
    """.split()  # noqa: SIM905
#: Words of forms that are names of variables and columns everywhere else.
_NAMES = frozenset(["A", "B", "C", "TIME", "TRADES", "VALUE", "VOLUME"])


@dataclass(kw_only=True, frozen=True, slots=True)
class Entry:
    """A function. `stream`: where it can run on a stream; `example`: for a scalar function a condition that is true,
    otherwise a column of a query over `ticks`.
    """

    name: str
    kind: str
    signature: str
    text: str
    nulls: str
    stream: str
    example: str


@dataclass(frozen=True, slots=True)
class Form:
    """A form of the grammar. `example`: a complete text."""

    name: str
    form: str
    text: str
    example: str


def functions() -> list[Entry]:
    """The functions that are called by name, sorted; operators are forms."""
    found = {entry.name: entry for entry in _entries()}
    return [found[name] for name in sorted(found)]


def forms() -> list[Form]:
    return [Form(clause.key_words, clause.form, clause.text, clause.example) for clause in CLAUSES]


def types() -> list[str]:
    """The types that CAST accepts."""
    return sorted([*TYPES, *DECIMALS, "TIMESTAMP"])


def keywords() -> list[str]:
    """The single key words."""
    of_forms = {word for clause in CLAUSES for word in clause.words if word.isalpha()}
    return sorted({*RESERVED, *KEY_WORDS, *_FURTHER, *of_forms} - _NAMES)


def _entries() -> Iterator[Entry]:
    for name, function in FUNCTIONS.items():
        if function.usage is not None:
            yield _entry(name, "scalar", function.usage, _YES)
    candles = {candle.name for candle in CANDLES}
    for name, indicator in INDICATORS.items():
        yield _entry(name, "candle" if name in candles else "indicator", indicator.usage, _YES)
    for usage in OF_WINDOWS:
        name = usage.signature.partition("(")[0]
        stream = _RANKED if name in RANKING else _OF_WINDOWS.get(name, _YES)
        yield _entry(name, "window", usage, stream)
    for usage in OF_PATTERNS:
        yield _entry(usage.signature.partition("(")[0], "pattern", usage, _YES)
    for name, aggregate in AGGREGATES.items():
        if aggregate.usage is not None:
            stream = _OF_AGGREGATES.get(name, _GROWING if aggregate.grows else _GROUPED)
            yield _entry(name, "aggregate", aggregate.usage, stream)
    for alias, name in AGGREGATE_ALIASES.items():
        yield _alias(alias, name)


def _entry(name: str, kind: str, usage: Usage, stream: str) -> Entry:
    return Entry(
        name=name,
        kind=kind,
        signature=usage.signature,
        text=usage.text,
        nulls=usage.nulls,
        stream=stream,
        example=usage.example,
    )


def _alias(alias: str, name: str) -> Entry:
    base = name.removesuffix("_DISTINCT")
    aggregate = AGGREGATES[name]
    usage = aggregate.usage or AGGREGATES[base].usage
    assert usage is not None
    stream = _GROWING if aggregate.grows else _GROUPED
    signature, example = (text.replace(base, alias, 1) for text in (usage.signature, usage.example))
    text = "how many distinct values there are" if name == "COUNT_DISTINCT" else f"alias of {name}"
    return Entry(
        name=alias,
        kind="aggregate",
        signature=signature,
        text=text,
        nulls=usage.nulls,
        stream=stream,
        example=example.replace("(*)", "(side)"),
    )
