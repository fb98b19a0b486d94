"""Finds MATCH_RECOGNIZE, and queries in the trigger language, in a Spark SQL text: what they read, and what they can
see of the query around them.

Only words, quotes and parentheses are read here: Spark parses the text around them, `candlewright_cep` what they are.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.spark.selects import Query, first_query, renamed, within
from candlewright_cep.spark.words import Word, closing, in_from, quoted, words_of

__all__ = ["Clause", "Statement"]

_KEYWORD = "MATCH_RECOGNIZE"
#: Words that are followed by a relation.
_BEFORE_RELATION = frozenset({"FROM", "JOIN", "LATERAL", ","})
#: Words that end a WHERE.
_AFTER_WHERE = frozenset(
    """
    GROUP HAVING ORDER LIMIT OFFSET WINDOW UNION INTERSECT EXCEPT MINUS QUALIFY SORT CLUSTER DISTRIBUTE LATERAL
    """.split()  # noqa: SIM905
)
#: Words after FROM that are not the name of a table.
_NO_TABLE = frozenset({"LATERAL", "VALUES", "DISTINCT"})
_SPLITTING = frozenset({"OR", "CASE", "SELECT", "EXISTS"})
_PLAIN_WORDS = frozenset({"AND", "BETWEEN", "IN", "LIKE", "NOT", "IS", "NULL", "DATE", "TIMESTAMP", "TRUE", "FALSE"})
_PLAIN_SYMBOLS = frozenset({"=", "<", ">", "<=", ">=", "<>", "!=", "(", ")", ",", "-", "."})


@dataclass(kw_only=True, frozen=True, slots=True)
class Clause:
    """One MATCH_RECOGNIZE. `relation`: the rows that it reads, as Spark SQL; `scopes`: the WITH definitions that it can
    see, outer ones first; `alias`: the name under which the clause may refer to the relation; `text`: the clause,
    which is at `line` and `column` of the whole text; `conditions`: the conjuncts of a WHERE that concern only this
    clause, each with the names in it; `start` and `end`: the span of relation and clause.
    """

    relation: str
    scopes: tuple[str, ...]
    alias: str
    text: str
    line: int
    column: int
    conditions: tuple[tuple[str, frozenset[str]], ...]
    start: int
    end: int

    def query(self) -> str:
        """The rows to be matched, as a separate query."""
        return within(self.scopes, self.relation)

    def for_matcher(self) -> str:
        """A text for `candlewright_cep` over the input `alias`, with the clause at its original position."""
        found = f"SELECT*FROM`{self.alias}`"
        if self.line > 1:
            return found + "\n" * (self.line - 1) + " " * (self.column - 1) + self.text
        return found.ljust(self.column - 1) + self.text

    def names(self) -> frozenset[str]:
        """All names in the clause, in lower case."""
        words = words_of(self.text)
        quoted = [word.text[1:-1] for word in words if word.kind == "string"]
        return frozenset(name.lower() for name in [*quoted, *(word.name for word in words)] if name is not None)


class Statement:
    """A text whose clauses are replaced one after another, while positions refer to the original text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._given = text
        self._places = list(range(len(text) + 1))

    def clause(self) -> Clause | None:
        """The first clause, which contains no other clause. Raises TriggerRejected for an unclosed parenthesis."""
        words = words_of(self.text)
        for place, word in enumerate(words):
            following = words[place + 1] if place + 1 < len(words) else None
            if word.upper == _KEYWORD and following is not None and following.text == "(":
                return self._clause(words, place)
        return None

    def query(self, views: Collection[str]) -> Query | None:
        """The first query in the trigger language that is in no other one. `views`: see `is_mark`."""
        words = words_of(self.text)
        defined = _defined(words)
        span = first_query(words, {name for name in views if name not in defined})
        if span is None:
            return None
        line, column = self._line_and_column(words[span.start].start)
        text, relations = renamed(self.text, words, span, where=self._line_and_column)
        return Query(
            text=text,
            relations=relations,
            scopes=tuple(_scopes(self.text, words, span.start)),
            line=line,
            column=column,
            start=words[span.start].start,
            end=words[span.stop - 1].end,
        )

    def replace(self, part: Clause | Query, name: str) -> None:
        """Read `name` in place of a part. What follows keeps its position if there is room, for Spark's errors."""
        put = name if isinstance(part, Clause) else f"SELECT * FROM {name}"
        first, *further = self.text[part.start : part.end].split("\n")
        put = put + "\n" * len(further) + " " * len(further[-1]) if further else put.ljust(len(first))
        self._put(part.start, part.end, put)

    def wrap(self) -> None:
        """Turn a text that is the clause alone into a query over `input`."""
        words = words_of(self.text)
        if words and words[0].upper == _KEYWORD:
            self._put(0, 0, "SELECT * FROM input ")

    def define(self, name: str, query: str) -> None:
        """Define `name` as `query` wherever the text does not give it another meaning."""
        words = words_of(self.text)
        begins = bool(words) and words[0].upper == "WITH"
        place = words[0].end if begins else 0
        definition = f"{quoted(name)} AS ({query})"
        self._put(place, place, f" {definition}," if begins else f"WITH {definition} ")

    def tables(self) -> dict[str, bool]:
        """The tables with one-word names that the text does not define, and whether a clause is over each of them."""
        words = words_of(self.text)
        defined = _defined(words)
        found: dict[str, bool] = {}
        for place, word in enumerate(words):
            following = words[place + 1 : place + 3]
            before = words[place - 1] if place else None
            is_table = before is not None and before.upper in ("FROM", "JOIN", ",") and word.name is not None
            if not is_table or word.upper in _NO_TABLE or (following and following[0].text in (".", "(")):
                continue
            name = word.name or ""
            assert before is not None
            if name.lower() in defined or (before.text == "," and not in_from(words, place)):
                continue
            found[name] = found.get(name, False) or _is_matched(words, place)
        return found

    def _put(self, start: int, end: int, text: str) -> None:
        self.text = self.text[:start] + text + self.text[end:]
        self._places[start:end] = [self._places[start]] * len(text)

    def _clause(self, words: Sequence[Word], place: int) -> Clause:
        word = words[place]
        line, column = self._line_and_column(word.start)
        close = closing(words, place + 1)
        if close is None:
            raise TriggerRejected("the parenthesis of MATCH_RECOGNIZE has no end", line, column)
        first = place
        while first > 0 and not _begins_relation(words[first - 1], word.depth):
            first -= 1
        if first == place:
            raise TriggerRejected("MATCH_RECOGNIZE needs a table before it", line, column)
        start, end = words[first].start, words[close].end
        return Clause(
            relation=self.text[start : word.start].rstrip(),
            scopes=tuple(_scopes(self.text, words, place)),
            alias=_alias(words[first:place]),
            text=self.text[word.start : end],
            line=line,
            column=column,
            conditions=tuple(_conditions(words, first, close)),
            start=start,
            end=end,
        )

    def _line_and_column(self, place: int) -> tuple[int, int]:
        before = self._given[: self._places[place]]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _defined(words: Sequence[Word]) -> set[str]:
    """The names that WITH defines anywhere in the text, in lower case."""
    found: set[str] = set()
    for place, word in enumerate(words):
        if word.name is None or place + 1 >= len(words):
            continue
        end = closing(words, place + 1) if words[place + 1].text == "(" else place
        if end is not None and [after.upper for after in words[end + 1 : end + 3]] == ["AS", "("]:
            found.add(word.name.lower())
    return found


