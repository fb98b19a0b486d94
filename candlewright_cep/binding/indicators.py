"""Binds calls of indicators: their inputs are row values; their numbers are known when the text is checked."""

from candlewright_cep.binding.binder import Binder
from candlewright_cep.binding.expressions import Constant, Label, WindowFunction, walk
from candlewright_cep.functions.indicators.indicator import Argument, Indicator
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.signatures import fits
from candlewright_cep.syntax.tree import CallNode, Node
from candlewright_cep.types import DOUBLE


def bind_indicator(binder: Binder, node: CallNode) -> WindowFunction:
    """Raises TriggerRejected for a call that does not match the indicator's declaration."""
    indicator = INDICATORS[node.name]
    if node.mode or node.filter is not None:
        raise node.at.reject(f"{node.mode or 'FILTER'} is not possible with {node.name}")
    inputs = len(indicator.inputs)
    most = inputs + len(indicator.numbers)
    if not most - indicator.optional <= len(node.arguments) <= most:
        raise node.at.reject(f"{node.name} has a wrong number of arguments", f"write {indicator.signature}")
    given = []
    for part in node.arguments[:inputs]:
        bound = binder.bind(part)
        if not fits(bound.type, DOUBLE) or any(isinstance(inner, Label) for inner in walk(bound)):
            raise part.at.reject(f"{node.name} takes numbers, not {bound.type}", f"write {indicator.signature}")
        given.append(binder.converted(bound, DOUBLE, part.at))
    numbers = tuple(
        _number(binder, part, indicator, wanted)
        for part, wanted in zip(node.arguments[inputs:], indicator.numbers, strict=False)
    )
    return WindowFunction(node.name, tuple(given), DOUBLE, numbers=numbers)


def _number(binder: Binder, node: Node, indicator: Indicator, wanted: Argument) -> float:
    bound = binder.bind(node)
    value = bound.value if isinstance(bound, Constant) and bound.type.is_numeric else None
    if value is None or (wanted.is_whole and not bound.type.is_integer) or not wanted.least <= value <= wanted.most:
        kind = "a whole number" if wanted.is_whole else "a number"
        raise node.at.reject(
            f"{wanted.name} of {indicator.signature} must be {kind} from {wanted.least:g} to {wanted.most:g}",
            "write it as a literal or a parameter",
        )
    return int(value) if wanted.is_whole else float(value)
