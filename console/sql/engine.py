"""Runs one query over the tables: with DuckDB, or with the trigger engine if only its language has the words. Only the
tables are accessible. DuckDB runs without access to files and networks, with its configuration locked; the tables are
passed in as readers that push columns and filters down into the files.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa

from candlewright.wire.errors import InvalidRequest, TriggerRejected

__all__ = ["TABLE_NAMES", "Limits", "Result", "run"]

TABLE_NAMES = ("ohlc", "ohlc_revisions", "ticks", "trigger_events", "gaps", "coverage", "deliveries")
_RECOGNIZE = re.compile(r"\bMATCH_RECOGNIZE\b", re.IGNORECASE)
_PREFIX = re.compile(r"\b(?:lake\s*\.\s*)?market\s*\.\s*(?=[a-z_])", re.IGNORECASE)
_NOT_CODE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^", re.DOTALL)
#: Errors of a text that DuckDB does not understand.
_REFUSED = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
_BATCH_ROWS = 10_000
_MAX_RESULT_BYTES = 256 << 20

#: Types that Arrow has no number for, and those that neither JSON nor CSV can write: their values become DuckDB's text.
_WITHOUT_NUMBER = frozenset({"uhugeint", "variant"})
_WITHOUT_FORM = frozenset({"interval", "blob", "bit", "bignum", "geometry", "time with time zone", "union", "row"})
_NESTED = frozenset({"list", "struct", "map", "array"})

#: Opens a table by name; None if the platform has not created it yet.
Open = Callable[[str], "pa.Table | Any | None"]


@dataclass(frozen=True, slots=True)
class Limits:
    rows: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    table: pa.Table
    is_truncated: bool


def run(
    sql: str,
    open_table: Open,
    limits: Limits,
    *,
    views: Mapping[str, str] = MappingProxyType({}),
    deliver: Callable[[Any], None] = lambda connection: None,
    is_for_text: bool = False,
) -> Result:
    """Returns at most `limits.rows` rows. `views`: the texts of the registered views by name. `deliver` gets the
    connection, which can be interrupted. `is_for_text`: whether the rows will be written as JSON or CSV.

    Raises TriggerRejected with the position of an error, and InvalidRequest if the work exceeds a limit.
    """
    code = _code(sql)
    if _RECOGNIZE.search(code):
        return _evaluated(sql, open_table, limits, views)
    connection = _connection(_named(code), open_table, limits)
    deliver(connection)
    try:
        return _selected(connection, sql, limits, _WITHOUT_NUMBER | _WITHOUT_FORM if is_for_text else _WITHOUT_NUMBER)
    except duckdb.InterruptException as error:
        raise InvalidRequest("the query was cancelled, or took longer than console.sql_seconds") from error
    except duckdb.OutOfMemoryException as error:
        raise InvalidRequest("the query needs more memory than console.sql_memory_bytes") from error
    except duckdb.Error as error:
        if isinstance(error, _REFUSED) and _is_in_language(sql, views):
            return _evaluated(sql, open_table, limits, views)
        raise _rejected(error) from error
    finally:
        connection.close()


def _selected(connection: duckdb.DuckDBPyConnection, sql: str, limits: Limits, kinds_as_text: frozenset[str]) -> Result:
    statements = connection.extract_statements(sql)
    # DuckDB puts a statement without text ahead of a PIVOT that does not name its columns, to find them.
    preparing = [each for each in statements[:-1] if each.type == duckdb.StatementType.CREATE and not each.query]
    if len(statements) - len(preparing) != 1:
        raise TriggerRejected(f"one query is needed, not {len(statements)}", hint="leave out the semicolon")
    if statements[-1].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        kind = statements[-1].type.name
        raise TriggerRejected(f"only queries are allowed, not {kind}", hint="begin with SELECT or WITH")
    for statement in preparing:
        connection.execute(statement)
    reader = _reader(connection, statements[-1], kinds_as_text)
    rows, size, batches = 0, 0, []
    for batch in reader:
        batches.append(batch.slice(0, limits.rows - rows))
        rows += batch.num_rows
        size += batches[-1].nbytes
        if size > _MAX_RESULT_BYTES:
            raise InvalidRequest(f"the result has more than {_MAX_RESULT_BYTES >> 20} MiB; select less of it")
        if rows > limits.rows:
            break
    names = _unique(reader.schema.names)
    table = pa.Table.from_batches(batches, reader.schema).rename_columns(names)
    return Result(table, rows > limits.rows)


def _reader(
    connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, kinds_as_text: frozenset[str]
) -> pa.RecordBatchReader:
    if statement.type == duckdb.StatementType.SELECT:
        # DuckDB reports the position of a mistake only when it executes the statement.
        with contextlib.suppress(duckdb.BinderException, duckdb.CatalogException):
            relation = connection.sql(statement)
            if any(kinds_as_text & _kinds(kind) for kind in relation.types):
                columns = [
                    f"CAST(#{place} AS VARCHAR) AS {_quoted(name)}" if kinds_as_text & _kinds(kind) else f"#{place}"
                    for place, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), 1)
                ]
                return relation.project(", ".join(columns)).to_arrow_reader(_BATCH_ROWS)
    return connection.execute(statement).to_arrow_reader(_BATCH_ROWS)


def _kinds(kind: Any) -> set[str]:
    """The type and those inside it, by DuckDB's names; `row`: a structure whose members have no names."""
    inner = [(name, each) for name, each in kind.children if hasattr(each, "id")] if kind.id in _NESTED else []
    is_row = len({name for name, _ in inner}) < len(inner)
    return {kind.id, *(("row",) if is_row else ())}.union(*(_kinds(each) for _, each in inner))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _connection(named: list[str], open_table: Open, limits: Limits) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": "2",
            "memory_limit": f"{limits.memory_bytes}B",
            "max_temp_directory_size": "0KB",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
        },
    )
    connection.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.market; CREATE SCHEMA market")
    for name in named:
        if (found := open_table(name)) is not None:
            connection.register(f"_{name}", found)
            for place in (name, f"market.{name}", f"lake.market.{name}"):
                connection.execute(f"CREATE VIEW {place} AS SELECT * FROM _{name}")
    connection.execute(
        "SET TimeZone = 'UTC'; SET python_enable_replacements = false; SET enable_external_access = false;"
        " SET lock_configuration = true"
    )
    return connection