def _is_matched(words: Sequence[Word], place: int) -> bool:
    """Whether the table, with at most an alias after it, is followed by MATCH_RECOGNIZE."""
    following = [word.upper for word in words[place + 1 : place + 4] if word.upper != "AS"]
    return _KEYWORD in following[:2]


def _begins_relation(word: Word, depth: int) -> bool:
    if word.depth < depth:
        return True  # the enclosing parenthesis
    return word.depth == depth and word.upper in _BEFORE_RELATION


def _alias(relation: Sequence[Word]) -> str:
    """The last name: an alias, or the table's own name."""
    name = relation[-1].name
    return "input" if name is None or "`" in name else name


# -- WITH -------------------------------------------------------------------------------------------------------------


def _scopes(text: str, words: Sequence[Word], place: int) -> Iterator[str]:
    """`WITH …` of each level around the word that ends before it."""
    levels = [0]
    for index in range(place):
        if words[index].text == "(":
            levels.append(index + 1)
        elif words[index].text == ")":
            levels.pop()
    for level in levels:
        scope = _scope(text, words, level, place)
        if scope:
            yield scope


def _scope(text: str, words: Sequence[Word], level: int, place: int) -> str:
    depth = words[level].depth
    begin = next((i for i in range(level, place) if _begins_definitions(words, i, depth)), None)
    if begin is None:
        return ""
    end, index = None, begin + 1
    while index < place:
        if words[index].upper != "AS" or words[index].depth != depth or words[index + 1].text != "(":
            index += 1
            continue
        close = closing(words, index + 1)
        if close is None or close > place:
            break
        end, index = close, close + 1
        if index >= place or words[index].text != ",":
            break
    return "" if end is None else text[words[begin].start : words[end].end]


