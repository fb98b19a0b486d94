"""GROUP BY ... EMIT CHANGES: a row for each input row that changes the aggregates of its group.

It is running aggregates over the rows in order of time, of which only those are kept that differ from the group's row
before: nothing that a stream does not do anyway.
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
    """The keys, then the aggregates. Rows go by the first column of times, which on a stream is the event time."""
    time = next((place for place, field in enumerate(source.fields) if field.type.kind is Kind.TIMESTAMP), None)
    if time is None:
        raise at.reject("EMIT CHANGES goes by time, and no column of the input has one")
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
