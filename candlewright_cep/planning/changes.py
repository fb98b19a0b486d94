"""GROUP BY ... EMIT CHANGES: one row for each input row that changes the aggregates of its group.

It is computed as running aggregates over the rows in time order, keeping only those that differ from the group's
previous row, so a stream needs no operator that it does not have anyway.
"""

from collections.abc import Sequence

from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.expressions import Aggregation, Apply, Column, Constant, Expression, WindowFunction
from candlewright_cep.limits import Limits
from candlewright_cep.matching.recognize import SortKey
from candlewright_cep.planning.over import UP_TO_HERE, Over, Window
from candlewright_cep.planning.plans import Filter, Plan, Project
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.types import BIGINT, BOOLEAN, Kind

_FIRST_ROW = WindowFunction("ROW_NUMBER", (), BIGINT)


def changes(
    source: Plan,
    keys: Sequence[Expression],
    aggregates: Sequence[Aggregation],
    *,
    fields: tuple[Field, ...],
    limits: Limits,
    at: Position,
) -> Plan:
    """The keys, then the aggregates. Rows are ordered by the first time column, which on a stream is the event time."""
    time = next((place for place, field in enumerate(source.fields) if field.type.kind is Kind.TIMESTAMP), None)
    if time is None:
        raise at.reject("EMIT CHANGES needs a time column, and the input has none")
    width = len(source.fields)
    columns = tuple(Column(place, field.type) for place, field in enumerate(source.fields))
    named = tuple(Field("", key.type, hidden=True) for key in keys)
    plan: Plan = Project(source, (*columns, *keys), (*source.fields, *named)) if keys else source
    order = (SortKey(columns[time], False, False),)
    window = Window(tuple(range(width, width + len(keys))), order, UP_TO_HERE)
    functions = [WindowFunction(part.function, part.arguments, part.type) for part in aggregates]
    plan = _over(plan, window, [*functions, _FIRST_ROW], limits, at)
    first = width + len(keys)
    results = [Column(first + place, part.type) for place, part in enumerate(aggregates)]
    is_first = Apply("=", (Column(first + len(results), BIGINT), Constant(1, BIGINT)), BOOLEAN)
    compared = [result for result in results if result.type.kind is not Kind.OPAQUE]
    before = len(plan.fields)
    plan = _over(plan, window, [WindowFunction("LAG", (result,), result.type) for result in compared], limits, at)
    differs: Expression = is_first
    for place, result in enumerate(compared):
        changed = Apply("IS DISTINCT", (result, Column(before + place, result.type)), BOOLEAN)
        differs = Apply("OR", (differs, changed), BOOLEAN)
    shown = (*(Column(width + place, key.type) for place, key in enumerate(keys)), *results)
    return Project(Filter(plan, differs, is_of_changes=True), shown, fields)


def _over(plan: Plan, window: Window, functions: Sequence[WindowFunction], limits: Limits, at: Position) -> Plan:
    hidden = tuple(Field("", function.type, hidden=True) for function in functions)
    return Over(
        inner=plan,
        window=window,
        functions=tuple(functions),
        measures=(),
        fields=(*plan.fields, *hidden),
        limits=limits,
        at=at,
    )
