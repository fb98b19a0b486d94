"""The library's entry points: they turn a text into a checked trigger, or evaluate it to a table."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import pyarrow as pa

from candlewright_cep import work
from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.recovery import raise_noted
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions.scalars.calendars import counting
from candlewright_cep.limits import DEFAULT, Limits
from candlewright_cep.planning.candle_views import CANDLE_PATTERNS
from candlewright_cep.planning.doubts import doubts
from candlewright_cep.planning.periods import of_period
from candlewright_cep.planning.planner import Planner
from candlewright_cep.planning.plans import Match, Plan, SharedInputs
from candlewright_cep.planning.reads import columns_read
from candlewright_cep.planning.relation import Relation, from_table
from candlewright_cep.syntax.query_parser import parse, parse_view
from candlewright_cep.syntax.slips import divided_numbers, hinted, separated_numbers
from candlewright_cep.syntax.tree import QueryNode
from candlewright_cep.types import SqlType, from_arrow, to_arrow
from candlewright_cep.vector import Vector, counted


class Exporter(Protocol):
    """Tabular data that exports Arrow through the PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Rows: TypeAlias = pa.Table | Exporter


@dataclass(kw_only=True, frozen=True, slots=True)
class CompiledQuery:
    """A checked text. `warnings` are sentences for the client that registered it."""

    text: str
    plan: Plan
    columns: tuple[tuple[str, SqlType], ...]
    matches: tuple[Match, ...]
    limits: Limits = DEFAULT
    planned: tuple[str, ...] = ()
    #: Names of the registered views that it reads, directly or through other views.
    views: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        of_matches = (warning for match in self.matches for warning in match.recognize.warnings)
        return tuple(dict.fromkeys((*of_matches, *self.planned, *doubts(self.plan))))

    def run(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Evaluate over finished inputs.

        Raises TriggerRejected if the work exceeds a limit, SkipFailed if AFTER MATCH SKIP has no target.
        """
        rows = sum(table.num_rows for table in tables.values())
        try:
            with work.Work(self.limits, rows):
                inputs = SharedInputs({name: from_table(table) for name, table in tables.items()})
                return self._table(self.plan.run(inputs))
        except work.WorkLimit as error:
            raise TriggerRejected(str(error), hint=work.LESS) from None
        except pa.ArrowInvalid as error:
            raise TriggerRejected(f"the data cannot be read: {error}") from error

    def _table(self, rows: Relation) -> pa.Table:
        shown = [index for index, field in enumerate(self.plan.fields) if not field.hidden]
        # A column that is shown several times is made once.
        made: dict[int, tuple[Vector, pa.Array]] = {}
        arrays = []
        for column in map(rows.column, shown):
            if id(column) not in made:
                made[id(column)] = column, counted(column).to_arrow()
            arrays.append(made[id(column)][1])
        types = [to_arrow(kind) for _, kind in self.columns]
        columns = [array if array.type == kind else array.cast(kind) for array, kind in zip(arrays, types, strict=True)]
        return pa.Table.from_arrays(columns, names=[name for name, _ in self.columns])


def fields_of(schema: pa.Schema) -> tuple[Field, ...]:
    """The columns of an input. A field's metadata `values` lists the texts that it can hold, for warnings."""
    return tuple(
        Field(field.name, from_arrow(field.type), values=_texts((field.metadata or {}).get(b"values", b"")))
        for field in schema
    )


def _texts(listed: bytes) -> tuple[str, ...]:
    return tuple(listed.decode().split(",")) if listed else ()


def compile_query(
    sql: str,
    schemas: Mapping[str, pa.Schema | tuple[Field, ...]],
    parameters: Mapping[str, str] | None = None,
    *,
    default_table: str = "ticks",
    limits: Limits = DEFAULT,
    answers_to_any: bool = False,
    is_stored: bool = False,
    views: Mapping[str, str] | None = None,
) -> CompiledQuery:
    """Check a text against the inputs that it may read.

    A bare condition applies to `default_table`; with `answers_to_any`, that table also stands for every table that the
    text names and `schemas` lacks. `views`: the texts of views by name. `is_stored`: the inputs are finished, and the
    parameter `period_seconds` selects the bars of one period, as on a stream.

    Raises TriggerRejected with line and column, and no other exception, whatever the text.
    """
    inputs = {name: fields_of(schema) if isinstance(schema, pa.Schema) else schema for name, schema in schemas.items()}
    any_name = default_table if answers_to_any else ""

    def planned(candles: Collection[str] | None = None) -> tuple[Planner, Plan]:
        planner = Planner(inputs, parameters or {}, limits, any_name=any_name, views=views, candles=candles)
        with counting():
            if isinstance(tree, QueryNode):
                return planner, planner.statement(tree)
            return planner, planner.condition(tree, default_table)

    try:
        tree = parse(sql, limits, parameters)
        planner, plan = planned()
    except RecursionError:
        raise TriggerRejected("the text is nested too deeply") from None
    except TriggerRejected as error:
        raise hinted(error, sql) from None
    raise_noted()
    if planner.registered.has_read_built_in(CANDLE_PATTERNS):
        planner, plan = planned(columns_read(plan, CANDLE_PATTERNS))
    planner.warnings += (*separated_numbers(sql, limits), *divided_numbers(sql, limits), *_shared_names(plan))
    compiled = _compiled(sql, planner, plan)
    return replace(compiled, plan=of_period(plan, parameters or {}, limits)) if is_stored else compiled


def _shared_names(plan: Plan) -> Iterator[str]:
    """A warning about columns of the result that an object with their names cannot hold together."""
    times = Counter(field.name for field in plan.fields if not field.hidden)
    if shared := [name for name, count in times.items() if count > 1]:
        names = ", ".join(shared[:5]) + (", ..." if shared[5:] else "")
        yield f"several columns are named {names}: as JSON, a row has only one of them; name them apart with AS"


def compile_view(
    name: str, schemas: Mapping[str, pa.Schema], views: Mapping[str, str], *, limits: Limits = DEFAULT
) -> CompiledQuery:
    """Check the view `name` against the inputs and the other views; a CREATE VIEW in its text may only create that
    name.

    Raises TriggerRejected with the position in the view's text.
    """
    planner = Planner({table: fields_of(schema) for table, schema in schemas.items()}, {}, limits, views=views)
    try:
        node = parse_view(views[name], limits)
        if node.name is not None and node.name.text.lower() != name.lower():
            raise node.name.at.reject(f"the text names the view '{node.name.text[:60]}' instead of '{name[:60]}'")
        with counting():
            plan = planner.view(node)
    except RecursionError:
        raise TriggerRejected("the text is nested too deeply") from None
    except TriggerRejected as error:
        raise hinted(error, views[name]) from None
    return _compiled(views[name], planner, plan)


def _compiled(sql: str, planner: Planner, plan: Plan) -> CompiledQuery:
    raise_noted()
    columns = tuple((field.name, field.type) for field in plan.fields if not field.hidden)
    return CompiledQuery(
        text=sql,
        plan=plan,
        columns=columns,
        matches=tuple(planner.matches),
        limits=planner.limits,
        planned=tuple(planner.warnings),
        views=planner.registered.names,
    )


def view_name(text: str, limits: Limits = DEFAULT) -> str:
    """The name that a view's text gives it; empty for a query alone. Raises TriggerRejected for any other text."""
    name = parse_view(text, limits).name
    return "" if name is None else name.text


def evaluate(
    sql: str,
    tables: Rows | Mapping[str, Rows | str],
    parameters: Mapping[str, str] | None = None,
    *,
    table_name: str = "ticks",
    limits: Limits = DEFAULT,
) -> pa.Table:
    """Evaluate a trigger's text over finished tables. Timestamps keep their precision.

    `tables`: one table, which any name in the text refers to, or a mapping of names to tables and views (a text instead
    of a table is a view). A table is a pyarrow table or anything that exports Arrow, such as a Polars or pandas
    DataFrame or a DuckDB relation. A bare condition applies to `table_name`, or to the only table. The parameter
    `period_seconds` excludes bars of other periods (in tables with `open_time` and `period_seconds`), as it does for a
    running trigger.

    Raises TriggerRejected, whose text begins with `INVALID_SQL line:column:`, and SkipFailed.
    """
    if isinstance(tables, Mapping):
        named = {name: rows if isinstance(rows, str) else as_table(rows) for name, rows in tables.items()}
        return evaluate_named(sql, named, parameters, table_name=table_name, limits=limits)
    table = as_table(tables)
    compiled = compile_query(
        sql,
        {table_name: table.schema},
        parameters,
        default_table=table_name,
        limits=limits,
        answers_to_any=True,
        is_stored=True,
    )
    return compiled.run({table_name: table})


def as_table(rows: Rows) -> pa.Table:
    """Raises TypeError for data that does not export Arrow."""
    if isinstance(rows, pa.Table):
        return rows
    if not hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "__arrow_c_array__"):
        hint = ": collect() it first" if hasattr(rows, "collect") else ""
        raise TypeError(f"{type(rows).__module__}.{type(rows).__name__} does not export Arrow{hint}")
    return pa.table(rows)


def evaluate_named(
    sql: str,
    tables: Mapping[str, pa.Table | str],
    parameters: Mapping[str, str] | None = None,
    *,
    table_name: str = "ticks",
    limits: Limits = DEFAULT,
) -> pa.Table:
    """`evaluate` over tables and views that are found only by their own names."""
    views = {name: given for name, given in tables.items() if isinstance(given, str)}
    stored = {name: given for name, given in tables.items() if not isinstance(given, str)}
    default = table_name if table_name in stored or len(stored) != 1 else next(iter(stored))
    schemas = {name: table.schema for name, table in stored.items()}
    compiled = compile_query(
        sql, schemas, parameters, default_table=default, limits=limits, is_stored=True, views=views
    )
    return compiled.run(stored)
