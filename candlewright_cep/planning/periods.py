"""Restricts the inputs of a text to bars of the period that the parameter `period_seconds` names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from candlewright_cep.binding.binder import Binder
from candlewright_cep.binding.expressions import Apply, Column, Constant, conjuncts
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits
from candlewright_cep.planning.closings import OPEN_TIME, PERIOD, column_named
from candlewright_cep.planning.plans import AsofJoin, Filter, Join, Narrowed, Plan, Project, Renamed, Scan, Values
from candlewright_cep.planning.unnest import Unnest
from candlewright_cep.syntax.tokens import BEGIN
from candlewright_cep.syntax.tree import CallNode, LiteralNode
from candlewright_cep.types import BIGINT

STATELESS = (Filter, Project, Renamed, Narrowed, Unnest)


def of_period(plan: Plan, parameters: Mapping[str, str], limits: Limits) -> Plan:
    """The plan over bars of the period that the parameters name, as a stream reads them. In joins by time, this applies
    only to inputs whose period the text does not name itself. Raises TriggerRejected for an invalid period.
    """
    if PERIOD not in parameters:
        return plan
    try:
        period = float(parameters[PERIOD])
    except ValueError:
        period = 0.0
    if not (period > 0 and period.is_integer()):
        raise TriggerRejected(f"the parameter {PERIOD} is not a whole number of seconds")
    narrowed: Plan = _narrowed(plan, int(period), limits, [] if joins_by_time(_bottom(plan)) else None)
    return narrowed


def joins_by_time(node: Plan) -> bool:
    """Whether rows wait for others: a join of two inputs, or of rows whose times need not be equal, or a FULL join.
    Other joins of an input with itself on equal times wait only for the other rows of that time.
    """
    if isinstance(node, AsofJoin):
        return True
    if not isinstance(node, Join):
        return False
    return (
        node.kind == "FULL"
        or node.band is not None
        or len(_names(node)) > 1
        or not all(map(_is_filtered, (node.left, node.right)))
    )


def named_period(nodes: Sequence[Plan], column: int) -> int:
    """The constant to which filters over an input (the first of `nodes`) compare this column for equality; 0 if there
    is none.
    """
    for node in nodes:
        if isinstance(node, Scan | Renamed):
            continue
        if isinstance(node, Filter):
            for part in conjuncts(node.condition):
                if isinstance(part, Apply) and part.function == "=":
                    values = [side.value for side in part.arguments if isinstance(side, Constant)]
                    columns = [side.index for side in part.arguments if isinstance(side, Column)]
                    if columns == [column] and len(values) == 1 and isinstance(values[0], int) and values[0] > 0:
                        return values[0]
            continue
        expressions = getattr(node, "expressions", None)
        if expressions is None:
            return 0
        places = [place for place, part in enumerate(expressions) if isinstance(part, Column) and part.index == column]
        if not places:
            return 0
        column = places[0]
    return 0


def _narrowed(plan: Any, period: int, limits: Limits, above: list[Plan] | None) -> Any:
    """`above`: the nodes above this one, up to a join; None if periods that the text itself names do not count."""
    if isinstance(plan, Scan):
        return _of_scan(plan, period, limits, above)
    if isinstance(plan, Values):
        return plan
    if isinstance(plan, Join | AsofJoin):
        parts = {"left": plan.left, "right": plan.right}
        inside: list[Plan] = []
    else:
        parts = {name: getattr(plan, name) for name in ("inner", "branches") if hasattr(plan, name)}
        inside = [plan, *(above or [])]
    kept = None if above is None else inside
    return replace(plan, **{name: _each(part, period, limits, kept) for name, part in parts.items()})


def _each(part: Any, period: int, limits: Limits, above: list[Plan] | None) -> Any:
    """`_narrowed` for one node, or for the branches of a UNION."""
    if isinstance(part, tuple):
        return tuple(_narrowed(branch, period, limits, above) for branch in part)
    return _narrowed(part, period, limits, above)


def _of_scan(scan: Scan, period: int, limits: Limits, above: list[Plan] | None) -> Plan:
    places = {field.name.lower(): place for place, field in enumerate(scan.fields)}
    column = places.get(PERIOD)
    if column is None or OPEN_TIME not in places or not scan.fields[column].type.is_integer:
        return scan
    if above is not None and named_period([scan, *above], column):
        return scan
    asked = CallNode(
        name="=", arguments=(column_named(PERIOD), LiteralNode(period, BIGINT, BEGIN)), at=BEGIN, is_operator=True
    )
    return Filter(scan, Binder(scan.fields, {}, limits).bind(asked), is_of_period=True)


def _bottom(plan: Any) -> Any:
    while not isinstance(plan, Scan | Join | AsofJoin | Values) and hasattr(plan, "inner"):
        plan = plan.inner
    if isinstance(plan, Join | AsofJoin):
        for written, other in ((plan.right, plan.left), (plan.left, plan.right)):
            if is_written(written):
                return _bottom(other)
    return plan


def is_written(plan: Any) -> bool:
    """Whether it is a table of constants (VALUES)."""
    while isinstance(plan, STATELESS):
        plan = plan.inner
    return isinstance(plan, Values)


def _names(plan: Any) -> set[str]:
    if isinstance(plan, Scan):
        return {plan.name}
    parts = [plan.left, plan.right] if isinstance(plan, Join | AsofJoin) else list(getattr(plan, "branches", ()))
    inner = getattr(plan, "inner", None)
    return set().union(*(_names(part) for part in ([*parts, inner] if inner is not None else parts)))


def _is_filtered(plan: Any) -> bool:
    """Whether it is an input under filters and projections, or a join of such inputs."""
    while isinstance(plan, STATELESS):
        plan = plan.inner
    if isinstance(plan, Join):
        return plan.band is None and _is_filtered(plan.left) and _is_filtered(plan.right)
    return isinstance(plan, Scan)
