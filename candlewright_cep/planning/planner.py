"""Turns the syntax of a query into a plan."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from candlewright_cep.binding.binder import Binder, Field, Parameters, closest, lookup, not_single
from candlewright_cep.binding.dialects import INPUTS
from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression, rewrite
from candlewright_cep.binding.recovery import is_noted
from candlewright_cep.limits import Limits
from candlewright_cep.matching.recognize import SortKey
from candlewright_cep.planning.candle_views import CANDLE_VIEWS, KEYS, candle_view
from candlewright_cep.planning.changes import changes
from candlewright_cep.planning.closings import BARS, CLOSE_TIME, closings, looks_ahead, with_close_time
from candlewright_cep.planning.group_windows import WindowedBinder, group_window, windowed
from candlewright_cep.planning.hops import grouped
from candlewright_cep.planning.joins import filtered_early, join, values, with_keys_of
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.plans import (
    Distinct,
    Filter,
    Limited,
    Match,
    Narrowed,
    Plan,
    Project,
    Renamed,
    Scan,
    Sort,
    Union,
)
from candlewright_cep.planning.select_binder import (
    LATER,
    GroupBinder,
    SelectBinder,
    has_aggregate,
    has_window,
    with_results,
)
from candlewright_cep.planning.sources import bars_by, matched, renamed, unnested, window_table
from candlewright_cep.planning.views import Views
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.syntax.tree import (
    BarsNode,
    CallNode,
    Identifier,
    JoinNode,
    LiteralNode,
    MatchNode,
    NameNode,
    Node,
    QueryNode,
    SelectItem,
    SelectNode,
    SortItem,
    SourceNode,
    StarNode,
    SubqueryNode,
    TableNode,
    UnionNode,
    UnnestNode,
    ValuesNode,
    ViewNode,
    WindowNode,
    WindowTableNode,
    has_join,
)
from candlewright_cep.types import Kind, common

_BEFORE = (
    "make it a column of a sub-query, as in SELECT * FROM "
    "(SELECT *, LAG({x}) OVER (PARTITION BY ticker ORDER BY {time}) AS before FROM {table}) WHERE {x} > before"
)
#: A column, the event time and the name of trades, and of bars.
_EXAMPLES = ("price", "ts", "ticks"), ("close", "open_time", "ohlc")


class Planner:
    """`inputs` are the tables that a text may read; `parameters` the values of its :names; `any_name` the input that
    every unknown table name refers to, if there is one; `views` the texts of registered views; `candles` the columns of
    CANDLE_PATTERNS to compute (default: all).
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[Field]],
        parameters: Parameters,
        limits: Limits,
        *,
        any_name: str = "",
        views: Mapping[str, str] | None = None,
        candles: Collection[str] | None = None,
    ) -> None:
        self.any_name = any_name.lower()
        self.registered = Views(views or {}, limits, self._built_in)
        self._candles = candles
        self.inputs = {name.lower(): (name, tuple(fields)) for name, fields in inputs.items()}
        self.parameters = parameters
        self.limits = limits
        self.views: list[dict[str, Plan]] = [{}]
        # How many sources each WITH query reads, and the total so far: WITH queries can double them repeatedly.
        self._sizes: dict[int, int] = {}
        self._sources = 0
        self.matches: list[Match] = []
        #: Warnings for the author of the text.
        self.warnings: list[str] = []
        # In joins, bars have a column for the time of their end.
        self._joins = False

    def condition(self, node: Node, table: str) -> Plan:
        """A bare condition over one input: the rows for which it is true."""
        if table.lower() not in self.inputs:
            raise node.at.reject(
                f"a bare condition applies to {table[:60]}, which is not an input",
                "write SELECT * FROM one of " + ", ".join(name for name, _ in self.inputs.values()) + " WHERE ...",
            )
        name, fields = self.inputs[table.lower()]
        scan = Scan(name, tuple(replace(field, qualifier=name) for field in fields))
        binder = SelectBinder(scan.fields, self.parameters, self.limits, windows={})
        condition = binder.condition(node, "a trigger")
        if not binder.uses:
            return Filter(scan, condition)
        plan, places = _with_windows(scan, len(scan.fields), binder, self.limits)
        return Narrowed(Filter(plan, rewrite(condition, lambda part: _placed(part, places))), len(scan.fields))

    # -- queries --------------------------------------------------------------------------------------------------

    def statement(self, node: QueryNode) -> Plan:
        """The plan of a complete text."""
        self._joins = has_join(node)
        return self.query(node)

    def view(self, node: ViewNode) -> Plan:
        """The plan of a text that defines a view."""
        self._joins = has_join(node.query)
        return renamed(self.query(node.query), "", node.columns)

    def query(self, node: QueryNode) -> Plan:
        self.views.append(dict(self.views[-1]))
        try:
            for name, columns, inner in node.tables:
                if len(self.views[-1]) > 200:
                    raise name.at.reject("too many WITH queries")
                self.views[-1][name.text.lower()] = self._view(inner, name.text, columns)
            return self._limited(self._ordered(node), node)
        finally:
            self.views.pop()

    def _view(self, node: QueryNode, name: str, columns: tuple[Identifier, ...]) -> Plan:
        """The plan of a query that others read by name; its sources count wherever it is read."""
        before = self._sources
        view = renamed(self.query(node), name, columns)
        self._sizes[id(view)] = self._sources - before
        self._sources = before
        return view

    def _built_in(self, name: str) -> str | None:
        """The text of a built-in view; None if there is none of this name, or one table answers to every name."""
        if name not in CANDLE_VIEWS or self.any_name:
            return None
        _, fields = self.inputs.get(BARS, ("", ()))
        known = {field.name.lower() for field in fields}
        return candle_view(name, [key for key in KEYS if key in known or not known], self._candles)

    def _registered(self, node: ViewNode, name: str) -> Plan:
        """The plan of a registered view, which cannot see the names of the text that reads it."""
        outer, self.views, parameters = self.views, [{}], self.parameters
        joins, self._joins = self._joins, self._joins or has_join(node.query)
        self.parameters = {}
        try:
            return self._view(node.query, name, node.columns)
        finally:
            self.views, self.parameters, self._joins = outer, parameters, joins

    def _ordered(self, node: QueryNode) -> Plan:
        if isinstance(node.body, SelectNode):
            return self._select(node.body, node.order_by)
        plan = self._union(node.body) if isinstance(node.body, UnionNode) else self.query(node.body)
        if not node.order_by:
            return plan
        binder = Binder(plan.fields, self.parameters, self.limits)
        keys = [
            SortKey(self._ordinal(item, plan.fields) or binder.bind(item.expression), item.descending, item.nulls_first)
            for item in node.order_by
        ]
        return Sort(plan, tuple(keys), node.order_by[0].at)

    def _ordinal(self, item: SortItem, fields: Sequence[Field]) -> Column | None:
        node = item.expression
        if not isinstance(node, LiteralNode) or not node.type.is_integer:
            return None
        if not 1 <= node.value <= len(fields):
            raise node.at.reject(f"there is no column {node.value}")
        return Column(node.value - 1, fields[node.value - 1].type)

    def _limited(self, plan: Plan, node: QueryNode) -> Plan:
        limit = self._count(node.limit, "LIMIT")
        offset = self._count(node.offset, "OFFSET")
        if limit is None and not offset:
            return plan
        return Limited(plan, offset or 0, limit, (node.limit or node.offset or node).at)

    def _count(self, node: Node | None, what: str) -> int | None:
        if node is None:
            return None
        found = Binder((), self.parameters, self.limits).bind(node)
        if not isinstance(found, Constant) or not found.type.is_integer or found.value < 0:
            raise node.at.reject(f"{what} needs a whole number of at least 0")
        return int(found.value)

    def _union(self, node: UnionNode) -> Plan:
        plans = [_shown(self.query(branch)) for branch in node.branches]
        widths = {len(plan.fields) for plan in plans}
        if len(widths) > 1:
            raise node.at.reject("the branches of UNION have different numbers of columns")
        kinds = []
        for index in range(widths.pop()):
            kind = plans[0].fields[index].type
            for plan in plans[1:]:
                wider = common(kind, plan.fields[index].type)
                if wider is None:
                    raise node.at.reject(
                        f"column {index + 1} of UNION has the types {kind} and {plan.fields[index].type}"
                    )
                kind = wider
            kinds.append(kind)
        fields = tuple(Field(field.name, kind) for field, kind in zip(plans[0].fields, kinds, strict=True))
        branches: list[Plan] = []
        for plan in plans:
            columns = [Column(index, field.type) for index, field in enumerate(plan.fields)]
            parts = tuple(
                column if column.type == kind else Apply("CAST", (column,), kind)
                for column, kind in zip(columns, kinds, strict=True)
            )
            branches.append(Project(plan, parts, fields))
        found = Union(tuple(branches), node.at)
        return Distinct(found, node.at) if node.distinct else found

    # -- SELECT ---------------------------------------------------------------------------------------------------

    def _select(self, node: SelectNode, order_by: tuple[SortItem, ...]) -> Plan:
        source = self._source(node.source)
        self.warnings += _forgotten_commas(node, source)
        windows = {name.text.lower(): window for name, window in node.windows}
        if node.where is not None:
            x, time, table = _EXAMPLES[any(field.name == "close" for field in source.fields)]
            if has_aggregate(node.where):
                raise node.where.at.reject(
                    "an aggregate is not possible in WHERE",
                    f"HAVING filters groups; QUALIFY {x} > AVG({x}) OVER (...) compares with rows before",
                )
            binder = SelectBinder(source.fields, self.parameters, self.limits, windows={})
            binder.results = _results_in_where(node, source.fields)
            binder.behind = _behind(source)
            condition = binder.condition(node.where, "WHERE")
            if binder.uses:
                raise node.where.at.reject(
                    "a window function is not possible in WHERE", _BEFORE.format(x=x, time=time, table=table)
                )
            joined = with_keys_of(source, condition)
            if joined is not source:
                self.warnings += looks_ahead(joined)
            source = Filter(filtered_early(joined, condition), condition)
        grouped = (
            bool(node.group_by) or node.having is not None
            or any(has_aggregate(item.expression) for item in node.items)
            or (node.qualify is not None and has_aggregate(node.qualify))
        )  # fmt: skip
        if grouped:
            return self._grouped(node, source, windows, order_by)
        if node.emits_changes:
            raise node.at.reject("EMIT CHANGES is for GROUP BY and aggregates", "rows alone come once, as they are")
        binder = SelectBinder(source.fields, self.parameters, self.limits, windows=windows)
        binder.results = _results(node)
        binder.behind = _behind(source)
        return self._finish(node, source, binder, order_by)

    def _grouped(
        self, node: SelectNode, source: Plan, windows: Mapping[str, WindowNode], order_by: tuple[SortItem, ...]
    ) -> Plan:
        plain: Binder = Binder(source.fields, self.parameters, self.limits)
        window = group_window(node, plain)
        if node.emits_changes and (window is not None or node.sets or _has_window(source)):
            raise node.at.reject(
                "EMIT CHANGES is for GROUP BY without windows and sets", "a window is emitted once, when it has ended"
            )
        if window is not None and node.sets and window.node.name == "SESSION":
            raise window.node.at.reject(
                "grouping sets take windows that all keys share",
                "TUMBLE, HOP and CUMULATE; a session is one of its keys",
            )
        written = [
            None if window and part is window.node else self._group_key(part, node, plain) for part in node.group_by
        ]
        own: list[Expression] = []
        if window is not None:
            source = windowed(source, window, [key for key in written if key is not None])
            plain = WindowedBinder(source.fields, self.parameters, self.limits, window=window)
            own = [Column(len(source.fields) - 3 + index, source.fields[-1].type) for index in range(3)]
        keys = [*(key for key in dict.fromkeys(written) if key is not None), *own]
        plain.results = _results(node)
        binder = GroupBinder(plain, keys, windows, sets=_sets(node, written, own))
        binder.results = plain.results
        for item in node.items:
            if isinstance(item.expression, StarNode):
                raise item.expression.at.reject(
                    "* is not possible with GROUP BY, HAVING or aggregates", "name the columns; WHERE filters rows"
                )
        having = None
        if node.having is not None:
            # The results of window functions come after HAVING.
            named = {name: part for name, part in _named(node, source.fields).items() if not has_window(part)}
            having = binder.condition(with_results(node.having, named), "HAVING")
        return self._finish(node, source, binder, order_by, having)

    def _group_key(self, part: Node, node: SelectNode, binder: Binder) -> Expression:
        if isinstance(part, LiteralNode) and part.type.is_integer:
            if not 1 <= part.value <= len(node.items):
                raise part.at.reject(f"there is no column {part.value}")
            part = node.items[part.value - 1].expression
        if has_aggregate(part):
            raise part.at.reject("an aggregate is not possible in GROUP BY")
        if isinstance(part, NameNode) and len(part.parts) == 1 and lookup(binder.fields, part.parts[0], None) is None:
            aliased = [
                item for item in node.items if item.alias and item.alias.text.lower() == part.parts[0].text.lower()
            ]
            if aliased:
                part = aliased[0].expression
        found = binder.bind(part)
        if found.type.kind is Kind.OPAQUE:
            raise not_single(part.at, "GROUP BY", found.type)
        return found

    def _finish(
        self,
        node: SelectNode,
        source: Plan,
        binder: SelectBinder,
        order_by: tuple[SortItem, ...],
        having: Expression | None = None,
    ) -> Plan:
        expressions: list[Expression] = []
        fields: list[Field] = []
        for item in node.items:
            for name, expression in self._item(item, len(fields), binder):
                expressions.append(expression)
                fields.append(Field(name, expression.type))
            if len(fields) > self.limits.columns:
                raise item.expression.at.reject(f"the select list has more than {self.limits.columns} columns")
            if isinstance(item.expression, StarNode):
                for index in closings(binder.fields, item.expression):
                    expressions.append(Column(index, binder.fields[index].type))
                    fields.append(Field(CLOSE_TIME, binder.fields[index].type, hidden=True))
        keys = [self._sort_key(item, binder, expressions, fields) for item in order_by]
        qualify = self._qualify(node, binder)
        plan, base = source, len(source.fields)
        if isinstance(binder, GroupBinder):
            group_fields = tuple(Field("", part.type) for part in (*binder.keys, *binder.aggregates))
            if node.emits_changes:
                plan = changes(
                    source, binder.keys, binder.aggregates, fields=group_fields, limits=self.limits, at=node.at
                )
            else:
                plan = grouped(
                    source, binder.keys, binder.aggregates, fields=group_fields, at=node.at, sets=binder.sets
                )
            base = len(group_fields)
            if having is not None:
                plan = Filter(plan, having)
        plan, places = _with_windows(plan, base, binder, self.limits)

        def placed(expression: Expression) -> Expression:
            return rewrite(expression, lambda part: _placed(part, places))

        if qualify is not None:
            plan = Filter(plan, placed(qualify))
        width = len(expressions)
        extra = [placed(key.expression) for key in keys if not isinstance(key.expression, Constant)]
        shown = [placed(expression) for expression in expressions]
        for number, expression in enumerate(extra):
            if expression not in shown:
                shown.append(expression)
                fields.append(Field(f"_key{number}", expression.type, hidden=True))
        result: Plan = Project(plan, tuple(shown), tuple(fields))
        if node.distinct:
            if len(shown) > width:
                raise node.at.reject("ORDER BY of SELECT DISTINCT takes columns of the select list")
            result = Distinct(result, node.at)
        if extra:
            sort = [
                SortKey(
                    Column(shown.index(placed(key.expression)), key.expression.type), key.descending, key.nulls_first
                )
                for key in keys
                if not isinstance(key.expression, Constant)
            ]
            result = Sort(result, tuple(sort), order_by[0].at)
        return Narrowed(result, width) if len(shown) > width else result

    def _qualify(self, node: SelectNode, binder: SelectBinder) -> Expression | None:
        """The condition over window functions, which may use names of results in the select list."""
        if node.qualify is None:
            return None
        found = binder.condition(with_results(node.qualify, _named(node, binder.fields)), "QUALIFY")
        if not binder.uses:
            raise node.qualify.at.reject(
                "QUALIFY needs a window function", "filter rows with WHERE, groups with HAVING"
            )
        return found

    def _item(self, item: SelectItem, position: int, binder: SelectBinder) -> list[tuple[str, Expression]]:
        node = item.expression
        if isinstance(node, StarNode):
            qualifier = node.qualifier.text.lower() if node.qualifier is not None else None
            found: list[tuple[str, Expression]] = [
                (field.name, Column(index, field.type))
                for index, field in enumerate(binder.fields)
                if not field.hidden and (qualifier is None or field.qualifier.lower() == qualifier)
            ]
            if not found and node.qualifier is not None:
                known = {field.qualifier for field in binder.fields if field.qualifier}
                raise node.at.reject(f"unknown table '{node.qualifier.text[:60]}'", closest(node.qualifier.text, known))
            return found
        expression = binder.bind(node)
        if item.alias is not None:
            return [(item.alias.text, expression)]
        if isinstance(node, NameNode):
            return [(node.parts[-1].text, expression)]
        if isinstance(node, CallNode) and node.name == "." and isinstance(node.arguments[1], LiteralNode):
            return [(node.arguments[1].value, expression)]
        return [(f"_col{position}", expression)]

    def _sort_key(
        self,
        item: SortItem,
        binder: SelectBinder,
        expressions: Sequence[Expression],
        fields: Sequence[Field],
    ) -> SortKey:
        ordinal = self._ordinal(item, fields)
        found: Expression | None = None
        if ordinal is not None:
            found = expressions[ordinal.index]
        elif isinstance(item.expression, NameNode) and len(item.expression.parts) == 1:
            name = item.expression.parts[0].text.lower()
            same = [index for index, field in enumerate(fields) if field.name.lower() == name]
            if same:
                found = expressions[same[0]]
        if found is None:
            found = binder.bind(item.expression)
        if found.type.kind is Kind.OPAQUE:
            raise not_single(item.at, "ORDER BY", found.type)
        return SortKey(found, item.descending, item.nulls_first)

    # -- FROM -----------------------------------------------------------------------------------------------------

    def _source(self, node: SourceNode) -> Plan:
        match node:
            case TableNode():
                return self._table(node)
            case SubqueryNode():
                plan = self.query(node.query)
                return renamed(plan, node.alias.text if node.alias is not None else "", node.columns)
            case MatchNode():
                found = matched(node, self._source(node.source), self.parameters, limits=self.limits)
                self.matches.append(found)
                alias = node.alias.text if node.alias is not None else ""
                return renamed(found, alias, node.columns) if node.columns else found
            case WindowTableNode():
                return window_table(node, self._source(node.source), self.parameters, limits=self.limits)
            case UnnestNode():
                return unnested(node, self._source(node.source), self.parameters, limits=self.limits)
            case BarsNode():
                return bars_by(node, self._source(node.source), self.parameters, limits=self.limits)
            case ValuesNode():
                return values(node, self.parameters, self.limits)
            case JoinNode():
                plan = join(
                    node,
                    self._source(node.left),
                    self._source(node.right),
                    parameters=self.parameters,
                    limits=self.limits,
                )
                self.warnings += looks_ahead(plan)
                return plan

    def _table(self, node: TableNode) -> Plan:
        name = node.name.text.lower()
        alias = node.alias.text if node.alias is not None else node.name.text
        view = self.views[-1].get(name)
        is_registered = view is None and name not in self.inputs and name in self.registered
        if is_registered:
            view = self.registered.plan(name, node.at, lambda found: self._registered(found, name))
        self._sources += 1 if view is None else self._sizes[id(view)]
        if self._sources > self.limits.sources:
            raise node.at.reject(
                f"the query reads more than {self.limits.sources} tables, including those of its WITH queries"
            )
        if view is not None:
            registered = self.registered.name_of(name) if is_registered else ""
            return replace(renamed(view, alias, node.columns), is_view=True, registered=registered)
        if name not in self.inputs and self.any_name:
            name = self.any_name
        if name not in self.inputs:
            known = [*self.views[-1], *(original for original, _ in self.inputs.values()), *self.registered.known]
            meant = INPUTS.get(name, "")
            hint = closest(meant if meant in self.inputs else node.name.text, known)
            if not hint and BARS in self.inputs:
                hint = closest(node.name.text, difflib.get_close_matches(name, CANDLE_VIEWS, n=1, cutoff=0.8))
            hint = hint or "the tables are " + ", ".join(known)
            error = node.at.reject(f"unknown table '{node.name.text[:60]}'", hint)
            if not self.inputs or not is_noted(error):
                raise error
            near = [meant] if meant in self.inputs else difflib.get_close_matches(name, self.inputs, n=1, cutoff=0.6)
            name = near[0] if near else next(iter(self.inputs))
        original, fields = self.inputs[name]
        if self._joins and original.lower() == BARS:
            return renamed(with_close_time(Scan(original, fields), self.limits), alias, node.columns)
        return renamed(Scan(original, fields), alias, node.columns)


