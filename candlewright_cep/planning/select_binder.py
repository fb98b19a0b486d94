"""Binds the expressions of a select list: window functions, and aggregates over GROUP BY."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from candlewright_cep.binding.binder import Binder, Field, Parameters, check_part, closest, form_of, not_single
from candlewright_cep.binding.expressions import Aggregation, Apply, Column, Constant, Expression, WindowFunction, walk
from candlewright_cep.binding.filters import filtered
from candlewright_cep.binding.indicators import bind_indicator
from candlewright_cep.binding.recovery import recovering
from candlewright_cep.functions.aggregates.aggregates import AGGREGATES, aggregate_name, distinct_name, written
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.scalars.scalar import FUNCTIONS
from candlewright_cep.functions.signatures import Mismatch
from candlewright_cep.limits import Limits
from candlewright_cep.matching.program import first_anchor
from candlewright_cep.matching.recognize import SortKey, bind_recognize
from candlewright_cep.planning.over import RANKING, VALUES, Bound, Frame, Window
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import (
    CallNode,
    FrameBound,
    Identifier,
    LiteralNode,
    ModeNode,
    NameNode,
    Node,
    OverNode,
    ParameterNode,
    RecognizeNode,
    StarNode,
    WindowNode,
)
from candlewright_cep.types import BIGINT, BOOLEAN, Kind

# Numbers of columns that window functions will have: their final index is known once the whole select list is bound.
LATER = 1_000_000
_NESTED, _ALONE = "a window function is not possible inside another", "make it a column of a sub-query"


@dataclass(slots=True)
class WindowUse:
    """One window and the functions over it; `places` are the numbers of their columns to come."""

    window: Window
    functions: list[WindowFunction] = field(default_factory=list)
    function_places: list[int] = field(default_factory=list)
    measures: list[int] = field(default_factory=list)
    measure_places: list[int] = field(default_factory=list)
    at: Position = field(default=Position(1, 1))


def has_aggregate(node: Node) -> bool:
    """Whether the node contains an aggregate outside of OVER."""
    if isinstance(node, CallNode):
        if not node.is_operator and (aggregate_name(node.name) is not None or node.name == "GROUPING"):
            return True
        return any(has_aggregate(argument) for argument in node.arguments)
    if isinstance(node, ModeNode):
        return has_aggregate(node.inner)
    if isinstance(node, OverNode):
        windows = node.window
        inside: list[Node] = list(node.function.arguments) if isinstance(node.function, CallNode) else []
        if isinstance(windows, WindowNode):
            inside += [*windows.partition_by, *(item.expression for item in windows.order_by)]
        return any(has_aggregate(argument) for argument in inside)
    return False


def with_results(node: Node, results: Mapping[str, Node]) -> Node:
    """The expression with names of results replaced by their expressions."""
    if isinstance(node, NameNode) and len(node.parts) == 1:
        return results.get(node.parts[0].text.lower(), node)
    if isinstance(node, CallNode):
        return replace(node, arguments=tuple(with_results(part, results) for part in node.arguments))
    if isinstance(node, OverNode) and isinstance(node.window, WindowNode):
        window = replace(
            node.window,
            partition_by=tuple(with_results(part, results) for part in node.window.partition_by),
            order_by=tuple(
                replace(item, expression=with_results(item.expression, results)) for item in node.window.order_by
            ),
        )
        return replace(node, window=window)
    return node


def has_window(node: Node) -> bool:
    """Whether the node contains a window function."""
    return isinstance(node, OverNode) or (isinstance(node, CallNode) and any(map(has_window, node.arguments)))


class SelectBinder(Binder):
    """Plain expressions and window functions over the columns of FROM."""

    def __init__(
        self,
        fields: Sequence[Field],
        parameters: Parameters,
        limits: Limits,
        *,
        windows: Mapping[str, WindowNode],
    ) -> None:
        super().__init__(fields, parameters, limits)
        self.windows = windows
        self.uses: list[WindowUse] = []
        self.partition_fields: list[Expression] = []
        self._count = 0
        self._in_window = False

    def further_functions(self) -> Sequence[str]:
        return (*AGGREGATES, *RANKING, *VALUES, *INDICATORS)

    def call(self, node: CallNode) -> Expression:
        if not node.is_operator and aggregate_name(node.name) is not None:
            hint = self._last_rows(node) or f"use it with GROUP BY, HAVING or OVER, as in {self._windowed(node)}"
            raise node.at.reject(f"the aggregate {node.name} is not possible here", hint)
        if not node.is_operator and (node.name in RANKING or node.name in VALUES or node.name in INDICATORS):
            if self._in_window:
                raise node.at.reject(_NESTED, _ALONE)
            raise node.at.reject(f"{node.name} needs OVER", f"write {node.name}(...) {self.window_form()}")
        return super().call(node)

    def _windowed(self, node: CallNode, rows: int = 20) -> str:
        """The aggregate over the last rows."""
        value = node.arguments[0] if node.arguments else None
        named = value.parts[-1].text[:60] if isinstance(value, NameNode) else "*" if node.name == "COUNT" else "..."
        return f"{node.name}({named}) {self.window_form(f' ROWS {rows - 1} PRECEDING')}"

    def _last_rows(self, node: CallNode) -> str:
        """What to write instead of AVG(price, 20); empty for other calls."""
        name = aggregate_name(node.name)
        if len(node.arguments) != 2 or name is None or AGGREGATES[name].takes_part:
            return ""
        rows = node.arguments[1]
        if not isinstance(rows, LiteralNode) or not rows.type.is_integer or rows.value < 1:
            return ""
        return f"write {self._windowed(node, rows.value)}"

    # -- windows --------------------------------------------------------------------------------------------------

    def over(self, node: OverNode) -> Expression:
        if self._in_window:
            raise node.at.reject(_NESTED, _ALONE)
        self._in_window = True
        try:
            specification = self._specification(node.window)
            use = self._use(specification)
            if isinstance(node.function, NameNode):
                return self._pattern_measure(node.function, use)
            function = self._function(node.function)
            if function.name in INDICATORS and (specification.unit or not use.window.order or use.window.recognize):
                raise node.at.reject(
                    f"{function.name} uses all rows of its partition in order",
                    "write OVER (PARTITION BY ... ORDER BY ...) without a frame",
                )
            return self._place(function, use)
        finally:
            self._in_window = False

    def _specification(self, window: WindowNode | Identifier) -> WindowNode:
        if isinstance(window, WindowNode):
            if window.base is None:
                return window
            base = self._specification(window.base)
            return WindowNode(
                base=None,
                partition_by=window.partition_by or base.partition_by,
                order_by=window.order_by or base.order_by,
                unit=window.unit or base.unit,
                lower=window.lower or base.lower,
                upper=window.upper or base.upper,
                recognize=window.recognize or base.recognize,
                at=window.at,
                exclude=window.exclude or base.exclude,
            )
        found = self.windows.get(window.text.lower())
        if found is None:
            name = window.text[:60]
            hint = (
                closest(name, self.windows) or f"write {self.window_form()}, or WINDOW {name} AS (...) after the SELECT"
            )
            raise window.at.reject(f"unknown window '{name}'", hint)
        if found.base is not None and found.base.text.lower() == window.text.lower():
            raise window.at.reject("a window cannot be based on itself")
        return found if found.base is None else self._specification(found)

    def _use(self, node: WindowNode) -> WindowUse:
        window = self._window(node)
        for use in self.uses:
            same = (use.window.partition, use.window.order, use.window.frame) == (
                window.partition, window.order, window.frame)  # fmt: skip
            if same and use.window.recognize is None and window.recognize is None:
                return use
            if node.recognize is not None and use.at == node.at:
                return use
        use = WindowUse(window, at=node.at)
        self.uses.append(use)
        return use

    def _window(self, node: WindowNode) -> Window:
        partition = [self.bind(part) for part in node.partition_by]
        places: list[int] = []
        for part in partition:
            if part.type.kind is Kind.OPAQUE:
                raise not_single(node.at, "PARTITION BY", part.type)
            places.append(self._as_column(part))
        order: list[SortKey] = []
        for item in node.order_by:
            order.append(SortKey(self.bind(item.expression), item.descending, item.nulls_first))
        frame = self._frame(node, order)
        recognize = None
        seek = False
        if node.recognize is not None:
            if node.unit != "ROWS" or node.lower is None or node.lower.kind != "CURRENT ROW":
                raise node.at.reject(
                    "a row pattern needs the frame ROWS BETWEEN CURRENT ROW AND ...", "add it after MEASURES"
                )
            if node.exclude:
                raise node.at.reject("EXCLUDE is not possible with a row pattern")
            if any(not isinstance(key.expression, Column) for key in order):
                raise node.at.reject("ORDER BY of a window with a row pattern takes columns")
            _check_window_pattern(node.recognize)
            pattern = replace(node.recognize, order_by=node.order_by)
            recognize = bind_recognize(pattern, self.fields, self.parameters, limits=self.limits, alias="")
            if recognize.computed:
                raise node.recognize.at.reject(
                    f"{recognize.computed[0].name} is not possible in a row pattern of a window",
                    "compute it in a subquery",
                )
            seek = node.recognize.seek
        return Window(tuple(places), tuple(order), frame, recognize, seek)

    def _as_column(self, part: Expression) -> int:
        """Partition keys must be columns; other expressions become columns before the window."""
        if isinstance(part, Column):
            return part.index
        if part not in self.partition_fields:
            self.partition_fields.append(part)
        return 2 * LATER + self.partition_fields.index(part)

    def _frame(self, node: WindowNode, order: list[SortKey]) -> Frame:
        if node.lower is None:
            upper = Bound("CURRENT ROW") if order else Bound("UNBOUNDED FOLLOWING")
            return Frame("RANGE", Bound("UNBOUNDED PRECEDING"), upper)
        lower = self._bound(node.lower, node.unit, order)
        upper = self._bound(node.upper, node.unit, order) if node.upper is not None else Bound("CURRENT ROW")
        if lower.kind == "UNBOUNDED FOLLOWING" or upper.kind == "UNBOUNDED PRECEDING":
            raise node.at.reject("the frame ends before it starts")
        if node.unit == "GROUPS" and not order:
            raise node.at.reject("a GROUPS frame needs ORDER BY", "rows that are equal in it are a group")
        return Frame(node.unit, lower, upper, node.exclude)

    def _bound(self, bound: FrameBound, unit: str, order: list[SortKey]) -> Bound:
        if bound.amount is None:
            return Bound(bound.kind)
        found = self.bind(bound.amount)
        if not isinstance(found, Constant) or found.value is None:
            raise bound.at.reject("the offset of a frame must be written as a literal or a parameter")
        if unit in ("ROWS", "GROUPS"):
            if not found.type.is_integer or not 0 <= found.value <= 2**40:
                raise bound.at.reject(f"the offset of a {unit} frame must be a whole number of at least 0")
            return Bound(bound.kind, found.value)
        if len(order) != 1:
            raise bound.at.reject("a RANGE frame with an offset needs one ORDER BY key")
        key = order[0].expression.type
        fits = found.type.kind is Kind.INTERVAL if key.is_time else key.is_measured and found.type.is_measured
        if not fits or found.value < 0:
            raise bound.at.reject(
                f"the offset of this RANGE frame does not fit the order key of type {key}",
                "write INTERVAL '5' MINUTE" if key.is_time else "",
            )
        return Bound(bound.kind, found.value)

    def _function(self, node: CallNode) -> WindowFunction:
        if node.name in INDICATORS:
            return bind_indicator(self, node)
        name = aggregate_name(node.name) or node.name
        if node.mode == "IGNORE NULLS" and name in VALUES:
            return replace(self._function(replace(node, mode="")), ignores_nulls=True)
        if node.mode and (name in RANKING or name in VALUES or name not in AGGREGATES):
            raise node.at.reject(f"{node.mode} is not possible with {node.name}")
        if node.filter is not None and name in VALUES:
            raise node.filter.at.reject(f"FILTER is not possible with {node.name}")
        node = filtered(node)
        name = aggregate_name(node.name) or node.name
        if name in RANKING:
            if name == "NTILE":
                return WindowFunction(name, (), RANKING[name], self._tiles(node))
            if node.arguments:
                raise node.at.reject(f"{name} takes no arguments")
            return WindowFunction(name, (), RANKING[name])
        if name in VALUES:
            return self._value_function(node, name)
        if name not in AGGREGATES:
            if node.name not in FUNCTIONS:
                raise self.unknown_function(node, self.further_functions())
            raise node.at.reject(f"{node.name} is not a window function", f"write {node.name}(...) without OVER")
        if hint := self._last_rows(node):
            raise node.at.reject(f"{node.name} takes no number of rows", hint)
        name = with_mode(node, name)
        if name == "COUNT" and (not node.arguments or isinstance(node.arguments[0], StarNode)):
            return WindowFunction("COUNT", (), BIGINT)
        aggregate = bind_aggregate(self, node, name)
        return WindowFunction(name, aggregate.arguments, aggregate.type)

    def _tiles(self, node: CallNode) -> int:
        given = self.bind(node.arguments[0]) if len(node.arguments) == 1 else None
        if not isinstance(given, Constant) or not given.type.is_integer or not 1 <= given.value <= 2**31:
            raise node.at.reject("NTILE takes one whole number of at least 1")
        return int(given.value)

    def _value_function(self, node: CallNode, name: str) -> WindowFunction:
        most = {"LAG": 3, "LEAD": 3, "NTH_VALUE": 2}.get(name, 1)
        if not 1 <= len(node.arguments) <= most or (name == "NTH_VALUE" and len(node.arguments) != 2):
            raise node.at.reject(f"{name} has a wrong number of arguments")
        arguments = [self.bind(node.arguments[0])]
        offset = 1
        if len(node.arguments) > 1:
            given = self.bind(node.arguments[1])
            if not isinstance(given, Constant) or not given.type.is_integer or not 0 <= given.value <= 2**31:
                raise node.arguments[1].at.reject(
                    f"the offset of {name} must be a whole number of at least 0",
                    {"LAG": "LEAD(x, 1) looks ahead", "LEAD": "LAG(x, 1) looks back"}.get(name, ""),
                )
            offset = given.value
        if len(node.arguments) > 2:
            default = self.converted(self.bind(node.arguments[2]), arguments[0].type, node.arguments[2].at)
            arguments.append(default)
        return WindowFunction(name, tuple(arguments), arguments[0].type, offset)

    def _place(self, function: WindowFunction, use: WindowUse) -> Column:
        if function in use.functions:
            return Column(use.function_places[use.functions.index(function)], function.type)
        use.functions.append(function)
        use.function_places.append(self._next_place())
        return Column(use.function_places[-1], function.type)

    def _next_place(self) -> int:
        self._count += 1
        return LATER + self._count - 1

    def _pattern_measure(self, name: NameNode, use: WindowUse) -> Expression:
        plan = use.window.recognize
        names = [measure.name for measure in plan.measures] if plan is not None else []
        wanted = name.parts[-1].text.lower()
        matching = [index for index, known in enumerate(names) if known.lower() == wanted]
        if plan is None or not matching or len(name.parts) > 1:
            raise name.at.reject(f"'{name.parts[-1].text[:60]}' is not a measure of the window", closest(wanted, names))
        index = matching[0]
        kind = plan.measures[index].expression.type
        if index in use.measures:
            return Column(use.measure_places[use.measures.index(index)], kind)
        use.measures.append(index)
        use.measure_places.append(self._next_place())
        return Column(use.measure_places[-1], kind)


def _check_window_pattern(node: RecognizeNode) -> None:
    """A window has at most one match per row; rejects the clauses that SQL therefore does not allow."""
    anchor = first_anchor(node.pattern)
    if anchor is not None:
        raise anchor.at.reject("^ and $ are not possible in a window")
    expressions = [*(item.expression for item in node.measures), *(item.condition for item in node.definitions)]
    for expression in expressions:
        called = _call_of(expression, "MATCH_NUMBER")
        if called is not None:
            raise called.at.reject("MATCH_NUMBER() is not possible in a window", "a row has one match at most")


def _call_of(node: Node, name: str) -> CallNode | None:
    if isinstance(node, ModeNode):
        return _call_of(node.inner, name)
    if not isinstance(node, CallNode):
        return None
    if node.name == name:
        return node
    return next((found for part in node.arguments if (found := _call_of(part, name)) is not None), None)


def with_mode(node: CallNode, name: str) -> str:
    """The aggregate that `name` becomes with DISTINCT; `name` itself without."""
    if not node.mode:
        return name
    distinct = distinct_name(name)
    if node.mode != "DISTINCT" or distinct is None:
        raise node.at.reject(f"{node.mode} is not possible with {written(node.name)} here")
    return distinct


def bind_aggregate(binder: Binder, node: CallNode, name: str) -> Aggregation:
    """An aggregate whose arguments are bound by `binder`."""
    if name == "COUNT" and (not node.arguments or isinstance(node.arguments[0], StarNode)):
        return Aggregation("COUNT", None, True, (), BIGINT)
    arguments = [binder.bind(argument) for argument in node.arguments]
    try:
        wanted, kind = AGGREGATES[name].signature([argument.type for argument in arguments])
    except Mismatch:
        shown = ", ".join(str(argument.type) for argument in arguments)
        raise node.at.reject(
            f"{written(node.name)} has no form for ({shown})", form_of(name, [argument.type for argument in arguments])
        ) from None
    converted = tuple(binder.converted(part, target, node.at) for part, target in zip(arguments, wanted, strict=True))
    check_part(node, name, converted)
    return Aggregation(name, None, True, converted, kind)


#: Placeholder for the number that says which keys are missing in a row of a grouping set.
_MISSING = Column(-1, BIGINT)


class GroupBinder(SelectBinder):
    """Expressions above GROUP BY: keys, aggregates and values computed from them. The columns of the result are the
    keys, then the aggregates. `sets`: see `Group`.
    """

    def __init__(
        self,
        source: Binder,
        keys: Sequence[Expression],
        windows: Mapping[str, WindowNode],
        *,
        sets: tuple[frozenset[int], ...] = (),
    ) -> None:
        super().__init__(source.fields, source.parameters, source.limits, windows=windows)
        self.source = source
        self.sets = sets
        self.keys = [*keys, _MISSING] if sets else list(keys)
        self._places: dict[Aggregation, int] = {}

    @property
    def aggregates(self) -> tuple[Aggregation, ...]:
        return tuple(self._places)

    @recovering
    def bind(self, node: Node) -> Expression:
        if not isinstance(node, OverNode) and not has_aggregate(node) and not _has_over(node):
            if isinstance(node, LiteralNode | ParameterNode):
                return super().bind(node)
            bound = self.source.bind(node)
            if bound in self.keys:
                return Column(self.keys.index(bound), bound.type)
            if not any(isinstance(part, Column) for part in walk(bound)):
                return bound
            if isinstance(node, NameNode):
                raise node.at.reject(
                    f"'{node.parts[-1].text[:60]}' is neither in GROUP BY nor in an aggregate", "add it to GROUP BY"
                )
        return super().bind(node)

    def call(self, node: CallNode) -> Expression:
        name = None if node.is_operator else aggregate_name(node.name)
        if node.name == "GROUPING" and not node.is_operator:
            return self._grouping(node)
        if name is None:
            return super().call(node)
        node = filtered(node)
        name = with_mode(node, aggregate_name(node.name) or name)
        if any(has_aggregate(argument) for argument in node.arguments):
            raise node.at.reject("an aggregate is not possible inside another")
        bound = bind_aggregate(self.source, node, name)
        return Column(len(self.keys) + self._places.setdefault(bound, len(self._places)), bound.type)

    def _grouping(self, node: CallNode) -> Expression:
        """GROUPING(a, b): one bit per key, 1 if the row's set lacks the key; the last key's bit is the lowest."""
        found: Expression | None = None
        for argument in node.arguments:
            key = self.source.bind(argument)
            if key not in self.keys:
                raise argument.at.reject("GROUPING takes expressions of GROUP BY")
            if not self.sets:
                continue
            place = self.keys.index(key)
            bit = 1 << place
            lowest = Apply("%", (Column(len(self.keys) - 1, BIGINT), Constant(2 * bit, BIGINT)), BIGINT)
            is_missing = Apply(">=", (lowest, Constant(bit, BIGINT)), BOOLEAN)
            # Name the column after the key, for explanations.
            own = Apply("IF", (is_missing, Constant(1, BIGINT), Constant(0, BIGINT)), BIGINT, str(place))
            if found is None:
                found = own
            else:
                found = Apply("+", (Apply("*", (found, Constant(2, BIGINT)), BIGINT), own), BIGINT)
        if not node.arguments or len(node.arguments) > 32:
            raise node.at.reject("GROUPING takes one column of GROUP BY, or up to 32 of them")
        return found or Constant(0, BIGINT)


def _has_over(node: Node) -> bool:
    if isinstance(node, OverNode):
        return True
    return isinstance(node, CallNode) and any(_has_over(argument) for argument in node.arguments)
