"""Alerts on one number, such as `price > 70000`: finds the tickers of a micro-batch that can reach theirs.

Ten thousand alerts on a hundred tickers are a hundred streams, each of which would otherwise compare every row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from candlewright_cep.binding.expressions import FIRST_SLOT, Apply, Column, Expression, conjuncts, is_slot
from candlewright_cep.planning.plans import Filter, Scan
from candlewright_cep.streaming.slots import Number
from triggers.texts.check import CompiledTrigger

__all__ = ["Threshold", "thresholds_of"]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A column of the input that must be above (or below) the number in a slot, or equal to it."""

    column: str
    slot: int
    is_above: bool
    is_strict: bool

    def can_hold(self, least: float, most: float, number: Number) -> bool:
        """Whether any row between these extremes can satisfy it. A NaN extreme is unknown, so the rows have to be
        examined.
        """
        assert not isinstance(number, Decimal)
        if self.is_above:
            return not (most <= number if self.is_strict else most < number)
        return not (least >= number if self.is_strict else least > number)


def thresholds_of(compiled: CompiledTrigger) -> tuple[Threshold, ...]:
    """Thresholds that every row of a result satisfies, for texts that look at one row alone."""
    if not compiled.is_stateless:
        return ()
    filters = (node for node in compiled.query.nodes if isinstance(node, Filter) and isinstance(node.inner, Scan))
    return tuple(
        threshold
        for node in filters
        for part in conjuncts(node.condition)
        for threshold in _of(part, [field.name for field in node.fields])
    )


def _of(condition: Expression, names: list[str]) -> Iterator[Threshold]:
    if not isinstance(condition, Apply):
        return
    if condition.function == "BETWEEN":
        value, low, high = condition.arguments
        pairs = [(value, ">=", low), (value, "<=", high)]
    elif condition.function in _TURNED:
        left, right = condition.arguments
        pairs = [(left, condition.function, right), (right, _TURNED[condition.function], left)]
    else:
        return
    for value, symbol, number in pairs:
        if not isinstance(value, Column) or not value.type.is_measured:
            continue
        if not is_slot(value) and isinstance(number, Column) and is_slot(number):
            for above in [True, False] if symbol == "=" else [symbol.startswith(">")]:
                yield Threshold(names[value.index], number.index - FIRST_SLOT, above, symbol in ("<", ">"))