def _has_window(plan: Plan) -> bool:
    while isinstance(plan, Filter | Renamed):
        plan = plan.inner
    return isinstance(plan, WindowTable)


def _sets(node: SelectNode, keys: Sequence[Expression | None], own: Sequence[Expression]) -> tuple[frozenset[int], ...]:
    """The grouping sets, as indexes into the distinct keys; `own` are the columns of a window in GROUP BY, whose entry
    in `keys` is None. Empty if the only set has all keys.
    """
    if not node.sets:
        return ()
    places = {key: place for place, key in enumerate(key for key in dict.fromkeys(keys) if key is not None)}
    of_window = range(len(places), len(places) + len(own))
    found = []
    for chosen in node.sets:
        named = [keys[place] for place in chosen]
        if own and None not in named:
            raise node.group_by[0].at.reject(
                "every grouping set needs the window", "GROUP BY ROLLUP(ticker), TUMBLE(...)"
            )
        found.append(frozenset([*(places[key] for key in named if key is not None), *of_window]))
    return tuple(found)


def _forgotten_commas(node: SelectNode, source: Plan) -> Iterator[str]:
    """A warning for each column that another column's name renames without AS."""
    names = {field.name.lower() for field in source.fields}
    for item in node.items:
        if item.alias is None or item.has_as or not isinstance(item.expression, NameNode):
            continue
        written, alias = item.expression.parts[-1].text, item.alias.text
        if alias.lower() in names - {written.lower()}:
            yield f"{written} is renamed to {alias}: write {written}, {alias} for two columns, or {written} AS {alias}"


