"""Runs triggers that differ only in numbers as one stream: the numbers become a table with one row per ticker.

`lift` takes the numbers out of the comparisons and the arithmetic of a checked plan. Two triggers whose lifted plans
have equal keys run as one stream, each over its own tickers, with `Slots` in place of the lifted numbers. Nothing is
read from the text: the key is the whole plan, so everything that was not lifted must be equal.
"""

import enum
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.expressions import (
    FIRST_SLOT,
    Aggregation,
    Apply,
    Column,
    Constant,
    Expression,
    Navigation,
    Shift,
)
from candlewright_cep.limits import Limits
from candlewright_cep.matching.automaton import Automaton
from candlewright_cep.matching.conditions import Conditions, compile_conditions
from candlewright_cep.planning.plans import AsofJoin, Filter, Join, Match, Plan, Project, Union
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.types import MOST_DIGITS, Kind, SqlType, decimal
from candlewright_cep.vector import Vector, constant, distinct, from_list

_LIFTED = frozenset(["=", "<>", "<", "<=", ">", ">=", "BETWEEN", "+", "-", "*", "/"])
_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)
Number = float | int | Decimal


@dataclass(frozen=True, slots=True)
class Lifted:
    """`types` and `values` of the lifted numbers, and the `key` of the remaining plan."""

    types: tuple[SqlType, ...]
    values: tuple[Number, ...]
    key: str
    _nodes: tuple[Plan, ...]
    _since: int = 0

    def nodes(self) -> tuple[Plan, ...]:
        """The plan with slots."""
        return (*self._nodes[: self._since], *map(_compiled, self._nodes[self._since :]))


class Slots:
    """The numbers of each ticker. `of` returns a ticker's values; a ticker without any has NULLs."""

    def __init__(self, types: Sequence[SqlType], of: Mapping[str, Sequence[Number]]) -> None:
        self.types = types
        self.of = of
        self._last: tuple[pa.Array, list[str], Any] | None = None

    def reader(self, column: Callable[[int], Vector], ticker: pa.Array) -> Callable[[int], Vector]:
        """Reads columns by number, including slots."""
        if not self.types:
            return column
        return lambda index: column(index) if index < FIRST_SLOT else self._column(index - FIRST_SLOT, ticker)

    def _column(self, slot: int, ticker: pa.Array) -> Vector:
        if self._last is None or self._last[0] is not ticker:
            self._last = ticker, *distinct(ticker)
        _, names, codes = self._last
        own = [self.of.get(name) for name in names]
        found = [None if values is None else values[slot] for values in own]
        if len(found) == 1:
            return constant(self.types[slot], found[0], len(codes))
        return from_list(self.types[slot], found).take(np.asarray(codes, dtype=np.int64))


def lift(nodes: Sequence[Plan], since: int = 0) -> Lifted | None:
    """None for a plan whose tickers do not run independently, or that cannot be compared with others. `since`: the
    first node whose numbers are lifted.
    """
    if any(isinstance(node, Join | AsofJoin | Union) for node in nodes):
        return None
    lifting = _Lifting()
    found = (*nodes[:since], *map(lifting.node, nodes[since:]))
    key = written_key(found)
    return None if key is None else Lifted(tuple(lifting.types), tuple(lifting.values), key, found, since)


def has_numbers(node: Plan) -> bool:
    """Whether `lift` takes numbers out of this node."""
    lifting = _Lifting()
    lifting.node(node)
    return bool(lifting.values)


def written_key(nodes: Sequence[Plan | Expression]) -> str | None:
    """Equal for chains, or expressions, that do the same; None for one that cannot be compared with others."""
    try:
        written = _items(nodes)
    except _Unknown:
        return None
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()


def _compiled(node: Plan) -> Plan:
    if not isinstance(node, Match):
        return node
    plan = node.recognize
    conditions = compile_conditions(plan.variables, dict(plan.definitions), plan.search.automaton.program)
    initial = conditions.path.initial if conditions.path is not None else ()
    return replace(node, recognize=replace(plan, conditions=conditions, search=replace(plan.search, initial=initial)))


class _Unknown(Exception):
    """A part of a plan that has no written form."""


