"""Parses the body of MATCH_RECOGNIZE: clauses, row patterns, variables."""

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.syntax.expression_parser import ExpressionReader
from candlewright_cep.syntax.reader import RESERVED
from candlewright_cep.syntax.tokens import Position, TokenKind
from candlewright_cep.syntax.tree import (
    Alternation,
    Anchor,
    Concatenation,
    Definition,
    Empty,
    Exclusion,
    Identifier,
    Measure,
    Node,
    Pattern,
    Permutation,
    Quantified,
    RecognizeNode,
    SortItem,
    Subset,
    Variable,
    Within,
)

#: The hint for a second bound of the same kind.
TWO_BOUNDS = "write WITHIN INTERVAL '5' MINUTE, INTERVAL '10' SECOND FROM PREVIOUS ROW"
#: The hint for commas between variables.
NO_COMMAS = "separate the variables of a pattern with blanks, as in (A B)"
ONE, ALL_SHOW, ALL_OMIT, ALL_UNMATCHED, ONE_TIMEOUT = "ONE", "ALL SHOW", "ALL OMIT", "ALL UNMATCHED", "ONE TIMEOUT"


_AFTER_MEASURES = ("ONE", "ALL", "AFTER", "INITIAL", "SEEK", "PATTERN")
_CLAUSES = ("PARTITION", "ORDER", "MEASURES", "ONE", "ALL", "AFTER", "PATTERN", "WITHIN", "SUBSET", "DEFINE")
_ROWS = (("ONE", "ROW"), ("ALL", "ROWS"))
COUNTS = (TokenKind.NUMBER, TokenKind.PARAMETER)