def _named(node: SelectNode, fields: Sequence[Field]) -> dict[str, Node]:
    """The results that have a name, unless the input has a column of that name."""
    of_input = {field.name.lower() for field in fields}
    named = {item.alias.text.lower(): item.expression for item in node.items if item.alias is not None}
    return {name: part for name, part in named.items() if name not in of_input}


def _results(node: SelectNode) -> dict[str, str]:
    """What to write for each name of a result where only columns of the input are known."""
    return {
        item.alias.text.lower(): "make it a column of a sub-query, or filter by QUALIFY"
        if has_window(item.expression)
        else "write its expression again"
        for item in node.items
        if item.alias is not None
    }


def _results_in_where(node: SelectNode, fields: Sequence[Field]) -> dict[str, str]:
    named = _named(node, fields)
    is_last = not (node.group_by or node.having or node.qualify)
    # A condition on the input as well has to remain before the windows.
    is_of_results = node.where is not None and set(_names(node.where)) <= named.keys()
    found = {}
    for name, part in named.items():
        if has_aggregate(part):
            found[name] = "HAVING filters groups"
        elif not has_window(part):
            found[name] = "write its expression again, or filter an outer SELECT"
        elif is_last and is_of_results:
            found[name] = "did you mean QUALIFY instead of WHERE?"
        else:
            found[name] = "filter by QUALIFY, or filter an outer SELECT"
    return found


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, NameNode):
        yield ".".join(part.text.lower() for part in node.parts)
    elif isinstance(node, CallNode):
        for part in node.arguments:
            yield from _names(part)


