"""The end of a bar: the column `close_time` that bars have in joins, and a warning about joins that do not use it."""

from collections.abc import Iterator, Sequence

from candlewright_cep.binding.binder import Binder, Field
from candlewright_cep.binding.expressions import Apply, Column, Expression, conjuncts
from candlewright_cep.limits import Limits
from candlewright_cep.planning.bands import bands_in
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.plans import AsofJoin, Filter, Join, Narrowed, Plan, Project, Renamed, Scan
from candlewright_cep.syntax.tokens import BEGIN
from candlewright_cep.syntax.tree import CallNode, Identifier, LiteralNode, NameNode, Node, StarNode
from candlewright_cep.types import STRING, Kind

BARS, OPEN_TIME, CLOSE_TIME, PERIOD = "ohlc", "open_time", "close_time", "period_seconds"


def with_close_time(bars: Scan, limits: Limits) -> Plan:
    """Bars with a hidden column for their end, which is found by name but is not part of `*`. Unchanged if they already
    have it, or if it cannot be computed.
    """
    kinds = {field.name.lower(): field.type for field in bars.fields}
    opened, period = kinds.get(OPEN_TIME), kinds.get(PERIOD)
    if opened is None or period is None or CLOSE_TIME in kinds:
        return bars
    if opened.kind is not Kind.TIMESTAMP or not period.is_integer:
        return bars
    second = CallNode(name="INTERVAL SECOND", arguments=(LiteralNode("1", STRING, BEGIN),), at=BEGIN)
    length = CallNode(name="*", arguments=(column_named(PERIOD), second), at=BEGIN, is_operator=True)
    end = CallNode(name="+", arguments=(column_named(OPEN_TIME), length), at=BEGIN, is_operator=True)
    ended = Binder(bars.fields, {}, limits).bind(end)
    columns = tuple(Column(index, field.type) for index, field in enumerate(bars.fields))
    return Project(bars, (*columns, ended), (*bars.fields, Field(CLOSE_TIME, ended.type, hidden=True)))


def column_named(name: str) -> Node:
    return NameNode((Identifier(name, False, BEGIN),), BEGIN)


def is_end_of(node: Expression, opened: int) -> bool:
    """Whether it computes the end of the bar that opened at column `opened`, as `with_close_time` does."""
    if not isinstance(node, Apply) or node.function != "+" or len(node.arguments) != 2:
        return False
    start, length = node.arguments
    return isinstance(start, Column) and start.index == opened and isinstance(length, Apply) and length.function == "*"


def closings(fields: Sequence[Field], star: StarNode) -> Iterator[int]:
    """The hidden ends of bars, which a projection passes on after `*`."""
    for index, field in enumerate(fields):
        of_table = star.qualifier is None or field.qualifier.lower() == star.qualifier.text.lower()
        if field.hidden and field.name == CLOSE_TIME and of_table:
            yield index


def looks_ahead(plan: Plan) -> Iterator[str]:
    """A warning if a join selects bars by their open time, before their values are known."""
    if not isinstance(plan, Join | AsofJoin):
        return
    bands = [] if plan.band is None else [plan.band]
    if isinstance(plan, Join) and plan.rest is not None:
        bands += [band for part in conjuncts(plan.rest) for band in bands_in(part, len(plan.left.fields))]
    for band in bands:
        is_open = isinstance(band.right, Column) and column_of(plan.right, band.right.index) == (BARS, OPEN_TIME)
        if is_open and isinstance(band.right, Column) and band.upper is not None and band.upper >= 0:
            name = plan.right.fields[band.right.index].qualifier or BARS
            yield (
                f"the join looks ahead: at its open_time a bar of {name} has not closed yet; "
                f"{name}.close_time is when its values were known"
            )
            return


def column_of(plan: Plan, index: int) -> tuple[str, str] | None:
    """The input and its column from which a plan's column comes; None for a computed column."""
    while True:
        match plan:
            case Scan():
                return plan.name.lower(), plan.fields[index].name.lower()
            case Filter() | Renamed() | Narrowed():
                plan = plan.inner
            case Over() if index < len(plan.inner.fields):
                plan = plan.inner
            case Project():
                part = plan.expressions[index]
                if not isinstance(part, Column):
                    return None
                plan, index = plan.inner, part.index
            case Join() | AsofJoin():
                width = len(plan.left.fields)
                plan, index = (plan.left, index) if index < width else (plan.right, index - width)
            case _:
                return None
