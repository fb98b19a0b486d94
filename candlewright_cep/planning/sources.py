"""Plans of what follows FROM, over the plan of the table before it: window tables, UNNEST, BARS BY, MATCH_RECOGNIZE."""

from candlewright_cep.binding.binder import Binder, Field, Parameters
from candlewright_cep.binding.expressions import Column, Constant
from candlewright_cep.functions.scalars.arrays import item_type
from candlewright_cep.functions.signatures import Mismatch
from candlewright_cep.limits import Limits
from candlewright_cep.matching.recognize import bind_recognize
from candlewright_cep.planning.bars import bars
from candlewright_cep.planning.group_windows import place_of
from candlewright_cep.planning.over import UP_TO_HERE, Over, Window
from candlewright_cep.planning.plans import Match, Plan, Renamed
from candlewright_cep.planning.unnest import Unnest
from candlewright_cep.planning.windows import NOWHERE, WindowTable, check_intervals, window_fields
from candlewright_cep.syntax.tree import (
    BarsNode,
    CallNode,
    Identifier,
    LiteralNode,
    MatchNode,
    NameNode,
    ParameterNode,
    UnnestNode,
    WindowTableNode,
)
from candlewright_cep.types import BIGINT, Kind


def matched(node: MatchNode, inner: Plan, parameters: Parameters, *, limits: Limits) -> Match:
    alias = node.alias.text if node.alias is not None else ""
    plan = bind_recognize(node.body, inner.fields, parameters, limits=limits, alias=alias)
    if plan.computed:
        hidden = tuple(Field("", function.type, hidden=True) for function in plan.computed)
        window = Window(plan.partition, plan.order, UP_TO_HERE)
        inner = Over(
            inner=inner,
            window=window,
            functions=plan.computed,
            measures=(),
            fields=(*inner.fields, *hidden),
            limits=limits,
            at=node.at,
        )
    return Match(inner, plan)


def window_table(node: WindowTableNode, inner: Plan, parameters: Parameters, *, limits: Limits) -> Plan:
    binder = Binder(inner.fields, parameters, limits)
    time = binder.name(NameNode((node.time,), node.time.at))
    assert isinstance(time, Column)
    if time.type.kind is not Kind.TIMESTAMP:
        raise node.time.at.reject(f"the time column of {node.function} has type {time.type}")
    partition: list[int] = []
    for name in node.partition:
        column = binder.name(NameNode((name,), name.at))
        assert isinstance(column, Column)
        partition.append(column.index)
    intervals = tuple(binder.interval(part).value for part in node.intervals if isinstance(part, CallNode))
    check_intervals(node.function, intervals, node.at)
    place = NOWHERE if node.zone is None else place_of(binder, node.zone, node.function, intervals=intervals)
    if partition and node.function != "SESSION":
        raise node.at.reject(f"{node.function} takes no PARTITION BY")
    alias = node.alias.text if node.alias is not None else ""
    fields = window_fields(inner.fields, time.type, alias, hidden=False)
    plan = WindowTable(
        inner=inner,
        function=node.function,
        time_column=time.index,
        intervals=intervals,
        partition=tuple(partition),
        fields=fields,
        at=node.at,
        place=place,
    )
    return renamed(plan, alias, node.columns) if alias else plan


def unnested(node: UnnestNode, inner: Plan, parameters: Parameters, *, limits: Limits) -> Plan:
    array = Binder(inner.fields, parameters, limits).bind(node.array)
    try:
        kinds = [item_type(array.type), *([BIGINT] if node.is_numbered else [])]
    except Mismatch:
        raise node.array.at.reject(f"UNNEST takes an array, this is {array.type}") from None
    alias = node.alias.text if node.alias is not None else ""
    names = [name.text for name in node.columns] or ["value", "ordinality"][: len(kinds)]
    if len(names) != len(kinds):
        raise node.at.reject(f"{len(names)} names for {len(kinds)} columns of UNNEST")
    fields = tuple(Field(name, kind, alias) for name, kind in zip(names, kinds, strict=True))
    return Unnest(
        inner=inner,
        array=array,
        is_outer=node.is_outer,
        is_numbered=node.is_numbered,
        fields=(*inner.fields, *fields),
        limits=limits,
        at=node.at,
    )


def bars_by(node: BarsNode, inner: Plan, parameters: Parameters, *, limits: Limits) -> Plan:
    is_given = isinstance(node.size, LiteralNode | ParameterNode)
    size = Binder((), parameters, limits).bind(node.size) if is_given else None
    if not isinstance(size, Constant) or not size.type.is_numeric or size.value is None:
        raise node.size.at.reject("the size of BARS BY must be a number or a parameter")
    alias = node.alias.text if node.alias is not None else ""
    plan = bars(inner, node.measure, float(size.value), alias=alias, at=node.at)
    return renamed(plan, alias, node.columns) if node.columns else plan


def renamed(plan: Plan, alias: str, columns: tuple[Identifier, ...]) -> Renamed:
    """The plan under an alias, with new names for its visible columns."""
    shown = [index for index, field in enumerate(plan.fields) if not field.hidden]
    if columns and len(columns) != len(shown):
        raise columns[0].at.reject(f"{len(columns)} names for {len(shown)} columns")
    names = {index: name.text for index, name in zip(shown, columns, strict=False)}
    fields = tuple(
        Field(names.get(index, field.name), field.type, alias, field.hidden) for index, field in enumerate(plan.fields)
    )
    return Renamed(plan, fields)