class _Lifting:
    def __init__(self) -> None:
        self.types: list[SqlType] = []
        self.values: list[Number] = []

    def node(self, node: Plan) -> Plan:
        if isinstance(node, Filter):
            return replace(node, condition=self._expression(node.condition))
        if isinstance(node, Project):
            return replace(node, expressions=tuple(self._expression(part) for part in node.expressions))
        if isinstance(node, Match):
            plan = node.recognize
            definitions = tuple((name, self._expression(condition)) for name, condition in plan.definitions)
            return replace(node, recognize=replace(plan, definitions=definitions))
        return node

    def _expression(self, node: Expression, outer: Apply | None = None) -> Expression:
        """`outer`: the comparison or the arithmetic that the node is an argument of."""
        if isinstance(node, Constant):
            return node if outer is None else self._slot(node, outer)
        if isinstance(node, Apply):
            here = node if node.function in _LIFTED else None
            arguments = tuple([self._expression(part, here) for part in node.arguments])
            return Apply(node.function, arguments, node.type, node.extra)
        if isinstance(node, Aggregation):
            return replace(node, arguments=tuple([self._expression(part) for part in node.arguments]))
        if isinstance(node, Shift | Navigation):
            return replace(node, argument=self._expression(node.argument))
        return node

    def _slot(self, node: Constant, outer: Apply) -> Expression:
        if node.value is None or node.type.kind not in _NUMBERS:
            return node
        kind = _wide(node.type, outer) if node.type.kind is Kind.DECIMAL else node.type
        self.types.append(kind)
        self.values.append(node.value)
        return Column(FIRST_SLOT + len(self.values) - 1, kind)


def _wide(kind: SqlType, outer: Apply) -> SqlType:
    """The type of a DECIMAL's slot. A literal has only the digits it was written with; the slot has as many as the
    values beside it, so that `> 9.5` and `> 10.25` share it. The digits of a factor also decide those of the result.
    """
    beside = () if outer.function in ("*", "/") else outer.arguments
    scales = [part.type.scale for part in beside if not isinstance(part, Constant) and part.type.kind is Kind.DECIMAL]
    scale = max([kind.scale, *scales])
    return decimal(MOST_DIGITS, scale) if kind.precision - kind.scale + scale <= MOST_DIGITS else kind


#: The plans below a node are nodes of their own; a parameter's text does not matter beside its value, nor does a hash
#: beside what it is made of.
_UNWRITTEN = ("inner", "text", "_hash")


class _Writers(dict[type[Any], Callable[[Any], str]]):
    """By type, what writes a part of a plan as a text that is equal for plans that do the same. Positions in the text,
    compiled forms and the plans below a node (which are separate nodes) are left out.
    """

    def __missing__(self, kind: type[Any]) -> Callable[[Any], str]:
        known = (writer for kinds, writer in _KNOWN if issubclass(kind, kinds))
        found = self[kind] = next(known, None) or _writer_of(kind)
        return found


def _writer_of(kind: type[Any]) -> Callable[[Any], str]:
    if not is_dataclass(kind):
        raise _Unknown(kind.__name__)
    names = [part.name for part in fields(kind) if part.name not in _UNWRITTEN]
    if not names:
        return lambda part: _items([kind.__name__])
    # In one call, which returns a tuple because there are at least two.
    values = attrgetter("__class__.__name__", *names)
    return lambda part: _items(values(part))


def _items(parts: Iterable[Any]) -> str:
    return f"[{', '.join([_WRITERS[type(each)](each) for each in parts])}]"


@lru_cache(maxsize=4096)
def _written_once(part: Field | SqlType) -> str:
    return repr(repr(part))


_WRITERS = _Writers(dict.fromkeys((type(None), bool, int, str, bytes), repr))
_KNOWN: tuple[tuple[tuple[type[Any], ...], Callable[[Any], str]], ...] = (
    ((Position, Limits, Conditions), lambda part: "''"),
    ((Field, SqlType), _written_once),
    ((tuple, list), _items),
    ((float, Decimal), lambda part: repr(repr(part))),
    ((enum.Enum,), lambda part: repr(part.name)),
    ((Automaton,), lambda part: _WRITERS[type(part.program)](part.program)),
    ((frozenset,), lambda part: repr(sorted(_WRITERS[type(each)](each) for each in part))),
)
