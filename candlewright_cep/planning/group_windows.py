"""GROUP BY TUMBLE(ts, INTERVAL ...): windows as grouping keys, Flink's older form."""

from collections.abc import Sequence
from dataclasses import dataclass

from candlewright_cep.binding.binder import Binder, Field, Parameters
from candlewright_cep.binding.expressions import Column, Constant, Expression
from candlewright_cep.functions.scalars.zones import is_zone_name
from candlewright_cep.limits import Limits
from candlewright_cep.planning.plans import Plan
from candlewright_cep.planning.windows import NOWHERE, Place, WindowTable, check_intervals, check_place, window_fields
from candlewright_cep.syntax.tree import CallNode, Node, SelectNode
from candlewright_cep.types import Kind

_GROUP_WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_WINDOW_PROPERTIES = {
    f"{function}_{suffix}": (function, column)
    for function in _GROUP_WINDOWS
    for suffix, column in (("START", "window_start"), ("END", "window_end"), ("ROWTIME", "window_time"))
}


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """The call, the column of its time, its intervals in ns, and what it is aligned to."""

    node: CallNode
    time: int
    intervals: tuple[int, ...]
    place: Place = NOWHERE


def place_of(binder: Binder, node: Node, function: str, *, intervals: Sequence[int]) -> Place:
    """The time zone or exchange calendar that TUMBLE names. Raises TriggerRejected for anything else."""
    given = binder.bind(node)
    name = given.text if isinstance(given, Constant) else None
    # A calendar is a code in capitals such as XNYS.
    is_zone = name is None or is_zone_name(name) or name != name.upper()
    place = Place(zone=binder.zone_name(node)) if is_zone else Place(calendar=binder.calendar_name(node))
    check_place(place, function, intervals, at=node.at)
    return place


def group_window(node: SelectNode, binder: Binder) -> GroupWindow | None:
    """The window in GROUP BY, if there is one; raises TriggerRejected if it is malformed."""
    found = [part for part in node.group_by if isinstance(part, CallNode) and part.name in _GROUP_WINDOWS]
    if not found:
        return None
    call = found[0]
    if len(found) > 1:
        raise found[1].at.reject("GROUP BY has more than one window")
    bound = [binder.bind(argument) for argument in call.arguments]
    if not bound or not isinstance(bound[0], Column) or bound[0].type.kind is not Kind.TIMESTAMP:
        raise call.at.reject(f"the first argument of {call.name} must be a time column")
    intervals: list[int] = []
    named = bound.pop() if len(bound) > 2 and bound[-1].type.kind is Kind.STRING else None
    for argument, given in zip(call.arguments[1:], bound[1:], strict=False):
        if not isinstance(given, Constant) or given.type.kind is not Kind.INTERVAL:
            raise argument.at.reject(f"{call.name} takes intervals", "write INTERVAL '1' MINUTE")
        intervals.append(given.value)
    check_intervals(call.name, tuple(intervals), call.at)
    place = NOWHERE if named is None else place_of(binder, call.arguments[-1], call.name, intervals=intervals)
    return GroupWindow(call, bound[0].index, tuple(intervals), place)


def windowed(source: Plan, window: GroupWindow, keys: Sequence[Expression]) -> Plan:
    """The rows with the columns of their windows; `keys`: the other expressions in GROUP BY."""
    partition: tuple[int, ...] = ()
    if window.node.name == "SESSION":
        if not all(isinstance(key, Column) for key in keys):
            raise window.node.at.reject("GROUP BY with SESSION takes columns")
        partition = tuple(key.index for key in keys if isinstance(key, Column))
    kind = source.fields[window.time].type
    fields = window_fields(source.fields, kind, "", hidden=True)
    return WindowTable(
        inner=source,
        function=window.node.name,
        time_column=window.time,
        intervals=window.intervals,
        partition=partition,
        fields=fields,
        at=window.node.at,
        place=window.place,
    )


class WindowedBinder(Binder):
    """Also binds TUMBLE_START(...) and the like, for the window in GROUP BY."""

    def __init__(self, fields: Sequence[Field], parameters: Parameters, limits: Limits, *, window: GroupWindow) -> None:
        super().__init__(fields, parameters, limits)
        self.window = window

    def call(self, node: CallNode) -> Expression:
        prop = _WINDOW_PROPERTIES.get(node.name)
        if prop is None or node.is_operator:
            return super().call(node)
        function, column = prop
        if function != self.window.node.name:
            raise node.at.reject(f"{node.name} does not belong to the {self.window.node.name} of GROUP BY")
        if node.arguments:
            bound = [Binder.bind(self, argument) for argument in node.arguments]
            place = NOWHERE
            if len(bound) > 2 and bound[-1].type.kind is Kind.STRING:
                bound.pop()
                place = place_of(self, node.arguments[-1], function, intervals=self.window.intervals)
            given = tuple(part.value for part in bound[1:] if isinstance(part, Constant))
            if (
                place != self.window.place
                or given != self.window.intervals
                or bound[0] != Column(self.window.time, bound[0].type)
            ):
                raise node.at.reject(f"the arguments of {node.name} differ from those in GROUP BY")
        index = len(self.fields) - 3 + ("window_start", "window_end", "window_time").index(column)
        return Column(index, self.fields[index].type)
