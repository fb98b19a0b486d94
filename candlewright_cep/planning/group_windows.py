"""GROUP BY TUMBLE(ts, INTERVAL ...): windows as grouping keys, the older form of Flink."""

from collections.abc import Sequence
from dataclasses import dataclass

from candlewright_cep.binding.binder import Binder, Field, Parameters
from candlewright_cep.binding.expressions import Column, Constant, Expression
from candlewright_cep.limits import Limits
from candlewright_cep.planning.plans import Plan
from candlewright_cep.planning.windows import WindowTable, check_intervals, check_zone, window_fields
from candlewright_cep.syntax.tree import CallNode, SelectNode
from candlewright_cep.types import Kind

_GROUP_WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_WINDOW_PROPERTIES = {
    f"{function}_{suffix}": (function, column)
    for function in _GROUP_WINDOWS
    for suffix, column in (("START", "window_start"), ("END", "window_end"), ("ROWTIME", "window_time"))
}


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """The call, the column of its time, its intervals in ns, and the time zone that it goes by."""

    node: CallNode
    time: int
    intervals: tuple[int, ...]
    zone: str = ""


def group_window(node: SelectNode, binder: Binder) -> GroupWindow | None:
    """The one in GROUP BY; raises TriggerRejected where it is malformed."""
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
    zone = ""
    if len(bound) > 2 and bound[-1].type.kind is Kind.STRING:
        zone = binder.zone_name(call.arguments[-1])
        bound.pop()
    for argument, given in zip(call.arguments[1:], bound[1:], strict=False):
        if not isinstance(given, Constant) or given.type.kind is not Kind.INTERVAL:
            raise argument.at.reject(f"{call.name} takes intervals", "write INTERVAL '1' MINUTE")
        intervals.append(given.value)
    check_intervals(call.name, tuple(intervals), call.at)
    if zone:
        check_zone(call.name, tuple(intervals), call.at)
    return GroupWindow(call, bound[0].index, tuple(intervals), zone)


def windowed(source: Plan, window: GroupWindow, keys: Sequence[Expression]) -> Plan:
    """The rows with the columns of their windows; `keys`: what else is in GROUP BY."""
    partition: tuple[int, ...] = ()
    if window.node.name == "SESSION":
        if not all(isinstance(key, Column) for key in keys):
            raise window.node.at.reject("GROUP BY with SESSION takes columns")
        partition = tuple(key.index for key in keys if isinstance(key, Column))
    kind = source.fields[window.time].type
    fields = window_fields(source.fields, kind, "", hidden=True)
    return WindowTable(
        source, window.node.name, window.time, window.intervals, partition, fields, window.node.at, window.zone
    )


class WindowedBinder(Binder):
    """Knows TUMBLE_START(...) and its relatives of the window in GROUP BY."""

    def __init__(self, fields: Sequence[Field], parameters: Parameters, limits: Limits, window: GroupWindow) -> None:
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
            zone = ""
            if len(bound) > 2 and bound[-1].type.kind is Kind.STRING:
                zone = self.zone_name(node.arguments[-1])
                bound.pop()
            given = tuple(part.value for part in bound[1:] if isinstance(part, Constant))
            if (
                zone != self.window.zone
                or given != self.window.intervals
                or bound[0] != Column(self.window.time, bound[0].type)
            ):
                raise node.at.reject(f"the arguments of {node.name} differ from those in GROUP BY")
        index = len(self.fields) - 3 + ("window_start", "window_end", "window_time").index(column)
        return Column(index, self.fields[index].type)
