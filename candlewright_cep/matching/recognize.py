"""The plan of one checked MATCH_RECOGNIZE."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from candlewright_cep.binding.binder import Binder, Field, Parameters, closest
from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Column,
    Expression,
    Navigation,
    WindowFunction,
    walk,
)
from candlewright_cep.binding.pattern_binder import PatternBinder
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions.indicators.candles import candle_called, column_of
from candlewright_cep.functions.scalars.arrays import STRUCT_COMPARISONS
from candlewright_cep.limits import Limits
from candlewright_cep.matching.automaton import Automaton
from candlewright_cep.matching.conditions import Conditions, compile_conditions, named_rows
from candlewright_cep.matching.program import (
    Program,
    compile_pattern,
    has_end_anchor,
    has_exclusion,
    has_unbounded_loop,
    may_be_empty,
    variables_of,
)
from candlewright_cep.matching.search import SearchPlan, SkipRule
from candlewright_cep.syntax.pattern_parser import ALL_UNMATCHED, ONE_TIMEOUT
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import (
    Alternation,
    CallNode,
    Concatenation,
    Exclusion,
    NameNode,
    Pattern,
    Permutation,
    Quantified,
    RecognizeNode,
    SortItem,
    Variable,
)
from candlewright_cep.types import Kind, is_struct


@dataclass(frozen=True, slots=True)
class SortKey:
    expression: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    name: str
    expression: Expression


@dataclass(kw_only=True, frozen=True, slots=True)
class RecognizePlan:
    """`columns` are the input columns in the output: partition columns (ONE ROW), or all of them in output order, with
    the measures after the first `measures_at`. `computed` are columns that the pattern reads after those of its
    input: indicators over the rows of the partition.
    """

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    measures: tuple[MeasurePlan, ...]
    rows: str
    variables: tuple[str, ...]
    definitions: tuple[tuple[str, Expression], ...]
    conditions: Conditions
    search: SearchPlan
    time_column: int | None
    columns: tuple[int, ...]
    measures_at: int
    fields: tuple[Field, ...]
    warnings: tuple[str, ...]
    has_end_anchor: bool
    is_never_empty: bool
    at: Position
    computed: tuple[WindowFunction, ...] = ()

    @property
    def row_times(self) -> tuple[int, ...]:
        """The indexes of measures that are the first order column of its row: MATCH_ROWTIME(), LAST(ts)."""
        if not self.is_never_empty or not self.order or self.rows == ALL_UNMATCHED:
            return ()
        ends = (True,) if self.is_all_rows else (True, False)
        wanted = [Navigation(None, True, 0, 0, running, self.order[0].expression) for running in ends]
        return tuple(place for place, measure in enumerate(self.measures) if measure.expression in wanted)

    @property
    def is_all_rows(self) -> bool:
        return self.rows.startswith("ALL")

    @property
    def measures_lookahead(self) -> int:
        deltas = [part.delta for m in self.measures for part in walk(m.expression) if hasattr(part, "delta")]
        return max([0, *deltas])

    @property
    def measures_lookback(self) -> int:
        deltas = [-part.delta for m in self.measures for part in walk(m.expression) if hasattr(part, "delta")]
        return max([0, *deltas])


def columns_of(plan: RecognizePlan) -> frozenset[int]:
    """The input columns that conditions, measures and results read."""
    expressions: list[Expression] = [node for node in plan.conditions.local if node is not None]
    if plan.conditions.path is not None:
        expressions += plan.conditions.path.hoisted
    expressions += [measure.expression for measure in plan.measures]
    expressions += [key.expression for key in plan.order]
    found = {part.index for node in expressions for part in walk(node) if isinstance(part, Column)}
    found |= {*plan.partition, *plan.columns}
    if plan.time_column is not None:
        found.add(plan.time_column)
    return frozenset(found)


def bind_columns(nodes: Sequence[object], binder: Binder, what: str) -> tuple[int, ...]:
    found: list[int] = []
    for node in nodes:
        if not isinstance(node, NameNode):
            at = getattr(node, "at", Position(1, 1))
            raise at.reject(f"{what} takes columns", "compute the value in a subquery")
        bound = binder.name(node)
        assert isinstance(bound, Column)
        if bound.type.kind is Kind.OPAQUE:
            raise node.at.reject(f"{what} cannot use a column of type {bound.type}")
        found.append(bound.index)
    return tuple(found)


def bind_order(items: Sequence[SortItem], binder: Binder) -> tuple[SortKey, ...]:
    found: list[SortKey] = []
    for item in items:
        bound = binder.bind(item.expression)
        if bound.type.kind is Kind.OPAQUE:
            raise item.at.reject(f"ORDER BY cannot use a column of type {bound.type}")
        found.append(SortKey(bound, item.descending, item.nulls_first))
    return tuple(found)


def _too_complex(node: RecognizeNode, program: Program, definitions: dict[str, Expression]) -> TriggerRejected:
    """Report the first definition that cannot be compiled by itself."""
    at = node.at
    for definition in node.definitions:
        name = definition.variable.folded
        try:
            compile_conditions(program.variables, {name: definitions[name]}, program)
        except (SyntaxError, RecursionError, MemoryError):
            at = definition.condition.at
            break
    return at.reject("a definition is too complex", "compute parts of it in a subquery")


def bind_recognize(
    node: RecognizeNode, fields: Sequence[Field], parameters: Parameters, *, limits: Limits, alias: str
) -> RecognizePlan:
    """Raises TriggerRejected for anything that SQL or this engine does not allow."""
    rows = Binder(fields, parameters, limits)
    partition = bind_columns(node.partition_by, rows, "PARTITION BY")
    order = bind_order(node.order_by, rows)
    primary, variables = _variables(node, limits)
    _check_pattern(node)
    computed: list[WindowFunction] = []
    definitions = _definitions(node, fields, parameters, limits, primary, variables, computed)
    measures = _measures(node, fields, parameters, limits, variables, order, computed)
    within, gap, time_column = _within(node, rows, order)
    if (named := named_rows(definitions.values())) > limits.named_rows:
        raise node.at.reject(
            f"FIRST and LAST in DEFINE name {named} rows of a match; {limits.named_rows} are allowed",
            "use smaller offsets",
        )
    program = compile_pattern(node.pattern, primary, limits, at=node.at)
    try:
        conditions = compile_conditions(primary, definitions, program)
    except (SyntaxError, RecursionError, MemoryError):
        raise _too_complex(node, program, definitions) from None
    plan = SearchPlan(
        automaton=Automaton(program, limits, node.at),
        skip=_skip(node, primary, variables),
        initial=conditions.path.initial if conditions.path is not None else (),
        within_ns=within,
        gap_ns=gap,
        timeouts=node.rows == ONE_TIMEOUT,
        want_unmatched=node.rows == ALL_UNMATCHED,
        limits=limits,
    )
    columns, measures_at = _columns(node.rows, partition, order, len(fields))
    shown = [Field(fields[index].name, fields[index].type, alias) for index in columns]
    shown[measures_at:measures_at] = [Field(m.name, m.expression.type, alias) for m in measures]
    return RecognizePlan(
        partition=partition,
        order=order,
        measures=tuple(measures),
        rows=node.rows,
        variables=primary,
        definitions=tuple(definitions.items()),
        conditions=conditions,
        search=plan,
        time_column=time_column,
        columns=columns,
        measures_at=measures_at,
        fields=tuple(shown),
        warnings=(*_undefined(node, primary, fields), *_warnings(node, within, gap)),
        has_end_anchor=has_end_anchor(node.pattern),
        is_never_empty=not may_be_empty(node.pattern),
        at=node.at,
        computed=tuple(computed),
    )


def _columns(
    rows: str, partition: tuple[int, ...], order: tuple[SortKey, ...], count: int
) -> tuple[tuple[int, ...], int]:
    if not rows.startswith("ALL"):
        return partition, len(partition)
    keys = [key.expression.index for key in order if isinstance(key.expression, Column)]
    first = list(dict.fromkeys([*partition, *keys]))
    return (*first, *(index for index in range(count) if index not in first)), len(first)


def _variables(node: RecognizeNode, limits: Limits) -> tuple[tuple[str, ...], dict[str, frozenset[str]]]:
    mentioned: dict[str, Variable] = {}
    for variable in variables_of(node.pattern):
        mentioned.setdefault(variable.name, variable)
    primary = tuple(mentioned)
    if len(primary) > limits.variables:
        raise node.at.reject(f"the pattern has {len(primary)} variables; at most {limits.variables} are allowed")
    known = {name: frozenset([name]) for name in primary}
    for subset in node.subsets:
        name = subset.name.folded
        if name in known:
            raise subset.name.at.reject(f"the subset '{name[:60]}' has the name of another variable")
        for member in subset.members:
            if member.folded in known and member.folded not in mentioned:
                raise member.at.reject(f"'{member.text[:60]}' is a subset itself", "list its variables instead")
            if member.folded not in mentioned:
                raise member.at.reject(
                    f"unknown pattern variable '{member.text[:60]}'", closest(member.folded, primary)
                )
        known[name] = frozenset(member.folded for member in subset.members)
    return primary, known


def _check_pattern(node: RecognizeNode) -> None:
    if node.rows == ALL_UNMATCHED and has_exclusion(node.pattern):
        raise node.at.reject("{- -} is not possible together with WITH UNMATCHED ROWS")


def _definitions(
    node: RecognizeNode,
    fields: Sequence[Field],
    parameters: Parameters,
    limits: Limits,
    primary: tuple[str, ...],
    variables: dict[str, frozenset[str]],
    computed: list[WindowFunction],
) -> dict[str, Expression]:
    binder = PatternBinder(fields, parameters, limits, variables=variables, in_define=True, computed=computed)
    found: dict[str, Expression] = {}
    for definition in node.definitions:
        name = definition.variable.folded
        if name not in primary:
            hint = closest(name, primary) or "DEFINE names the variables of PATTERN"
            raise definition.variable.at.reject(
                f"'{definition.variable.text[:60]}' is not a variable of the pattern", hint
            )
        if name in found:
            raise definition.variable.at.reject(f"the variable '{name[:60]}' is defined twice")
        found[name] = binder.condition(definition.condition, f"the definition of {name[:60]}")
        if any(map(_uses_whole_struct, walk(found[name]))):
            raise definition.variable.at.reject(
                "in DEFINE, a STRUCT cannot be compared or gathered", "compare its fields, gather in MEASURES"
            )
    return found


def _uses_whole_struct(part: Expression) -> bool:
    """Whether it compares or gathers STRUCTs, which a search does not keep."""
    if not isinstance(part, Aggregation) and not (isinstance(part, Apply) and part.function in STRUCT_COMPARISONS):
        return False
    return any(is_struct(argument.type) for argument in part.arguments)


def _measures(
    node: RecognizeNode,
    fields: Sequence[Field],
    parameters: Parameters,
    limits: Limits,
    variables: dict[str, frozenset[str]],
    order: tuple[SortKey, ...],
    computed: list[WindowFunction],
) -> list[MeasurePlan]:
    time = order[0].expression if order and order[0].expression.type.is_time else None
    binder = PatternBinder(
        fields, parameters, limits, variables=variables, in_define=False, time=time, computed=computed
    )
    return [MeasurePlan(measure.name.text, binder.bind(measure.expression)) for measure in node.measures]


def _skip(node: RecognizeNode, primary: tuple[str, ...], variables: dict[str, frozenset[str]]) -> SkipRule:
    if node.skip_to is None:
        return SkipRule(node.skip)
    members = variables.get(node.skip_to.folded)
    if members is None:
        raise node.skip_to.at.reject(
            f"unknown pattern variable '{node.skip_to.text[:60]}'", closest(node.skip_to.folded, variables)
        )
    return SkipRule(node.skip, frozenset(primary.index(name) for name in members))


def _within(
    node: RecognizeNode, binder: Binder, order: tuple[SortKey, ...]
) -> tuple[int | None, int | None, int | None]:
    """The bounds from the first and from the previous row (ns), and the column of the times."""
    if not node.within:
        if node.rows == ONE_TIMEOUT:
            raise node.at.reject("WITH TIMEOUT ROWS needs WITHIN", "write PATTERN (...) WITHIN INTERVAL '10' SECOND")
        return None, None, None
    found: dict[bool, int] = {}
    for bound in node.within:
        assert isinstance(bound.interval, CallNode)
        is_negative = bound.interval.name == "NEGATE"
        duration = 0 if is_negative else binder.interval(bound.interval).value
        if duration <= 0:
            raise bound.at.reject("WITHIN needs an interval longer than zero")
        found[bound.from_previous] = duration
    key = order[0] if order else None
    if key is None or not isinstance(key.expression, Column) or not key.expression.type.is_time or key.descending:
        raise node.within[0].at.reject("WITHIN needs ORDER BY a time, ascending, as the first key")
    return found.get(False), found.get(True), key.expression.index


def _undefined(node: RecognizeNode, primary: Sequence[str], fields: Sequence[Field]) -> Iterator[str]:
    """Variables named after a candle pattern that DEFINE does not mention: SQL lets any row match them."""
    defined = {definition.variable.folded for definition in node.definitions}
    known = {field.name.lower() for field in fields}
    for name in primary:
        candle = candle_called(name)
        if candle is not None and name not in defined:
            column, value, also = column_of(candle), candle.signature.replace(", penetration", ""), ""
            if column in known:
                value = f"{name}.{column}"
            else:
                also = f" (the view candle_patterns has a column {column})"
            yield f"{name} is not in DEFINE, so any row matches it{also}: did you mean DEFINE {name} AS {value} <> 0?"


def _warnings(node: RecognizeNode, within: int | None, gap: int | None) -> tuple[str, ...]:
    if within is not None or not has_unbounded_loop(node.pattern):
        return ()
    defined = {definition.variable.folded for definition in node.definitions}
    free = _free_loop(node.pattern, defined)
    if free is None:
        return ()
    missing = "there is no WITHIN" if gap is None else "WITHIN counts only from the previous row"
    return (f"the loop over {free} accepts every row and {missing}: the state of a stream grows up to the row limit",)


def _free_loop(pattern: Pattern, defined: set[str]) -> str | None:
    """A variable without a condition inside an unbounded loop."""
    if isinstance(pattern, Quantified):
        if pattern.upper is None:
            for variable in variables_of(pattern.inner):
                if variable.name not in defined:
                    return variable.name
        return _free_loop(pattern.inner, defined)
    parts: tuple[Pattern, ...] = ()
    if isinstance(pattern, Concatenation | Permutation):
        parts = pattern.parts
    elif isinstance(pattern, Alternation):
        parts = pattern.branches
    elif isinstance(pattern, Exclusion):
        parts = (pattern.inner,)
    return next((name for part in parts if (name := _free_loop(part, defined)) is not None), None)
