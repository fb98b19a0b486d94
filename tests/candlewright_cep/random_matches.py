"""Random row patterns, conditions and measures: each as SQL and in the slow matcher's form."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.candlewright_cep.reference import Condition, Rows, View

VARIABLES = ("A", "B", "C")
SUBSET = {"A", "B"}

Measure = tuple[str, Callable[[View], Any], Any]
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, "=": operator.eq, "<>": operator.ne}


@dataclass(kw_only=True, frozen=True)
class Case:
    rows: Rows
    pattern_sql: str
    pattern: Any
    defines: list[tuple[str, str, Condition]]
    skip_sql: str
    skip: tuple[str, set[str]]
    mode_sql: str
    mode: str
    measures: list[Measure]
    within: int | None = None
    gap: int | None = None

    @property
    def table(self) -> pa.Table:
        return pa.table(
            {
                "id": pa.array([row["id"] for row in self.rows], pa.int64()),
                "k": pa.array([row["k"] for row in self.rows], pa.string()),
                "v": pa.array([row["v"] for row in self.rows], pa.int64()),
                "ts": pa.array([row["ts"] for row in self.rows], pa.int64()).cast(pa.timestamp("ms")),
            }
        )

    @property
    def sql(self) -> str:
        measures = ", ".join(f"{text} AS m{index}" for index, (text, _, _) in enumerate(self.measures))
        columns = "".join(f", m{index}" for index in range(len(self.measures)))
        first = "id" if self.mode != "one" else "start_id AS id"
        # With ONE ROW the input row is not visible: the first mapped row stands for it; empty matches have none.
        if self.mode == "one":
            measures = "FIRST(id) AS start_id, " + measures
        defines = ", ".join(f"{name} AS {text}" for name, text, _ in self.defines)
        bounds = (
            [] if self.within is None else [f"INTERVAL '{self.within}' SECOND{' FROM FIRST ROW' * (self.within % 2)}"]
        )
        bounds += [] if self.gap is None else [f"INTERVAL '{self.gap}' SECOND FROM PREVIOUS ROW"]
        within = f" WITHIN {', '.join(bounds)}" if bounds else ""
        subset = " SUBSET U = (A, B)" if {"A", "B"} <= set(_names(self.pattern)) else ""
        return (
            f"SELECT {first}{columns} FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES {measures} {self.mode_sql} "
            f"{self.skip_sql} PATTERN ({self.pattern_sql}){within}{subset}"
            + (f" DEFINE {defines}" if defines else "")
            + ") AS m"
        )


def _names(pattern: Any) -> list[str]:
    if pattern[0] == "var":
        return [pattern[1]]
    if pattern[0] in ("seq", "alt", "permute"):
        return [name for part in pattern[1] for name in _names(part)]
    if pattern[0] in ("repeat", "exclude"):
        return _names(pattern[1])
    return []


def _has(pattern: Any, kind: str) -> bool:
    if pattern[0] == kind:
        return True
    if pattern[0] in ("seq", "alt", "permute"):
        return any(_has(part, kind) for part in pattern[1])
    return pattern[0] in ("repeat", "exclude") and _has(pattern[1], kind)


# -- patterns -------------------------------------------------------------------------------------------------------

_QUANTIFIERS = [("*", 0, None), ("+", 1, None), ("?", 0, 1), ("{2}", 2, 2), ("{2,}", 2, None), ("{1,2}", 1, 2),
                ("{,2}", 0, 2), ("{0,3}", 0, 3)]  # fmt: skip


def _repeated(inner: tuple[str, Any], quantifier: tuple[str, int, int | None], *, greedy: bool) -> tuple[str, Any]:
    text, tree = inner
    mark, least, most = quantifier
    return f"({text}){mark}{'' if greedy else '?'}", ("repeat", tree, least, most, greedy)


def patterns() -> st.SearchStrategy[tuple[str, Any]]:
    variables = st.sampled_from(VARIABLES).map(lambda name: (name, ("var", name)))
    special = st.sampled_from([("()", ("empty",)), ("^", ("start",)), ("$", ("end",))])
    leaves = st.one_of(variables, variables, variables, variables, variables, special)

    def bigger(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            several.map(lambda parts: (" ".join(f"({t})" for t, _ in parts), ("seq", [tree for _, tree in parts]))),
            several.map(
                lambda parts: ("(" + " | ".join(t for t, _ in parts) + ")", ("alt", [tree for _, tree in parts]))
            ),
            st.builds(_repeated, inner, st.sampled_from(_QUANTIFIERS), greedy=st.booleans()),
            st.builds(_repeated, inner, st.sampled_from(_QUANTIFIERS), greedy=st.booleans()),
            several.map(lambda p: ("PERMUTE(" + ", ".join(t for t, _ in p) + ")", ("permute", [x for _, x in p]))),
            inner.map(lambda part: (f"{{- {part[0]} -}}", ("exclude", part[1]))),
        )

    return st.recursive(leaves, bigger, max_leaves=5).filter(lambda found: bool(_names(found[1])))


# -- conditions -----------------------------------------------------------------------------------------------------


def _compare(left: Any, symbol: str, right: Any) -> bool | None:
    return None if left is None or right is None else bool(_COMPARE[symbol](left, right))


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: bool | None, right: bool | None) -> bool | None:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


Value = tuple[str, Callable[[View], Any]]


def _sum_of(values: set[int]) -> int | None:
    return sum(values) if values else None


def _sum(view: View, labels: set[str] | None, *, final: bool = False) -> Any:
    values = view.values("v", labels, final=final)
    return sum(values) if values else None


def _average(view: View, labels: set[str] | None, *, final: bool = False) -> Any:
    values = view.values("v", labels, final=final)
    return sum(values) / len(values) if values else None


def _values(labels: dict[str, set[str]]) -> st.SearchStrategy[Value]:
    """Integer values of conditions; `labels` are the usable variables."""

    def navigated(name: str, k: int, move: int, *, last: bool) -> Value:
        function = "LAST" if last else "FIRST"
        text = f"{function}({name}.v, {k})"
        if move:
            text = f"PREV({text}, {-move})" if move < 0 else f"NEXT({text}, {move})"

        def value(view: View) -> Any:
            return (view.last if last else view.first)("v", labels[name], k, move=move)

        return text, value

    def over_all(k: int, move: int, *, last: bool) -> Value:
        text = f"{'LAST' if last else 'FIRST'}(v, {k})"
        if move:
            text = f"PREV({text}, {-move})" if move < 0 else f"NEXT({text}, {move})"
        return text, lambda view: (view.last if last else view.first)("v", None, k, move=move)

    names = st.sampled_from(sorted(labels))
    fixed: list[Value] = [
        ("v", lambda view: view.last("v")),
        ("PREV(v)", lambda view: view.last("v", move=-1)),
        ("NEXT(v)", lambda view: view.last("v", move=1)),
        ("PREV(v, 2)", lambda view: view.last("v", move=-2)),
        ("PREV(v, 0)", lambda view: view.last("v")),
        ("COUNT(*)", lambda view: len(view.of(None))),
        ("SUM(v)", lambda view: _sum(view, None)),
        ("MIN(v)", lambda view: min(view.values("v"), default=None)),
        ("MATCH_NUMBER()", lambda view: view.number),
    ]
    by_name: list[Callable[[str], Value]] = [
        lambda name: (f"{name}.v", lambda view: view.last("v", labels[name])),
        lambda name: (f"COUNT({name}.*)", lambda view: len(view.of(labels[name]))),
        lambda name: (f"COUNT({name}.v)", lambda view: len(view.values("v", labels[name]))),
        lambda name: (f"SUM({name}.v)", lambda view: _sum(view, labels[name])),
        lambda name: (f"MAX({name}.v)", lambda view: max(view.values("v", labels[name]), default=None)),
        lambda name: (f"PREV({name}.v)", lambda view: view.last("v", labels[name], move=-1)),
        lambda name: (f"COUNT(DISTINCT {name}.v)", lambda view: len(set(view.values("v", labels[name])))),
        lambda name: (f"SUM(DISTINCT {name}.v)", lambda view: _sum_of(set(view.values("v", labels[name])))),
        lambda name: (f"CARDINALITY(ARRAY_AGG({name}.v))", lambda view: len(view.of(labels[name])) or None),
        lambda name: (f"ARRAY_AGG({name}.id)[-2]", lambda view: view.last("id", labels[name], 1)),
    ]
    return st.one_of(
        st.sampled_from(fixed),
        st.integers(-1, 4).map(lambda number: (str(number), lambda _view: number)),
        st.builds(lambda make, name: make(name), st.sampled_from(by_name), names),
        st.builds(navigated, names, st.integers(0, 2), st.integers(-2, 2), last=st.booleans()),
        st.builds(over_all, st.integers(0, 2), st.integers(-1, 1), last=st.booleans()),
    )


def _conditions(labels: dict[str, set[str]]) -> st.SearchStrategy[tuple[str, Condition]]:
    values = _values(labels)

    def compared(left: Value, symbol: str, right: Value) -> tuple[str, Condition]:
        return f"{left[0]} {symbol} {right[0]}", lambda view: _compare(left[1](view), symbol, right[1](view))

    def classified(name: str, wanted: str, back: int) -> tuple[str, Condition]:
        if back:
            return f"PREV(CLASSIFIER(), {back}) = '{wanted}'", lambda view: _compare(
                view.label_of((view.current or 0) - back), "=", wanted
            )
        return f"CLASSIFIER({name}) = '{wanted}'", lambda view: _compare(view.classifier(labels[name]), "=", wanted)

    simple = st.one_of(
        st.sampled_from(["a", "b", "c"]).map(
            lambda letter: (f"k = '{letter}'", lambda view: _compare(view.last("k"), "=", letter))
        ),
        st.builds(compared, values, st.sampled_from(sorted(_COMPARE)), values),
        st.builds(compared, values, st.sampled_from(sorted(_COMPARE)), values),
        values.map(lambda value: (f"{value[0]} IS NULL", lambda view: value[1](view) is None)),
        st.builds(classified, st.sampled_from(sorted(labels)), st.sampled_from(VARIABLES), st.integers(0, 1)),
    )

    def joined(left: tuple[str, Condition], word: str, right: tuple[str, Condition]) -> tuple[str, Condition]:
        join = _and if word == "AND" else _or
        return f"({left[0]} {word} {right[0]})", lambda view: join(left[1](view), right[1](view))

    def negated(part: tuple[str, Condition]) -> tuple[str, Condition]:
        def value(view: View) -> bool | None:
            found = part[1](view)
            return None if found is None else not found

        return f"NOT ({part[0]})", value

    return st.one_of(
        simple, simple, simple, simple.map(negated), st.builds(joined, simple, st.sampled_from(["AND", "OR"]), simple)
    )


# -- measures -------------------------------------------------------------------------------------------------------


def _measures(labels: dict[str, set[str]]) -> st.SearchStrategy[Measure]:
    """(SQL, function, value over no row)."""

    def navigation(name: str, k: int, move: int, *, final: bool, last: bool) -> Measure:
        text = f"{'FINAL' if final else 'RUNNING'} {'LAST' if last else 'FIRST'}({name}.v, {k})"
        if move:
            text = f"PREV({text}, {-move})" if move < 0 else f"NEXT({text}, {move})"
        return (
            text,
            lambda view: (view.last if last else view.first)("v", labels[name], k, move=move, final=final),
            None,
        )

    def aggregate(variable: str | None, function: str, *, final: bool) -> Measure:
        chosen = labels[variable] if variable else None
        mode = "FINAL " if final else ""
        dot = f"{variable}." if variable else ""
        compute: dict[str, Callable[[View], Any]] = {
            "SUM": lambda view: _sum(view, chosen, final=final),
            "AVG": lambda view: _average(view, chosen, final=final),
            "MAX": lambda view: max(view.values("v", chosen, final=final), default=None),
            "COUNT": lambda view: len(view.values("v", chosen, final=final)),
            "COUNT DISTINCT": lambda view: len(set(view.values("v", chosen, final=final))),
            "SUM DISTINCT": lambda view: _sum_of(set(view.values("v", chosen, final=final))),
        }
        name, _, distinct = function.partition(" ")
        return f"{mode}{name}({distinct} {dot}v)", compute[function], 0 if name == "COUNT" else None

    names = st.sampled_from(sorted(labels))
    fixed: list[Measure] = [
        ("MATCH_NUMBER()", lambda view: view.number, "number"),
        ("CLASSIFIER()", lambda view: view.classifier(), None),
        ("COUNT(*)", lambda view: len(view.of(None)), 0),
        ("FINAL COUNT(*) - COUNT(*)", lambda view: len(view.of(None, final=True)) - len(view.of(None)), 0),
        ("v", lambda view: view.last("v"), None),
        ("PREV(v)", lambda view: view.last("v", move=-1), None),
        ("NEXT(v, 2)", lambda view: view.last("v", move=2), None),
        ("FINAL LAST(v)", lambda view: view.last("v", final=True), None),
        ("FIRST(v, 1)", lambda view: view.first("v", None, 1), None),
        ("FIRST(CLASSIFIER())", lambda view: view.label_of(view.of(None)[0]), None),
        ("COUNT(CLASSIFIER())", lambda view: len(view.of(None)), 0),
    ]
    return st.one_of(
        st.sampled_from(fixed),
        names.map(lambda name: (f"CLASSIFIER({name})", lambda view: view.classifier(labels[name]), None)),
        names.map(lambda name: (f"COUNT({name}.*)", lambda view: len(view.of(labels[name])), 0)),
        st.builds(navigation, names, st.integers(0, 2), st.integers(-1, 1), final=st.booleans(), last=st.booleans()),
        st.builds(
            aggregate,
            st.one_of(st.none(), names),
            st.sampled_from(["SUM", "AVG", "MAX", "COUNT", "COUNT DISTINCT", "SUM DISTINCT"]),
            final=st.booleans(),
        ),
    )


@st.composite
def cases(draw: st.DrawFn, *, within: bool = False, timeouts: bool = False, untimed: bool = False) -> Case:
    """`untimed`: the last rows may have no time."""
    pattern_sql, pattern = draw(patterns())
    names = sorted(set(_names(pattern)))
    labels = {name: {name} for name in names}
    if set(names) >= SUBSET:
        labels["U"] = SUBSET
    rows = [
        {"id": index, "k": draw(st.sampled_from("abc")), "v": draw(st.one_of(st.none(), st.integers(0, 4))), "ts": 0}
        for index in range(draw(st.integers(0, 7)))
    ]
    clock = 0
    for row in rows:
        row["ts"] = clock
        clock += draw(st.integers(0, 3)) * 1000
    for row in rows[len(rows) - draw(st.integers(0, min(3, len(rows)))) if untimed else len(rows) :]:
        row["ts"] = None
    defined = draw(st.lists(st.sampled_from(names), unique=True))
    defines = [(name, *draw(_conditions(labels))) for name in defined]
    skips: list[tuple[str, tuple[str, set[str]]]] = [
        ("AFTER MATCH SKIP PAST LAST ROW", ("past", set())),
        ("AFTER MATCH SKIP TO NEXT ROW", ("next", set())),
    ]
    for name in labels:
        skips.append((f"AFTER MATCH SKIP TO FIRST {name}", ("first", labels[name])))
        skips.append((f"AFTER MATCH SKIP TO {name}", ("last", labels[name])))
    skip_sql, skip = draw(st.sampled_from([*skips[:2], *skips]))
    modes = [
        ("ONE ROW PER MATCH", "one"),
        ("ALL ROWS PER MATCH", "show"),
        ("ALL ROWS PER MATCH OMIT EMPTY MATCHES", "omit"),
    ]
    if not _has(pattern, "exclude"):
        modes.append(("ALL ROWS PER MATCH WITH UNMATCHED ROWS", "unmatched"))
    mode_sql, mode = draw(st.sampled_from(modes))
    if timeouts:
        mode_sql, mode = "ONE ROW PER MATCH WITH TIMEOUT ROWS", "one"
    measures = draw(st.lists(_measures(labels), min_size=1, max_size=3))
    limit = gap = None
    if within:
        limit, gap = draw(
            st.one_of(
                st.tuples(st.integers(1, 6), st.none()),
                st.tuples(st.none(), st.integers(1, 3)),
                st.tuples(st.integers(1, 6), st.integers(1, 3)),
            )
        )
    return Case(
        rows=rows,
        pattern_sql=pattern_sql,
        pattern=pattern,
        defines=defines,
        skip_sql=skip_sql,
        skip=skip,
        mode_sql=mode_sql,
        mode=mode,
        measures=measures,
        within=limit,
        gap=gap,
    )