def _is_in_language(sql: str, views: Mapping[str, str]) -> bool:
    # A worker loads the trigger engine only for texts that need it.
    from console.sql.language import is_in_language

    return is_in_language(sql, views)


def _evaluated(sql: str, open_table: Open, limits: Limits, views: Mapping[str, str]) -> Result:
    from console.sql.language import evaluated

    # Views may read tables that the text does not name.
    code = "\n".join([sql, *views.values(), "ohlc"])
    for prefix in [*_PREFIX.finditer(_code(sql))]:
        # Only the names of the tables, at their positions.
        sql = sql[: prefix.start()] + " " * len(prefix[0]) + sql[prefix.end() :]
    opened = {name: open_table(name) for name in _named(code)}
    table = evaluated(sql, {name: found for name, found in opened.items() if found is not None}, views)
    return Result(table.slice(0, limits.rows), table.num_rows > limits.rows)


def _code(sql: str) -> str:
    """The text with blanks in place of strings and comments."""
    return _NOT_CODE.sub(lambda found: " " * len(found[0]), sql)


def _named(code: str) -> list[str]:
    return [name for name in TABLE_NAMES if re.search(rf"\b{name}\b", code, re.IGNORECASE)]


def _unique(names: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        number, unique = 1, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found[unique] = None
    return [*found]


def _rejected(error: duckdb.Error) -> TriggerRejected:
    """DuckDB may truncate a long line and marks the error below the part that it shows: the column is known only if the
    whole line is shown.
    """
    text = str(error)
    head = text.partition("\n\nLINE ")[0]
    message, *more = head.partition(": ")[2].splitlines() or [head]
    line, column = 1, 1
    if place := _LINE.search(text):
        shown = f"LINE {place[1]}: "
        line, column = int(place[1]), max(1, len(place[3]) - len(shown) + 1)
    hint = " ".join(more).strip()
    if isinstance(error, duckdb.CatalogException) and message.startswith("Table with name"):
        # DuckDB would suggest one of its own catalogue's tables.
        hint = f"the tables are {', '.join(TABLE_NAMES)}"
    return TriggerRejected(message or head, line, column, hint=hint)