def _begins_definitions(words: Sequence[Word], index: int, depth: int) -> bool:
    """A WITH that begins definitions, unlike that of GROUP BY ... WITH ROLLUP."""
    word = words[index]
    return word.upper == "WITH" and word.depth == depth and words[index + 1].upper not in ("ROLLUP", "CUBE")


# -- WHERE ------------------------------------------------------------------------------------------------------------


def _conditions(words: Sequence[Word], first: int, close: int) -> Iterator[tuple[str, frozenset[str]]]:
    """Conjuncts with only plain comparisons of the match's columns, if FROM has nothing else."""
    depth = words[close].depth
    if first == 0 or words[first - 1].upper != "FROM":
        return
    alias, index = "", close + 1
    if index < len(words) and words[index].upper == "AS":
        index += 1
    if index < len(words) and words[index].name is not None and words[index].upper != "WHERE":
        alias, index = (words[index].name or "").lower(), index + 1
    if index >= len(words) or words[index].upper != "WHERE" or words[index].depth != depth:
        return
    body: list[Word] = []
    for word in words[index + 1 :]:
        if word.depth < depth or (word.depth == depth and (word.upper in _AFTER_WHERE or word.text == ";")):
            break
        body.append(word)
    if any(word.upper in _SPLITTING for word in body):
        return
    for part in _conjuncts(body, depth):
        found = _plain(part, alias)
        if found is not None:
            yield found


def _conjuncts(body: Sequence[Word], depth: int) -> Iterator[list[Word]]:
    part: list[Word] = []
    is_between = False
    for word in body:
        if word.depth == depth and word.upper == "AND" and not is_between:
            yield part
            part = []
            continue
        if word.depth == depth and word.upper in ("AND", "BETWEEN"):
            is_between = word.upper == "BETWEEN"
        part.append(word)
    yield part


def _plain(part: Sequence[Word], alias: str) -> tuple[str, frozenset[str]] | None:
    """The condition without its table's name, and its columns; None if it contains anything else."""
    kept: list[str] = []
    names: set[str] = set()
    index = 0
    while index < len(part):
        word = part[index]
        name = word.name
        if word.kind == "name" and word.upper in _PLAIN_WORDS:
            kept.append(word.text)
        elif name is not None:
            if index + 1 < len(part) and part[index + 1].text == ".":
                if name.lower() != alias or index + 2 >= len(part) or part[index + 2].name is None:
                    return None
                index += 2
                word = part[index]
            if index + 1 < len(part) and part[index + 1].text in ("(", "."):
                return None
            names.add((word.name or "").lower())
            kept.append(word.text)
        elif word.kind in ("string", "number") or word.text in _PLAIN_SYMBOLS:
            kept.append(word.text)
        else:
            return None
        index += 1
    return (" ".join(kept), frozenset(names)) if names else None
