"""Parses queries (WITH, SELECT, GROUP BY, UNION, ORDER BY); also has the entry points `parse` and `parse_view`."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits
from candlewright_cep.syntax.pattern_parser import COUNTS
from candlewright_cep.syntax.source_parser import SourceReader
from candlewright_cep.syntax.tokens import TokenKind
from candlewright_cep.syntax.tree import (
    Identifier,
    LiteralNode,
    Node,
    QueryNode,
    SelectItem,
    SelectNode,
    SortItem,
    StarNode,
    UnionNode,
    ViewNode,
    WindowNode,
)

#: The hint for a closing parenthesis too many.
UNOPENED = "no parenthesis is open here"
#: The most grouping sets that GROUP BY may have.
_MOST_SETS = 64
_NOT_QUERIES = """
    SET ADD CREATE DROP ALTER INSERT UPDATE DELETE MERGE CALL SHOW DESCRIBE EXPLAIN USE GRANT REVOKE CACHE REFRESH LOAD
    TRUNCATE EXECUTE DECLARE BEGIN COPY MSCK ANALYZE VALUES TABLE FROM MAP REDUCE PREPARE COMMIT ROLLBACK
    """.split()  # noqa: SIM905


class QueryReader(SourceReader):
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
        if (has_as := self.accept_words("AS")) or self.is_identifier():
            alias = self.identifier("the name of the column")
        return SelectItem(expression, alias, has_as)

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
