"""Parses queries (WITH, SELECT, FROM, joins, window tables, UNION); also has the entry points `parse` and
`parse_view`.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits
from candlewright_cep.syntax.pattern_parser import COUNTS, PatternReader
from candlewright_cep.syntax.tokens import Position, TokenKind
from candlewright_cep.syntax.tree import (
    BarsNode,
    Identifier,
    JoinNode,
    LiteralNode,
    MatchNode,
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
)

#: The hint for a closing parenthesis too many.
UNOPENED = "no parenthesis is open here"
_NOT_ALIASES = (("PARTITION", "BY"), ("BARS", "BY"), ("EMIT", "CHANGES"))
#: The most grouping sets that GROUP BY may have.
_MOST_SETS = 64
_BARS = ("VOLUME", "TRADES", "VALUE")
_WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_NOT_QUERIES = """
    SET ADD CREATE DROP ALTER INSERT UPDATE DELETE MERGE CALL SHOW DESCRIBE EXPLAIN USE GRANT REVOKE CACHE REFRESH LOAD
    TRUNCATE EXECUTE DECLARE BEGIN COPY MSCK ANALYZE VALUES TABLE FROM MAP REDUCE PREPARE COMMIT ROLLBACK
    """.split()  # noqa: SIM905


class QueryReader(PatternReader):
    def statement(self) -> QueryNode | Node:
        """Parses a complete text: a query, with the views that it creates for itself, or a bare condition."""
        views: list[ViewNode] = []
        while self._is_view():
            views.append(self.view())
            if self.token.kind is TokenKind.END:
                hint = "write a SELECT after it; `candlewright view add` registers a view for other texts"
                raise self.token.reject("a view alone is not a trigger", hint)
        if self.is_symbol("("):
            ahead = 0
            while self.is_symbol("(", ahead=ahead):
                ahead += 1
            is_query = self.is_word("SELECT", ahead=ahead) or self.is_word("WITH", ahead=ahead)
        else:
            is_query = self.is_word("SELECT") or self.is_word("WITH")
        first = self.token
        if not is_query and first.kind is TokenKind.NAME and first.text.upper() in _NOT_QUERIES:
            following = self.peek()
            if following.kind in (TokenKind.NAME, TokenKind.QUOTED, TokenKind.STRING, TokenKind.END):
                hint = "" if self.is_word("FROM") else "a trigger is a condition or a SELECT statement"
                raise first.reject(f"{first.text[:20].upper()} is not a trigger", hint)
        if views and not is_query:
            raise first.reject("a condition reads no view", "SELECT * FROM the view WHERE ...")
        if self.is_word("WHERE"):
            raise self.token.reject("a trigger does not begin with WHERE", "write the condition alone, or a SELECT")
        found = self.query() if is_query else self.expression()
        self.accept(";")
        self._end()
        if views and isinstance(found, QueryNode):
            created = ((view.name, view.columns, view.query) for view in views if view.name is not None)
            return replace(found, tables=(*created, *found.tables))
        return found

    def _top(self) -> TriggerRejected:
        token = self.token
        self.advance()
        self.accept("(")
        count = self.token.text[:20] if self.token.kind is TokenKind.NUMBER else "10"
        return token.reject("TOP is not supported", f"write SELECT ... ORDER BY price DESC LIMIT {count}")

    def _end(self) -> None:
        if self.token.kind in COUNTS and self.tokens[self.index - 1].text.upper() == "TOP":
            self.index -= 1
            raise self._top()
        if self.is_symbol(",") and self.tokens[max(0, self.index - 2)].text.upper() == "LIMIT":
            first, count = self.tokens[self.index - 1], self.peek()
            hint = f"write LIMIT {count.text[:20]} OFFSET {first.text[:20]}"
            raise self.token.reject("LIMIT takes one number", hint)
        if self.is_symbol(",") and self.tokens[self.index - 1].kind is TokenKind.NUMBER:
            raise self.token.reject("',' is not expected here", "write numbers without separators, as 70000.5")
        if self.token.kind is not TokenKind.END:
            raise self.token.reject(f"{self.token.shown} is not expected here", self._way_out())

    def _is_view(self) -> bool:
        return self.is_word("CREATE", "VIEW") or self.is_word("CREATE", "OR", "REPLACE", "VIEW")

    def view(self) -> ViewNode:
        """Parses CREATE VIEW name AS query, up to its semicolon."""
        at = self.at
        self.expect_words("CREATE")
        self.accept_words("OR", "REPLACE")
        self.expect_words("VIEW")
        name = self.identifier("the name of the view")
        columns = self.identifiers("a column name") if self.is_symbol("(") else ()
        self.expect_words("AS", after="the name of the view")
        query = self.query()
        if not self.accept(";"):
            self._end()
        return ViewNode(name, columns, query, at)

    def view_text(self) -> ViewNode:
        """Parses a text that defines one view: CREATE VIEW, or only the query, which names no view."""
        if self._is_view():
            found = self.view()
        else:
            found = ViewNode(None, (), self.query(), self.at)
            self.accept(";")
        self._end()
        return found

    def _way_out(self) -> str:
        token = self.token
        if token.kind is TokenKind.SYMBOL:
            return {"=>": "write >=", ";": "a trigger is one statement", ")": UNOPENED}.get(token.text, "")
        if self.tokens[self.index - 1].text == ";":
            return "a trigger is one statement"
        return self.spelling()

    def query(self) -> QueryNode:
        with self.nested():
            at = self.at
            tables: list[tuple[Identifier, tuple[Identifier, ...], QueryNode]] = []
            if self.accept_words("WITH"):
                if self.is_word("RECURSIVE"):
                    raise self.token.reject("WITH RECURSIVE is not supported")
                tables.append(self._common_table())
                while self.accept(","):
                    tables.append(self._common_table())
            body = self._union()
            order_by: tuple[SortItem, ...] = ()
            if self.accept_words("ORDER"):
                self.expect_words("BY", after="ORDER")
                order_by = self.sort_items()
            offset = limit = None
            if self.accept_words("OFFSET"):
                offset = self._primary()
                _ = self.accept_words("ROWS") or self.accept_words("ROW")
            if self.accept_words("LIMIT"):
                limit = None if self.accept_words("ALL") else self._primary()
                if offset is None and self.accept_words("OFFSET"):
                    offset = self._primary()
            elif self.accept_words("FETCH"):
                _ = self.accept_words("FIRST") or self.accept_words("NEXT")
                limit = self._primary()
                _ = self.accept_words("ROWS") or self.accept_words("ROW")
                self.expect_words("ONLY", after="FETCH")
            return QueryNode(body, tuple(tables), order_by, limit, offset, at)

    def _common_table(self) -> tuple[Identifier, tuple[Identifier, ...], QueryNode]:
        name = self.identifier("the name of a WITH query")
        columns = self.identifiers("a column name") if self.is_symbol("(") else ()
        self.expect_words("AS", after="the name of the WITH query")
        self.expect("(")
        query = self.query()
        self.expect(")", after="the WITH query")
        return name, columns, query

    def _union(self) -> SelectNode | UnionNode | QueryNode:
        left = self._query_term()
        while self.is_word("UNION"):
            at = self.advance().at
            distinct = not self.accept_words("ALL")
            if distinct:
                self.accept_words("DISTINCT")
            right = self._query_term()
            left = UnionNode((_query(left), _query(right)), distinct, at)
        for word in ("INTERSECT", "EXCEPT"):
            if self.is_word(word):
                raise self.token.reject(f"{word} is not supported")
        return left

    def _query_term(self) -> SelectNode | UnionNode | QueryNode:
        if self.accept("("):
            inner = self.query()
            self.expect(")", after="the query")
            return inner
        return self._select()

    def _select(self) -> SelectNode:
        at = self.at
        self.expect_words("SELECT")
        distinct = self.accept_words("DISTINCT")
        if not distinct:
            self.accept_words("ALL")
        if self.is_word("TOP") and (
            self.peek().kind in COUNTS or (self.is_symbol("(", ahead=1) and self.peek(2).kind in COUNTS)
        ):
            raise self._top()
        if self.is_word("TRANSFORM") and self.is_symbol("(", ahead=1):
            raise self.token.reject("TRANSFORM is not supported")
        items = [self._select_item()]
        while self.accept(","):
            items.append(self._select_item())
        is_over = self.token.kind is TokenKind.END or self.is_symbol(")")
        if is_over and all(isinstance(item.expression, LiteralNode) for item in items):
            raise self.token.reject(
                "constants alone are not a table", "write each where it is needed, or as a parameter :name"
            )
        if not self.accept_words("FROM"):
            raise self.unexpected("FROM", "the select list")
        source = self._from()
        where = self.expression() if self.accept_words("WHERE") else None
        group_by: tuple[Node, ...] = ()
        sets: tuple[tuple[int, ...], ...] = ()
        if self.accept_words("GROUP"):
            self.expect_words("BY", after="GROUP")
            group_by, sets = self._group_by()
        having = self.expression() if self.accept_words("HAVING") else None
        qualify = self.expression() if self.accept_words("QUALIFY") else None
        windows: list[tuple[Identifier, WindowNode]] = []
        if self.accept_words("WINDOW"):
            windows.append(self._named_window())
            while self.accept(","):
                windows.append(self._named_window())
        if qualify is None and self.accept_words("QUALIFY"):
            qualify = self.expression()
        emits = self.accept_words("EMIT", "CHANGES")
        return SelectNode(
            items=tuple(items),
            source=source,
            where=where,
            group_by=group_by,
            having=having,
            windows=tuple(windows),
            distinct=distinct,
            at=at,
            qualify=qualify,
            sets=sets,
            emits_changes=emits,
        )

    def _expressions(self) -> tuple[Node, ...]:
        found = [self.expression()]
        while self.accept(","):
            found.append(self.expression())
        return tuple(found)

    def _group_by(self) -> tuple[tuple[Node, ...], tuple[tuple[int, ...], ...]]:
        """The keys, and the grouping sets if there are several."""
        at = self.at
        keys: list[Node] = []
        found: list[tuple[int, ...]] = [()]
        while True:
            element = self._grouping_element(keys)
            if len(found) * len(element) > _MOST_SETS:
                raise at.reject(f"GROUP BY makes more than {_MOST_SETS} grouping sets")
            found = [(*one, *other) for one in found for other in element]
            if not self.accept(","):
                return tuple(keys), tuple(found) if len(found) > 1 or len(found[0]) < len(keys) else ()

    def _grouping_element(self, keys: list[Node]) -> list[tuple[int, ...]]:
        """The sets of one element of GROUP BY; its expressions are appended to `keys`."""
        at = self.at
        for word in ("ROLLUP", "CUBE"):
            if self.is_word(word) and self.is_symbol("(", ahead=1):
                self.index += 2
                parts = [self._grouping_set(keys)]
                while self.accept(","):
                    parts.append(self._grouping_set(keys))
                self.expect(")", after=f"the columns of {word}")
                if (2 ** len(parts) if word == "CUBE" else len(parts) + 1) > _MOST_SETS:
                    raise at.reject(f"{word} makes more than {_MOST_SETS} grouping sets")
                chosen = (
                    [parts[:count] for count in range(len(parts), -1, -1)]
                    if word == "ROLLUP"
                    else [list(part) for count in range(len(parts), -1, -1) for part in combinations(parts, count)]
                )
                return [tuple(key for part in own for key in part) for own in chosen]
        if self.accept_words("GROUPING", "SETS"):
            self.expect("(", after="GROUPING SETS")
            found: list[tuple[int, ...]] = []
            while True:
                with self.nested():
                    found += self._grouping_element(keys) if not self.is_symbol("(") else [self._grouping_set(keys)]
                if len(found) > _MOST_SETS:
                    raise at.reject(f"GROUPING SETS has more than {_MOST_SETS} sets")
                if not self.accept(","):
                    break
            self.expect(")", after="the grouping sets")
            return found
        keys.append(self.expression())
        return [(len(keys) - 1,)]

    def _grouping_set(self, keys: list[Node]) -> tuple[int, ...]:
        """Parses `a`, `(a, b)` or `()`."""
        first = len(keys)
        if not self.is_symbol("("):
            keys.append(self.expression())
        elif self.is_symbol(")", ahead=1):
            self.index += 2
        else:
            begin = self.index
            self.index += 1
            keys += self._expressions()
            if not self.accept(")") or not (self.is_symbol(",") or self.is_symbol(")")):
                # The parenthesis is part of an expression.
                del keys[first:]
                self.index = begin
                keys.append(self.expression())
        return tuple(range(first, len(keys)))

    def _select_item(self) -> SelectItem:
        at = self.at
        if self.accept("*"):
            return SelectItem(StarNode(None, at), None)
        if self.is_identifier() and self.is_symbol(".", ahead=1) and self.is_symbol("*", ahead=2):
            qualifier = self.identifier("a table")
            self.index += 2
            return SelectItem(StarNode(qualifier, at), None)
        expression = self.expression()
        alias = None
        if self.accept_words("AS") or self.is_identifier():
            alias = self.identifier("the name of the column")
        return SelectItem(expression, alias)

    def _named_window(self) -> tuple[Identifier, WindowNode]:
        name = self.identifier("the name of the window")
        self.expect_words("AS", after="the name of the window")
        return name, self.window_specification()

    def window_specification(self) -> WindowNode:
        at = self.at
        self.expect("(")
        base = None
        clause = ("PARTITION", "ORDER", "MEASURES", "ROWS", "RANGE", "GROUPS", "AFTER", "PATTERN")
        if self.is_identifier() and not any(self.is_word(word) for word in clause):
            base = self.identifier("a window name")
        partition_by: tuple[Node, ...] = ()
        order_by: tuple[SortItem, ...] = ()
        if self.accept_words("PARTITION"):
            self.expect_words("BY", after="PARTITION")
            partition_by = self._expressions()
        if self.accept_words("ORDER"):
            self.expect_words("BY", after="ORDER")
            order_by = self.sort_items()
        measures = self.measures() if self.accept_words("MEASURES") else ()
        unit, exclude, lower, upper = "", "", None, None
        if any(self.is_word(word) for word in ("ROWS", "RANGE", "GROUPS")):
            unit = self.advance().text.upper()
            if self.accept_words("BETWEEN"):
                lower = self.frame_bound()
                self.expect_words("AND", after="the start of the frame")
                upper = self.frame_bound()
            else:
                lower = self.frame_bound()
            if self.accept_words("EXCLUDE"):
                exclude = self._exclusion()
        recognize = None
        if measures or any(self.is_word(word) for word in ("AFTER", "PATTERN", "INITIAL", "SEEK")):
            recognize = self.pattern_clauses(at, measures, "ONE", partition_by=(), order_by=())
        self.expect(")", after="the window")
        return WindowNode(
            base=base,
            partition_by=partition_by,
            order_by=order_by,
            unit=unit,
            lower=lower,
            upper=upper,
            recognize=recognize,
            at=at,
            exclude=exclude,
        )

    def _exclusion(self) -> str:
        if self.accept_words("NO", "OTHERS"):
            return ""
        for words in (("CURRENT", "ROW"), ("GROUP",), ("TIES",)):
            if self.accept_words(*words):
                return " ".join(words)
        raise self.unexpected("CURRENT ROW, GROUP, TIES or NO OTHERS", "EXCLUDE")

    # -- FROM -----------------------------------------------------------------------------------------------------

    def _from(self) -> SourceNode:
        left = self._joined()
        while self.is_symbol(","):
            at = self.advance().at
            if self.is_word("UNNEST") and self.is_symbol("(", ahead=1):
                left = self._unnest(left, at, is_outer=False)
            else:
                left = JoinNode(kind="CROSS", left=left, right=self._joined(), condition=None, using=(), at=at)
        return left

    def _joined(self) -> SourceNode:
        left = self._source()
        while True:
            at = self.at
            if self.is_word("NATURAL"):
                raise self.token.reject("NATURAL JOIN is not supported", "name the columns with USING")
            is_asof = self._is_asof() and self.accept_words("ASOF")
            kind = ""
            for word in ("LEFT", "RIGHT", "FULL", "INNER", "CROSS"):
                if self.accept_words(word):
                    kind = word
                    if word in ("LEFT", "RIGHT", "FULL"):
                        self.accept_words("OUTER")
            if not kind and not self.is_word("JOIN"):
                return left
            if is_asof and kind not in ("", "INNER", "LEFT"):
                raise at.reject(f"ASOF {kind} JOIN is not possible", "it keeps left rows: ASOF JOIN or ASOF LEFT JOIN")
            self.expect_words("JOIN", after=kind)
            kind = kind or "INNER"
            if self.is_word("LATERAL"):
                raise self.token.reject("LATERAL is not supported")
            if self.is_word("UNNEST") and self.is_symbol("(", ahead=1):
                if is_asof or kind not in ("CROSS", "LEFT"):
                    raise at.reject("UNNEST takes CROSS JOIN, or LEFT JOIN ... ON TRUE")
                left = self._unnest(left, at, is_outer=kind == "LEFT")
                continue
            right = self._source()
            condition: Node | None = None
            using: tuple[Identifier, ...] = ()
            if kind != "CROSS":
                if is_asof and self.is_word("USING"):
                    raise self.token.reject("ASOF JOIN takes ON", "ON a.ticker = b.ticker AND a.ts >= b.ts")
                if self.accept_words("USING"):
                    using = self.identifiers("a column")
                else:
                    self.expect_words("ON", after="the joined table")
                    condition = self.expression()
            left = JoinNode(kind=kind, left=left, right=right, condition=condition, using=using, at=at, is_asof=is_asof)

    def _unnest(self, left: SourceNode, at: Position, *, is_outer: bool) -> UnnestNode:
        self.index += 2
        array = self.expression()
        self.expect(")", after="the array of UNNEST")
        is_numbered = self.accept_words("WITH", "ORDINALITY")
        alias, columns = self._alias()
        if is_outer:
            self.expect_words("ON", "TRUE", after="LEFT JOIN UNNEST(...)")
        return UnnestNode(
            source=left, array=array, is_outer=is_outer, is_numbered=is_numbered, alias=alias, columns=columns, at=at
        )

    def _is_asof(self) -> bool:
        return any(self.is_word("ASOF", word) for word in ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS"))

    def _source(self) -> SourceNode:
        at = self.at
        found = self._source_primary()
        while True:
            if self.accept_words("MATCH_RECOGNIZE"):
                body = self.recognize(at)
                found = MatchNode(found, body, *self._alias(), at)
            elif self.is_word("BARS", "BY"):
                found = self._bars(found)
            else:
                return found

    def _bars(self, source: SourceNode) -> BarsNode:
        at = self.at
        self.index += 2
        measure = next((word for word in _BARS if self.accept_words(word)), None)
        if measure is None:
            raise self.token.reject(
                f"BARS BY takes {', '.join(_BARS)}, found {self.token.shown}", "write BARS BY VOLUME 100"
            )
        return BarsNode(source, measure, self._primary(), *self._alias(), at)

    def _source_primary(self) -> SourceNode:
        at = self.at
        if self.accept("("):
            if self.is_word("VALUES"):
                return self._values(at)
            if self._is_subquery():
                query = self.query()
                self.expect(")", after="the subquery")
                alias, columns = self._alias()
                return SubqueryNode(query, alias, columns, at)
            with self.nested():
                inner = self._from()
            self.expect(")", after="the joined tables")
            return inner
        if self.is_word("VALUES") and self.is_symbol("(", ahead=1):
            raise self.token.reject("VALUES as a table is in parentheses", "(VALUES (...), (...)) AS v(a, b)")
        if self.is_word("LATERAL"):
            raise self.token.reject("LATERAL is not supported")
        if self.is_word("UNNEST") and self.is_symbol("(", ahead=1):
            raise self.token.reject("UNNEST comes after a table", "FROM ticks CROSS JOIN UNNEST(...) AS u(x)")
        if self.is_word("TABLE") and self.is_symbol("(", ahead=1):
            self.index += 2
            found = self._window_table()
            self.expect(")", after="the window table")
            return self._aliased_window(found)
        if any(self.is_word(name) for name in _WINDOW_TABLES) and self.is_symbol("(", ahead=1):
            return self._aliased_window(self._window_table())
        name = self.identifier("a table")
        if self.is_symbol("("):
            raise name.at.reject(
                f"'{name.text[:40]}' is not a table function", "the table functions are " + ", ".join(_WINDOW_TABLES)
            )
        if self.is_symbol(".") or self.is_symbol("@"):
            raise self.token.reject("a table has no qualifier", "name the input itself, for example ticks")
        alias, columns = self._alias()
        return TableNode(name, alias, columns, at)

    def _values(self, at: Position) -> ValuesNode:
        self.expect_words("VALUES")
        rows = [self._values_row()]
        while self.accept(","):
            rows.append(self._values_row())
        self.expect(")", after="the rows of VALUES")
        alias, columns = self._alias()
        return ValuesNode(tuple(rows), alias, columns, at)

    def _values_row(self) -> tuple[Node, ...]:
        self.expect("(", after="VALUES")
        found = [self.expression()]
        while self.accept(","):
            found.append(self.expression())
        self.expect(")", after="the values of a row")
        return tuple(found)

    def _is_subquery(self) -> bool:
        """Distinguishes `(SELECT ...` and `((SELECT ...) UNION ...` from `((SELECT ...) AS a JOIN ...`."""
        ahead = 0
        while self.is_symbol("(", ahead=ahead):
            ahead += 1
        if not (self.is_word("SELECT", ahead=ahead) or self.is_word("WITH", ahead=ahead)):
            return False
        if ahead == 0:
            return True
        open_parentheses, ahead = 0, 0
        while self.peek(ahead).kind is not TokenKind.END:
            open_parentheses += self.is_symbol("(", ahead=ahead) - self.is_symbol(")", ahead=ahead)
            ahead += 1
            if open_parentheses == 0:
                break
        words = ("UNION", "ORDER", "LIMIT", "OFFSET", "FETCH", "INTERSECT", "EXCEPT")
        return self.is_symbol(")", ahead=ahead) or any(self.is_word(word, ahead=ahead) for word in words)

    def _alias(self) -> tuple[Identifier | None, tuple[Identifier, ...]]:
        if any(self.is_word(*words) for words in _NOT_ALIASES) or self._is_asof():
            return None, ()
        if not self.accept_words("AS") and not self.is_identifier():
            return None, ()
        alias = self.identifier("an alias")
        columns = self.identifiers("a column name") if self.is_symbol("(") else ()
        return alias, columns

    def _aliased_window(self, found: WindowTableNode) -> WindowTableNode:
        alias, columns = self._alias()
        return replace(found, alias=alias, columns=columns)

    def _window_table(self) -> WindowTableNode:
        token = self.advance()
        function = token.text.upper()
        if function not in _WINDOW_TABLES:
            raise token.reject(
                f"'{token.text[:40]}' is not a table function", "the table functions are " + ", ".join(_WINDOW_TABLES)
            )
        self.expect("(", after=function)
        self._argument_name("DATA")
        if self.accept_words("TABLE"):
            source_at = self.at
            source: SourceNode = TableNode(self.identifier("a table"), None, (), source_at)
        else:
            source = self._source()
        partition: tuple[Identifier, ...] = ()
        if self.accept_words("PARTITION"):
            self.expect_words("BY", after="PARTITION")
            if self.is_symbol("("):
                partition = self.identifiers("a column")
            else:
                partition = (self.identifier("a column"),)
        self.expect(",", after="the table")
        self._argument_name("TIMECOL")
        self.expect_words("DESCRIPTOR", after="the table")
        described = self.identifiers("the time column")
        if len(described) != 1:
            raise described[1].at.reject("DESCRIPTOR names one time column here")
        intervals: list[Node] = []
        zone: Node | None = None
        while self.accept(","):
            for name in ("SIZE", "SLIDE", "STEP", "GAP", "OFFSET"):
                self._argument_name(name)
            if self.token.kind in (TokenKind.STRING, TokenKind.PARAMETER) and intervals:
                zone = self._primary()
                break
            if not self.is_word("INTERVAL"):
                raise self.unexpected("INTERVAL", "','")
            intervals.append(self.interval())
        self.expect(")", after=f"the arguments of {function}")
        return WindowTableNode(
            function=function,
            source=source,
            time=described[0],
            partition=partition,
            intervals=tuple(intervals),
            alias=None,
            columns=(),
            at=token.at,
            zone=zone,
        )

    def _argument_name(self, name: str) -> None:
        if self.is_word(name) and self.is_symbol("=>", ahead=1):
            self.index += 2


def _query(found: SelectNode | UnionNode | QueryNode) -> QueryNode:
    return found if isinstance(found, QueryNode) else QueryNode(found, at=found.at)


def parse(text: str, limits: Limits, parameters: Mapping[str, str] | None = None) -> QueryNode | Node:
    """The tree of a trigger's text: a query, or the expression of a bare condition. Raises TriggerRejected."""
    reader = _reader(text, limits, parameters, "a trigger is a condition or a SELECT statement")
    try:
        return reader.statement()
    except RecursionError:
        raise reader.token.reject("the text is nested too deeply") from None


def parse_view(text: str, limits: Limits, parameters: Mapping[str, str] | None = None) -> ViewNode:
    """The tree of a view's text. Raises TriggerRejected."""
    reader = _reader(text, limits, parameters, "a view is CREATE VIEW name AS SELECT ...")
    try:
        return reader.view_text()
    except RecursionError:
        raise reader.token.reject("the text is nested too deeply") from None


def _reader(text: str, limits: Limits, parameters: Mapping[str, str] | None, form: str) -> QueryReader:
    reader = QueryReader(text, limits, parameters)
    if reader.token.kind is TokenKind.END:
        raise reader.token.reject("the text is empty", form)
    return reader