def _with_windows(plan: Plan, base: int, binder: SelectBinder, limits: Limits) -> tuple[Plan, dict[int, int]]:
    """The plan with the columns of its window functions, and the indexes of the columns to come."""
    places: dict[int, int] = {}
    if not binder.uses:
        return plan, places
    if binder.partition_fields:
        kept = [Column(index, plan.fields[index].type) for index in range(base)]
        names = tuple(Field("", part.type, hidden=True) for part in binder.partition_fields)
        plan = Project(plan, (*kept, *binder.partition_fields), (*plan.fields, *names))
        for number in range(len(binder.partition_fields)):
            places[2 * LATER + number] = base + number
        base += len(binder.partition_fields)
    for use in binder.uses:
        window = use.window
        partition = tuple(places.get(index, index) for index in window.partition)
        kinds = [function.type for function in use.functions]
        if window.recognize is not None:
            kinds += [window.recognize.measures[index].expression.type for index in use.measures]
        fields = (*plan.fields, *(Field("", kind, hidden=True) for kind in kinds))
        for number, place in enumerate([*use.function_places, *use.measure_places]):
            places[place] = base + number
        base += len(kinds)
        moved = type(window)(partition, window.order, window.frame, window.recognize, window.seek)
        plan = Over(
            inner=plan,
            window=moved,
            functions=tuple(use.functions),
            measures=tuple(use.measures),
            fields=fields,
            limits=limits,
            at=use.at,
        )
    return plan, places


def _placed(part: Expression, places: Mapping[int, int]) -> Expression | None:
    if isinstance(part, Column) and part.index >= LATER:
        return Column(places[part.index], part.type)
    return None


def _shown(plan: Plan) -> Plan:
    """The columns that are not hidden."""
    kept = [index for index, field in enumerate(plan.fields) if not field.hidden]
    if len(kept) == len(plan.fields):
        return plan
    fields = tuple(plan.fields[index] for index in kept)
    return Project(plan, tuple(Column(index, plan.fields[index].type) for index in kept), fields)


def _behind(plan: Plan) -> Sequence[Field]:
    """The columns under a row pattern that a query reads directly."""
    while isinstance(plan, Filter):
        plan = plan.inner
    return plan.inner.fields if isinstance(plan, Match) else ()
