"""Checks the expressions of MEASURES and DEFINE: navigation, aggregates, CLASSIFIER, MATCH_NUMBER, RUNNING and
FINAL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from candlewright_cep.binding.binder import Binder, Field, Parameters, check_part, closest, form_of
from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Column,
    Constant,
    Expression,
    Label,
    MatchNumber,
    Navigation,
    WindowFunction,
    is_local,
    walk,
)
from candlewright_cep.binding.filters import filtered
from candlewright_cep.binding.indicators import bind_indicator
from candlewright_cep.binding.recovery import recovering
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions.aggregates.aggregates import AGGREGATES, aggregate_name, distinct_name, written
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.scalars.arrays import INSIDE as ARRAYS
from candlewright_cep.functions.scalars.fields import FIELD
from candlewright_cep.functions.signatures import Mismatch
from candlewright_cep.functions.usage import Extent, Usage
from candlewright_cep.limits import Limits
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import (
    CallNode,
    Identifier,
    LiteralNode,
    ModeNode,
    NameNode,
    Node,
    OverNode,
    ParameterNode,
    StarNode,
)
from candlewright_cep.types import BIGINT, Kind

Labels = frozenset[str] | None
_NAVIGATION = ("PREV", "NEXT", "FIRST", "LAST")
PATTERN_FUNCTIONS = (*_NAVIGATION, "CLASSIFIER", "MATCH_NUMBER", "MATCH_ROWTIME")
#: Window functions, and what a pattern has instead.
_OF_WINDOWS = {"LAG": "PREV", "LEAD": "NEXT"}
_MISSING = "NULL if that row does not exist, whatever x is"
USAGES = (
    Usage("PREV(x, n)", "x of the row n (1) rows before the last one of x's variable", "PREV(price)", _MISSING),
    Usage("NEXT(x, n)", "x of the row n (1) rows after the last one of x's variable", "NEXT(price)", _MISSING),
    Usage("FIRST(x, n)", "x of the first row of its variable, or of the one n rows after it", "FIRST(price)", _MISSING),
    Usage("LAST(x, n)", "x of the last row of its variable, or of the one n rows before it", "LAST(price)", _MISSING),
    Usage("CLASSIFIER()", "the variable that the row was matched as", "CLASSIFIER()", "NULL without a row"),
    Usage("MATCH_NUMBER()", "number of the match in its partition, from 1", "MATCH_NUMBER()", "never NULL", Extent(1)),
    Usage("MATCH_ROWTIME()", "event time of the match's last row", "MATCH_ROWTIME()", "NULL for an empty match"),
)


@dataclass(slots=True)
class _Inside:
    """What has been found so far inside one navigation or aggregate call."""

    function: str
    labels: list[Labels] = field(default_factory=list)

    def note(self, labels: Labels, at: Position) -> None:
        if self.labels and self.labels[0] != labels:
            raise at.reject(
                f"all columns inside one {self.function} must be of the same pattern variable",
                "use one call for each variable",
            )
        self.labels.append(labels)


def inside_navigation(node: Expression) -> Expression:
    """LAST(x)[1] as LAST(x[1]), which is evaluated for a whole column at once; also for fields of a MAP or ROW."""
    if not isinstance(node, Apply) or node.function not in (FIELD, *ARRAYS):
        return node
    places = [place for place, part in enumerate(node.arguments) if not isinstance(part, Constant)]
    navigation = node.arguments[places[0]] if len(places) == 1 else None
    if places != [0] or not isinstance(navigation, Navigation) or not is_local(navigation.argument):
        return node
    inner = Apply(node.function, (navigation.argument, *node.arguments[1:]), node.type, node.extra)
    return replace(navigation, argument=inner)


class PatternBinder(Binder):
    """Binds expressions of a row pattern.

    `variables` maps every primary and subset variable to its primary variables. `time` is the first ORDER BY key if
    that is a time; MATCH_ROWTIME() returns its value in the last row. `computed` collects the indicators, which are
    computed before the pattern, as columns after those of the input.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        parameters: Parameters,
        limits: Limits,
        *,
        variables: Mapping[str, frozenset[str]],
        in_define: bool,
        time: Expression | None = None,
        computed: list[WindowFunction] | None = None,
    ) -> None:
        super().__init__(fields, parameters, limits)
        self._computed: list[WindowFunction] = [] if computed is None else computed
        self.variables = variables
        self.in_define = in_define
        self._time = time
        self._inside: _Inside | None = None
        self._running = True

    def over(self, node: OverNode) -> Expression:
        where = "DEFINE" if self.in_define else "MEASURES"
        hint = "compute them in a subquery"
        if isinstance(node.function, CallNode) and node.function.name in _OF_WINDOWS:
            hint = f"write {_OF_WINDOWS[node.function.name]}(price) instead of {node.function.name}(price) OVER (...)"
        raise node.at.reject(f"window functions are not possible in {where}", hint)

    def before(self, column: str) -> str:
        return f"PREV({column})"

    def unknown_function(self, node: CallNode, among: Sequence[str] = ()) -> TriggerRejected:
        if node.name in _OF_WINDOWS:
            return node.at.reject(
                f"{node.name} is not possible in a pattern", f"did you mean '{_OF_WINDOWS[node.name]}'?"
            )
        return super().unknown_function(node, among)

    def unknown_column(self, node: NameNode) -> TriggerRejected:
        name = node.parts[-1]
        if len(node.parts) == 1 and name.folded in self.variables:
            column = next((field.name for field in self.fields if field.type.kind is Kind.DOUBLE), "price")
            hint = f"write {name.text[:60]}.{column}; COUNT({name.text[:60]}.*) counts its rows"
            return name.at.reject(f"'{name.text[:60]}' is a variable, not a column", hint)
        if name.text.upper() in ("MATCH_NUMBER", "CLASSIFIER", "MATCH_ROWTIME"):
            return name.at.reject(f"unknown column '{name.text}'", f"write {name.text.upper()}()")
        return super().unknown_column(node)

    def further_functions(self) -> Sequence[str]:
        return (*PATTERN_FUNCTIONS, *AGGREGATES, *INDICATORS)

    @recovering
    def bind(self, node: Node) -> Expression:
        if isinstance(node, ModeNode):
            self._check_mode(node.mode, node.at)
            if self._inside is not None:
                raise node.at.reject(f"{node.mode} is not possible inside {self._inside.function}")
            before, self._running = self._running, node.mode == "RUNNING"
            try:
                return self.bind(node.inner)
            finally:
                self._running = before
        return super().bind(node)

    def _check_mode(self, mode: str, at: Position) -> None:
        if mode == "FINAL" and self.in_define:
            raise at.reject("FINAL is not possible in DEFINE", "a condition sees only the match so far")

    # -- names ----------------------------------------------------------------------------------------------------

    def labels_of(self, name: Identifier) -> frozenset[str]:
        found = self.variables.get(name.folded)
        if found is None:
            raise name.at.reject(f"unknown pattern variable '{name.text[:60]}'", closest(name.folded, self.variables))
        return found

    def dotted(self, node: NameNode) -> CallNode | None:
        return None if node.parts[0].folded in self.variables else super().dotted(node)

    def name(self, node: NameNode) -> Expression:
        labels: Labels = None
        column = node
        if len(node.parts) > 1:
            labels = self.labels_of(node.parts[0])
            column = NameNode(node.parts[1:], node.parts[1].at)
        found = super().name(column)
        if self._inside is not None:
            self._inside.note(labels, node.at)
            return found
        return Navigation(labels, True, 0, 0, self._running, found)

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, node: CallNode) -> Expression:
        if node.is_operator:
            return super().call(node)
        if node.filter is not None:
            star = node.arguments[0] if node.arguments else None
            if isinstance(star, StarNode) and star.qualifier is not None:
                name = star.qualifier.text[:60]
                raise star.at.reject(
                    f"COUNT({name}.*) takes no FILTER", f"write COUNT(*) FILTER (WHERE {name}.price > 1)"
                )
            node = filtered(node)
        aggregate = aggregate_name(node.name)
        if node.mode == "DISTINCT":
            return self._distinct(node, aggregate)
        if node.mode == "IGNORE NULLS":
            raise node.at.reject(
                "IGNORE NULLS is not possible over a row pattern", "give the variable a condition IS NOT NULL"
            )
        if node.mode:
            self._check_mode(node.mode, node.at)
            if node.name not in ("FIRST", "LAST") and aggregate is None:
                raise node.at.reject(
                    f"{node.mode} is not possible with {node.name}", "write it before FIRST, LAST and aggregates"
                )
        if node.name == "CLASSIFIER":
            return self._classifier(node)
        if node.name == "MATCH_NUMBER":
            if node.arguments:
                raise node.at.reject("MATCH_NUMBER takes no arguments")
            return MatchNumber()
        if node.name == "MATCH_ROWTIME":
            if node.arguments or self._time is None or self._inside is not None:
                raise node.at.reject(
                    "MATCH_ROWTIME() stands alone and needs ORDER BY a time", "LAST(column) gives any column"
                )
            return Navigation(None, True, 0, 0, self._running, self._time)
        if node.name in _NAVIGATION:
            return self._navigation(node)
        if node.name in INDICATORS:
            return self._indicator(node)
        if aggregate is not None:
            return self._aggregation(node, aggregate)
        return self.scalar(node)

    def _distinct(self, node: CallNode, aggregate: str | None) -> Expression:
        function = None if aggregate is None else distinct_name(aggregate)
        if function is None:
            raise node.at.reject(f"DISTINCT is not possible with {written(node.name)} over a row pattern")
        if not node.arguments or isinstance(node.arguments[0], StarNode):
            raise node.at.reject(f"{node.name} of DISTINCT values needs a column", f"write {node.name}(DISTINCT price)")
        return self._aggregation(replace(node, mode=""), function)

    def resolved(self, name: str, arguments: list[Expression], node: CallNode, *, extra: str = "") -> Expression:
        return inside_navigation(super().resolved(name, arguments, node, extra=extra))

    def _field(self, node: CallNode) -> Expression | None:
        found = super()._field(node)
        return found and inside_navigation(found)

    def _classifier(self, node: CallNode) -> Expression:
        labels: Labels = None
        if node.arguments:
            argument = node.arguments[0]
            if len(node.arguments) > 1 or not isinstance(argument, NameNode) or len(argument.parts) != 1:
                raise node.at.reject("CLASSIFIER takes one pattern variable or nothing")
            labels = self.labels_of(argument.parts[0])
        if self._inside is not None:
            self._inside.note(labels, node.at)
            return Label()
        return Navigation(labels, True, 0, 0, self._running, Label())

    def _offset(self, node: CallNode, default: int) -> int:
        if len(node.arguments) not in (1, 2):
            raise node.at.reject(f"{node.name} takes an expression and an offset")
        if len(node.arguments) == 1:
            return default
        argument = node.arguments[1]
        value = None
        if isinstance(argument, LiteralNode | ParameterNode):
            bound = super().bind(argument)
            value = bound.value if isinstance(bound, Constant) and bound.type.is_integer else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            hint = {"PREV": "NEXT(x, 1) looks ahead", "NEXT": "PREV(x, 1) looks back"}.get(node.name, "write a number")
            raise argument.at.reject(f"the offset of {node.name} must be a whole number of at least 0", hint)
        if value > self.limits.offset:
            raise argument.at.reject(f"the offset of {node.name} may be at most {self.limits.offset}")
        return value

    def _navigation(self, node: CallNode) -> Expression:
        if self._inside is not None:
            hint = (
                "PREV(LAST(x)) is possible, with nothing in between"
                if self._inside.function in ("PREV", "NEXT")
                else "make it a column of a sub-query, with LAG"
            )
            raise node.at.reject(f"{node.name} is not possible inside {self._inside.function}", hint)
        physical = node.name in ("PREV", "NEXT")
        offset = self._offset(node, 1 if physical else 0)
        inner = node.arguments[0]
        if physical and isinstance(inner, CallNode) and inner.name in ("FIRST", "LAST") and not inner.is_operator:
            found = self.call(inner)
            assert isinstance(found, Navigation)
            delta = offset if node.name == "NEXT" else -offset
            return Navigation(found.labels, found.last, found.offset, delta, found.running, found.argument)
        labels, argument = self._inner(node.name, inner)
        if not any(isinstance(part, Column | Label) for part in walk(argument)):
            raise node.at.reject(f"the argument of {node.name} names no column")
        running = self._running if not node.mode else node.mode == "RUNNING"
        if physical:
            delta = offset if node.name == "NEXT" else -offset
            return Navigation(labels, True, 0, delta, running, argument)
        return Navigation(labels, node.name == "LAST", offset, 0, running, argument)

    def _inner(self, function: str, node: Node) -> tuple[Labels, Expression]:
        inside = self._inside = _Inside(function)
        try:
            argument = self.bind(node)
        finally:
            self._inside = None
        return (inside.labels[0] if inside.labels else None), argument

    def _indicator(self, node: CallNode) -> Expression:
        """An indicator over all rows of its partition so far; a pattern variable selects the row of the match it is
        read at.
        """
        outer = self._inside
        inside = self._inside = outer or _Inside(node.name)
        try:
            function = bind_indicator(self, node)
        finally:
            self._inside = outer
        if function not in self._computed:
            self._computed.append(function)
        column = Column(len(self.fields) + self._computed.index(function), function.type)
        if outer is not None:
            return column
        return Navigation(inside.labels[0] if inside.labels else None, True, 0, 0, self._running, column)

    def _aggregation(self, node: CallNode, function: str) -> Expression:
        if self._inside is not None:
            raise node.at.reject(f"the aggregate {written(node.name)} is not possible inside {self._inside.function}")
        running = self._running if not node.mode else node.mode == "RUNNING"
        if function == "COUNT" and (not node.arguments or isinstance(node.arguments[0], StarNode)):
            if len(node.arguments) > 1:
                raise node.at.reject("COUNT(*) takes nothing else")
            star = node.arguments[0] if node.arguments else None
            qualifier = star.qualifier if isinstance(star, StarNode) else None
            labels = self.labels_of(qualifier) if qualifier is not None else None
            return Aggregation("COUNT", labels, running, (), BIGINT)
        inside = self._inside = _Inside(node.name)
        try:
            arguments = [self.bind(argument) for argument in node.arguments]
        finally:
            self._inside = None
        try:
            wanted, kind = AGGREGATES[function].signature([argument.type for argument in arguments])
        except Mismatch:
            shown = ", ".join(str(argument.type) for argument in arguments)
            raise node.at.reject(
                f"{written(node.name)} has no form for ({shown})",
                form_of(function, [argument.type for argument in arguments]),
            ) from None
        converted = tuple(self.converted(a, target, node.at) for a, target in zip(arguments, wanted, strict=True))
        check_part(node, function, converted)
        return Aggregation(function, inside.labels[0] if inside.labels else None, running, converted, kind)