class PatternReader(ExpressionReader):
    def recognize(self, at: Position) -> RecognizeNode:
        """Parses the parentheses of MATCH_RECOGNIZE and everything between them."""
        self.expect("(", after="MATCH_RECOGNIZE")
        partition_by: tuple[Node, ...] = ()
        order_by: tuple[SortItem, ...] = ()
        if self.accept_words("PARTITION"):
            self.expect_words("BY", after="PARTITION")
            partition_by = self._columns()
        if self.accept_words("ORDER"):
            self.expect_words("BY", after="ORDER")
            order_by = self.sort_items()
        measures = self.measures() if self.accept_words("MEASURES") else ()
        rows = self._rows_per_match()
        found = self.pattern_clauses(at, measures, rows, partition_by=partition_by, order_by=order_by, in_window=False)
        if any(map(self.is_word, _CLAUSES)):
            raise self._misplaced("')' after the clauses of MATCH_RECOGNIZE")
        self.expect(")", after="the clauses of MATCH_RECOGNIZE")
        return found

    def pattern_clauses(
        self,
        at: Position,
        measures: tuple[Measure, ...],
        rows: str,
        *,
        partition_by: tuple[Node, ...],
        order_by: tuple[SortItem, ...],
        in_window: bool = True,
    ) -> RecognizeNode:
        """Parses AFTER MATCH, PATTERN, SUBSET and DEFINE: the same in MATCH_RECOGNIZE and in a window, except for
        SEEK.
        """
        skip, skip_to = self._after_match()
        if not in_window and (self.is_word("SEEK") or self.is_word("INITIAL")):
            raise self.token.reject(
                f"{self.token.text.upper()} is possible only in a window", "leave it out: MATCH_RECOGNIZE always seeks"
            )
        seek = self.accept_words("SEEK")
        if not seek:
            self.accept_words("INITIAL")
        if not self.is_word("PATTERN"):
            raise self._misplaced("PATTERN")
        self.advance()
        self.expect("(", after="PATTERN")
        pattern = self._alternation()
        self._close("the pattern")
        within = self._within() if self.accept_words("WITHIN") else ()
        subsets = self._subsets() if self.accept_words("SUBSET") else ()
        definitions = self._definitions() if self.accept_words("DEFINE") else ()
        return RecognizeNode(
            partition_by=partition_by,
            order_by=order_by,
            measures=measures,
            rows=rows,
            skip=skip,
            skip_to=skip_to,
            pattern=pattern,
            within=within,
            subsets=subsets,
            definitions=definitions,
            at=at,
            seek=seek,
        )

    def _misplaced(self, wanted: str) -> Exception:
        clauses = "PARTITION BY, ORDER BY, MEASURES, ROWS PER MATCH, AFTER MATCH, PATTERN, WITHIN, SUBSET, DEFINE"
        cut = any(self.is_word(first, second) and not self.is_word("PER", ahead=2) for first, second in _ROWS)
        hint = "" if cut else self.spelling() or f"the order of clauses is {clauses}"
        return self.token.reject(f"expected {wanted}, found {self.token.shown}", hint)

    def _columns(self) -> tuple[Node, ...]:
        found = [self._primary()]
        while self.accept(","):
            found.append(self._primary())
        return tuple(found)

    def measures(self) -> tuple[Measure, ...]:
        found = [self._measure()]
        while self.accept(","):
            found.append(self._measure())
        return tuple(found)

    def _measure(self) -> Measure:
        begin = self.index
        expression = self.expression()
        if not self.accept_words("AS"):
            raise self._unnamed(begin)
        return Measure(self.identifier("the name of the measure"), expression)

    def _unnamed(self, begin: int) -> TriggerRejected:
        written = self.tokens[begin : self.index]
        text = self.text[written[0].start : self.token.start].strip()
        words = [token.text.lower() for token in written if token.kind is TokenKind.NAME]
        ends = self.is_symbol(",", ahead=1) or any(self.is_word(word, ahead=1) for word in _AFTER_MEASURES)
        is_name = ends and self.is_identifier()
        name = self.token.text if is_name else "_".join(words[:2]) or "value"
        hint = "" if is_name else self.spelling("AS")
        hint = hint or f"write {text[:60]} AS {name[:40]}"
        return self.token.reject(f"expected AS after a measure, found {self.token.shown}", hint)

    def _rows_per_match(self) -> str:
        if self.accept_words("ONE", "ROW", "PER", "MATCH"):
            if self.accept_words("WITH"):
                self.expect_words("TIMEOUT", "ROWS", after="WITH")
                return ONE_TIMEOUT
            return ONE
        if not self.accept_words("ALL", "ROWS", "PER", "MATCH"):
            return ONE
        if self.accept_words("SHOW"):
            self.expect_words("EMPTY", "MATCHES", after="SHOW")
        elif self.accept_words("OMIT"):
            self.expect_words("EMPTY", "MATCHES", after="OMIT")
            return ALL_OMIT
        elif self.accept_words("WITH"):
            self.expect_words("UNMATCHED", "ROWS", after="WITH")
            return ALL_UNMATCHED
        return ALL_SHOW

    def _after_match(self) -> tuple[str, Identifier | None]:
        if not self.accept_words("AFTER"):
            return "PAST LAST", None
        self.expect_words("MATCH", "SKIP", after="AFTER")
        if self.accept_words("PAST"):
            self.expect_words("LAST", "ROW", after="PAST")
            return "PAST LAST", None
        self.expect_words("TO", after="SKIP")
        if self.accept_words("NEXT", "ROW"):
            return "NEXT", None
        for word in ("FIRST", "LAST"):
            # FIRST and LAST may also be names of variables: SKIP TO first.
            if self.is_word(word) and self._is_variable(1):
                self.advance()
                return word, self.identifier("a pattern variable")
        return "LAST", self.identifier("a pattern variable")

    def _is_variable(self, ahead: int) -> bool:
        clause = any(self.is_word(word, ahead=ahead) for word in ("PATTERN", "INITIAL", "SEEK"))
        return self.is_identifier(ahead) and not (clause and self.is_symbol("(", ahead=ahead + 1))

    def _within(self) -> tuple[Within, ...]:
        found = [self._bound("WITHIN")]
        while self.accept(","):
            bound = self._bound("the comma")
            if any(other.from_previous == bound.from_previous for other in found):
                row = "previous" if bound.from_previous else "first"
                raise bound.at.reject(f"WITHIN has two bounds from the {row} row", TWO_BOUNDS)
            found.append(bound)
        return tuple(found)

    def _bound(self, after: str) -> Within:
        at = self.token.at
        if not self.is_word("INTERVAL"):
            raise self.unexpected("INTERVAL", after)
        interval, from_previous = self.interval(), False
        if self.accept_words("FROM"):
            from_previous = self.accept_words("PREVIOUS")
            if not from_previous and not self.accept_words("FIRST"):
                raise self.unexpected("FIRST ROW or PREVIOUS ROW", "FROM")
            self.expect_words("ROW", after="FROM PREVIOUS" if from_previous else "FROM FIRST")
        return Within(interval, from_previous, at)

    def _subsets(self) -> tuple[Subset, ...]:
        found = [self._subset()]
        while self.accept(","):
            found.append(self._subset())
        return tuple(found)

    def _subset(self) -> Subset:
        name = self.identifier("the name of the subset")
        self.expect("=", after="the name of the subset")
        return Subset(name, self.identifiers("a pattern variable"))

    def _definitions(self) -> tuple[Definition, ...]:
        found = [self._definition()]
        while self.accept(","):
            found.append(self._definition())
        return tuple(found)

    def _definition(self) -> Definition:
        variable = self.identifier("a pattern variable")
        if not self.is_word("AS"):
            hint = "write AS" if self.is_symbol("=") else f"write {variable.text[:60]} AS {self.token.text[:60]} ..."
            raise self.token.reject(f"expected AS after the variable, found {self.token.shown}", hint)
        self.advance()
        return Definition(variable, self.expression())

    # -- the row pattern ------------------------------------------------------------------------------------------

    def _alternation(self) -> Pattern:
        with self.nested():
            branches = [self._concatenation()]
            # `A||B` is read as two bars with an empty branch between them.
            while self.is_symbol("|") or self.is_symbol("||"):
                if self.advance().text == "||":
                    branches.append(Empty())
                branches.append(self._concatenation())
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _concatenation(self) -> Pattern:
        parts: list[Pattern] = []
        while not any(self.is_symbol(end) for end in (")", "|", "||", "-}", ",")):
            if self.token.kind is TokenKind.END:
                raise self.unexpected("')'", "the pattern")
            parts.append(self._quantified())
        if not parts:
            raise self.token.reject(f"expected a pattern, found {self.token.shown}", "write () for the empty pattern")
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _close(self, what: str) -> None:
        if self.is_symbol(","):
            raise self.token.reject(f"expected ')' after {what}, found ','", NO_COMMAS)
        self.expect(")", after=what)

    def _quantified(self) -> Pattern:
        inner = self._element()
        at = self.at
        bounds = self._bounds()
        if bounds is None:
            return inner
        lower, upper = bounds
        greedy = not self.accept("?")
        if any(self.is_symbol(symbol) for symbol in ("*", "+", "?", "{")):
            raise self.token.reject("two quantifiers follow each other", "put the quantified part in parentheses")
        return Quantified(inner, lower, upper, greedy, at)

    def _element(self) -> Pattern:
        at = self.at
        if self.accept("("):
            if self.accept(")"):
                return Empty()
            inner = self._alternation()
            self._close("the group")
            return inner
        if self.accept("{-"):
            inner = self._alternation()
            self.expect("-}", after="the excluded part")
            return Exclusion(inner, at)
        if self.accept("^"):
            return Anchor(True, at)
        if self.accept("$"):
            return Anchor(False, at)
        if self.is_word("PERMUTE") and self.is_symbol("(", ahead=1):
            return self._permutation(at)
        token = self.token
        if token.kind is TokenKind.NAME and token.text.upper() in RESERVED:
            raise self.unexpected("a pattern variable")
        return Variable(self.identifier("a pattern variable").folded, at)

    def _permutation(self, at: Position) -> Pattern:
        self.advance()
        self.expect("(")
        parts = [self._alternation()]
        while self.accept(","):
            parts.append(self._alternation())
        self.expect(")", after="the parts of PERMUTE")
        if len(parts) > self.limits.permuted:
            raise at.reject(f"PERMUTE of {len(parts)} parts; {self.limits.permuted} are allowed")
        return Permutation(tuple(parts), at)

    def _bounds(self) -> tuple[int, int | None] | None:
        at = self.at
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.accept(symbol):
                return bounds
        if not self.accept("{"):
            return None
        lower = self._count() if self.token.kind in COUNTS else None
        if self.accept("}"):
            if lower is None:
                raise at.reject("the quantifier {} has no number")
            if lower == 0:
                raise at.reject("the upper bound of a quantifier must be at least 1", "leave the variable out")
            return lower, lower
        self.expect(",", after="the lower bound")
        upper = self._count() if self.token.kind in COUNTS else None
        self.expect("}", after="the upper bound")
        if upper == 0:
            raise at.reject("the upper bound of a quantifier must be at least 1", "leave the variable out")
        if upper is not None and lower is not None and lower > upper:
            raise at.reject(
                f"the quantifier {{{lower},{upper}}} has its bounds the wrong way round", f"write {{{upper},{lower}}}"
            )
        return lower or 0, upper

    def _count(self) -> int:
        token = self.advance()
        text = token.text
        if token.kind is TokenKind.PARAMETER:
            if text not in self.parameters:
                raise token.reject(f"no value for the parameter :{text}")
            text = self.parameters[text]
        if not (text.isascii() and text.isdigit()):
            raise token.reject(f"expected a whole number, found '{text[:40]}'")
        if len(text) > 9 or int(text) > self.limits.repetitions:
            raise token.reject(f"a quantifier allows at most {self.limits.repetitions} repetitions")
        return int(text)
