"""`explain`: how near a text came to firing over given rows, and what it waits for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import work
from candlewright_cep.binding.expressions import Expression
from candlewright_cep.engine import compile_query
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import DEFAULT, Limits
from candlewright_cep.matching.search import SkipFailed
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.plans import Filter, Group, Inputs, Match, Plan, Project
from candlewright_cep.planning.relation import Relation, arranged, from_table
from candlewright_cep.tracing.attempts import Attempt, Row, Tested, columns_of, trace
from candlewright_cep.tracing.conditions import described, distances
from candlewright_cep.tracing.values import Value, iso, plain
from candlewright_cep.tracing.wording import column_names, text_of
from candlewright_cep.types import Kind
from candlewright_cep.vector import Bools

#: Attempts per stage: the default, and the most that may be requested.
ATTEMPTS, MOST_ATTEMPTS = 3, 50
#: Fields of the answer that contain nanoseconds.
_TIMES = ("first", "last", "start", "deadline", "time")
#: Fields that contain values by column name, which are already plain.
_COLUMNS = ("key", "values")
#: Inputs of joins and branches may multiply the stages of a text.
_MOST_STAGES = 20


@dataclass(kw_only=True, frozen=True, slots=True)
class Stage:
    """One place where rows are rejected: `kind` WHERE, HAVING, QUALIFY or MATCH_RECOGNIZE.

    `rows` arrived; `passed` of them, or this many matches, passed. `attempts` are those that matched or are open, then
    the nearest of the `examined` ones among the `failed` ones.
    """

    kind: str
    text: str
    rows: int
    passed: int
    failed: int
    examined: int
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`rows` of the inputs, from `first` to `last` (ns; None without rows); `fired`: how many rows the text returns."""

    rows: int
    first: int | None
    last: int | None
    fired: int
    stages: tuple[Stage, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON: times are ISO text with nanoseconds and Z."""
        found: dict[str, Any] = _with_iso_times(asdict(self))
        return found


def explain(
    sql: str,
    tables: pa.Table | Mapping[str, pa.Table | str],
    parameters: Mapping[str, str] | None = None,
    *,
    at: int | None = None,
    attempts: int = ATTEMPTS,
    table_name: str = "ticks",
    limits: Limits = DEFAULT,
) -> Explanation:
    """Explain why the text fired or did not over these rows, up to the time `at` (ns since the epoch; default: all of
    them).

    `tables` and `table_name` as for `evaluate`. Reports for each stage the last match, what is open, and the `attempts`
    that came nearest. A table's first column of timestamps is its time.

    Raises TriggerRejected.
    """
    given = tables if isinstance(tables, Mapping) else {table_name: tables}
    views = {name: each for name, each in given.items() if isinstance(each, str)}
    named = {name: each for name, each in given.items() if not isinstance(each, str)}
    default = table_name if table_name in named or len(named) != 1 else next(iter(named))
    schemas = {name: table.schema for name, table in named.items()}
    answers_to_any = not isinstance(tables, Mapping)
    query = compile_query(
        sql,
        schemas,
        parameters,
        default_table=default,
        limits=limits,
        answers_to_any=answers_to_any,
        is_stored=True,
        views=views,
    )
    known = {name: _until(table, at) for name, table in named.items()}
    inputs = {name: from_table(table) for name, table in known.items()}
    rows = sum(table.num_rows for table in known.values())
    times = [bound for table in known.values() if (bound := _bounds(table)) is not None]
    first = min((low for low, _ in times), default=None)
    last = max((high for _, high in times), default=None)
    most = max(1, min(attempts, MOST_ATTEMPTS))
    try:
        with work.Work(limits, rows):
            stages = tuple(_stage(plan, inputs, most, last) for plan in _stages(query.plan))
        with work.Work(limits, rows):
            fired = stages[-1].passed if stages and _decides(query.plan) else _fired(query.plan, inputs, stages)
    except work.WorkLimit as error:
        raise TriggerRejected(str(error), hint="explain over fewer rows") from None
    except RecursionError:
        raise TriggerRejected("the text is nested too deeply") from None
    except pa.ArrowInvalid as error:
        raise TriggerRejected(f"the data cannot be read: {error}") from error
    return Explanation(rows, first, last, fired, stages)


def _with_iso_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _for_json(name, each) for name, each in value.items()}
    return [_with_iso_times(each) for each in value] if isinstance(value, tuple) else value


def _for_json(name: str, value: Any) -> Any:
    if name in _COLUMNS:
        return value
    return iso(value) if name in _TIMES and value is not None else _with_iso_times(value)


def _time_column(table: pa.Table) -> str | None:
    return next((field.name for field in table.schema if pa.types.is_timestamp(field.type)), None)


def _until(table: pa.Table, at: int | None) -> pa.Table:
    name = _time_column(table)
    if at is None or name is None:
        return table
    return table.filter(pc.less_equal(_nanoseconds(table, name), at))


def _bounds(table: pa.Table) -> tuple[int, int] | None:
    name = _time_column(table)
    if name is None or not table.num_rows:
        return None
    found = pc.min_max(_nanoseconds(table, name))
    return None if found["min"].as_py() is None else (found["min"].as_py(), found["max"].as_py())


def _nanoseconds(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table[name]
    return column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())


def _stages(plan: Plan) -> list[Filter | Match]:
    """The stages, from the inputs up."""
    found: list[Filter | Match] = []

    def visit(node: Plan) -> None:
        for inner in _inner(node):
            visit(inner)
        is_written = not isinstance(node, Filter) or node.is_written
        if isinstance(node, Filter | Match) and is_written and len(found) < _MOST_STAGES and node not in found:
            found.append(node)

    visit(plan)
    return found


def _inner(plan: Plan) -> Iterator[Plan]:
    for name in ("inner", "left", "right"):
        if (inner := getattr(plan, name, None)) is not None:
            yield inner
    yield from getattr(plan, "branches", ())


def _decides(plan: Plan) -> bool:
    """Whether each row that passes the last stage is a row of the result."""
    while not isinstance(plan, Filter | Match):
        if type(plan).__name__ not in ("Project", "Renamed", "Narrowed"):
            return False
        plan = next(_inner(plan))
    return isinstance(plan, Filter) or not plan.recognize.is_all_rows


def _fired(plan: Plan, inputs: Inputs, stages: Sequence[Stage]) -> int:
    """The rows of the result. If AFTER MATCH SKIP has no target, a running trigger continues, so its matches count."""
    try:
        return plan.run(inputs).length
    except SkipFailed:
        return stages[-1].passed


def _stage(plan: Filter | Match, inputs: Inputs, most: int, last: int | None) -> Stage:
    rows = plan.inner.run(inputs)
    names = column_names(plan.inner)
    if isinstance(plan, Match):
        recognize = plan.recognize
        arrangement, bounds, _ = arranged(rows, recognize.partition, recognize.order)
        found = trace(recognize, arrangement, bounds, names=names, most=most)
        text = " ".join(f"{name} AS {text_of(node, names, name)}" for name, node in recognize.definitions)
        return Stage(
            kind="MATCH_RECOGNIZE",
            text=text,
            rows=rows.length,
            passed=found.matches,
            failed=found.failed,
            examined=found.starts,
            attempts=found.attempts,
        )
    return _filtered(plan, rows, names, most, last)


def _filtered(plan: Filter, rows: Relation, names: Sequence[str], most: int, last: int | None) -> Stage:
    kind = "HAVING" if _is_grouped(plan.inner) else "QUALIFY" if isinstance(plan.inner, Over) else "WHERE"
    values = rows.values()
    far = distances(plan.condition, values, rows.length)
    work.spend(rows.length * 4)
    time = next((i for i, field in enumerate(plan.inner.fields) if field.type.kind is Kind.TIMESTAMP), None)
    times = rows.column(time).to_list() if time is not None else [None] * rows.length
    order = np.arange(rows.length)
    if time is not None:
        order = np.argsort([value or 0 for value in times], kind="stable")
    is_open = _is_open(rows, names, last)
    passed, failed = order[(far[order] == 0) & ~is_open[order]], order[(far[order] > 0) & ~is_open[order]]
    newest = order[-1:]
    # Among equally near ones, the last comes first.
    nearest = failed[::-1][np.argsort(far[failed[::-1]], kind="stable")]
    chosen = dict.fromkeys([*passed[-1:].tolist(), *newest.tolist(), *nearest[:most].tolist()])
    outcomes = np.where(is_open, "waiting", np.where(far == 0, "matched", "failed"))
    attempts = tuple(_tested(plan.condition, rows, names, row, times[row], str(outcomes[row])) for row in chosen)
    return Stage(
        kind=kind,
        text=text_of(plan.condition, names),
        rows=rows.length,
        passed=len(passed),
        failed=len(failed),
        examined=len(failed),
        attempts=attempts,
    )


def _is_grouped(plan: Plan) -> bool:
    is_of_changes = isinstance(plan, Project) and isinstance(plan.inner, Filter) and plan.inner.is_of_changes
    return isinstance(plan, Group) or is_of_changes


def _tested(
    condition: Expression, rows: Relation, names: Sequence[str], row: int, time: int | None, outcome: str
) -> Attempt:
    cells: dict[str, Value] = {}
    place = np.array([row], np.int64)
    keyed = [index for index, name in enumerate(names) if name == "ticker"]
    for index in sorted({*columns_of(condition), *keyed}):
        vector = rows.column(index).take(place)
        cells[names[index]] = plain(vector.to_list()[0], vector.type)
    key = {"ticker": cells.pop("ticker")} if keyed else {}
    one = rows.take(place)
    test = Tested("", Row(time, "", cells), described(condition, one.values(), 0, names=names))
    return Attempt(outcome=outcome, key=key, start=time, nearest=(test,))


def _is_open(rows: Relation, names: Sequence[str], last: int | None) -> Bools:
    """Windows that have not ended by the newest row: their aggregates may still change."""
    if "window_end" not in names or last is None:
        return np.zeros(rows.length, np.bool_)
    ends = rows.column(names.index("window_end")).expand()
    found: Bools = (ends.values > last) & ends.mask
    return found
