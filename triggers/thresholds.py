"""Alerts on one number, such as `price > 70000`: which tickers of a micro-batch can meet theirs.

Ten thousand alerts on a hundred tickers are a hundred streams, each of which would otherwise compare every row again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from candlewright_cep.binding.expressions import FIRST_SLOT, Apply, Column, Expression, conjuncts, is_slot
from candlewright_cep.planning.plans import Filter, Scan
from triggers.check import CompiledTrigger

__all__ = ["Threshold", "thresholds_of"]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A column of the input that must be above (else below) the number in a slot, or at it."""

    column: str
    slot: int
    is_above: bool
    is_strict: bool

    def can_hold(self, least: float, most: float, number: float) -> bool:
        """Of rows between these ends; NaN as an end says nothing, so that the rows have to be looked at."""
        if self.is_above:
            return not (most <= number if self.is_strict else most < number)
        return not (least >= number if self.is_strict else least > number)


def thresholds_of(compiled: CompiledTrigger) -> tuple[Threshold, ...]:
    """All must hold of a row of a result. Of texts that look at one row alone."""
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
        if isinstance(value, Column) and not is_slot(value) and isinstance(number, Column) and is_slot(number):
            for above in [True, False] if symbol == "=" else [symbol.startswith(">")]:
                yield Threshold(names[value.index], number.index - FIRST_SLOT, above, symbol in ("<", ">"))
