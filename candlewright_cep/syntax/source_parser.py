"""Parses what follows FROM: tables, subqueries, joins, window tables, VALUES, UNNEST, BARS BY, MATCH_RECOGNIZE."""

from dataclasses import replace

from candlewright_cep.syntax.pattern_parser import PatternReader
from candlewright_cep.syntax.tokens import Position, TokenKind
from candlewright_cep.syntax.tree import (
    BarsNode,
    Identifier,
    JoinNode,
    MatchNode,
    Node,
    QueryNode,
    SourceNode,
    SubqueryNode,
    TableNode,
    UnnestNode,
    ValuesNode,
    WindowTableNode,
)

_NOT_ALIASES = (("PARTITION", "BY"), ("BARS", "BY"), ("EMIT", "CHANGES"))
_BARS = ("VOLUME", "TRADES", "VALUE")
_WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


class SourceReader(PatternReader):
    def query(self) -> QueryNode:
        raise self.token.reject("a subquery is not possible here")

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
