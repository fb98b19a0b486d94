"""`candlewright trigger try`: the trigger engine over stored data; with `--input` it needs no running platform."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, print_arrow_table, say
from candlewright.client.times import to_nanoseconds
from cep import SkipFailed, TriggerRejected, evaluate
from core.errors import CandlewrightError, InvalidRequest
from core.settings import Settings

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_FAR_NS = (1 << 63) - 1


def try_one(
    sql: str | None,
    file: Path | None,
    table_file: Path | None,
    table: str,
    ticker: str | None,
    since: str | None,
    parameters: list[str],
    output: Output,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    if (sql is None) == (file is None):
        raise typer.BadParameter("give the text once: --file F, or --sql TEXT")
    if (table_file is None) == (ticker is None):
        raise typer.BadParameter("give the data once: --input table.parquet, or --ticker T with --since ISO")
    values = dict(map(_parameter, parameters))
    text = sql if sql is not None else _text(file)
    data = _read(table_file) if table_file else _stored(settings_for(config, data_dir), ticker, since, table, values)
    try:
        found = evaluate(text, data, table, values)
    except (TriggerRejected, SkipFailed) as error:
        say(one_line(error))
        raise typer.Exit(1) from error
    if output is Output.json:
        for row in plain_rows(found):
            print(json.dumps(dict(zip(found.column_names, row, strict=True)), ensure_ascii=False))
    else:
        print_arrow_table(found)


def try_batch(batch: Path) -> None:
    """A line {"name", "sql", "input", "table"} in is a line {"name", "columns", "rows"} or {"name", "error"} out."""
    try:
        lines = batch.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--batch {batch}: {error}") from error
    tables: dict[str, pa.Table] = {}
    for line in filter(str.strip, lines):
        print(json.dumps(_case(line, tables), ensure_ascii=False), flush=True)


def _case(line: str, tables: dict[str, pa.Table]) -> dict[str, Any]:
    try:
        case = json.loads(line)
        name, sql, source = case["name"], str(case["sql"]), str(case["input"])
    except (ValueError, KeyError, TypeError) as error:
        return {"name": None, "error": f"no case: a line is an object with name, sql and input ({error})"}
    try:
        if source not in tables:
            tables[source] = _read(Path(source))
        parameters = {str(key): str(value) for key, value in (case.get("parameters") or {}).items()}
        found = evaluate(sql, tables[source], str(case.get("table") or "ticks"), parameters)
    except (CandlewrightError, SkipFailed) as error:
        return {"name": name, "error": one_line(error)}
    return {"name": name, "columns": found.column_names, "rows": list(plain_rows(found))}


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def plain_rows(table: pa.Table) -> Iterator[list[Any]]:
    """Rows for JSON: times as ISO text with the precision of their type."""
    columns = [_plain_column(table[name]) for name in table.column_names]
    for row in zip(*columns, strict=True):
        yield list(row)


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        per_second, digits = 10 ** _DIGITS[column.type.unit], _DIGITS[column.type.unit]
        zone = "Z" if column.type.tz else ""
        return [
            None if value is None else _iso(value // per_second, value % per_second, digits) + zone
            for value in column.cast(pa.int64()).to_pylist()
        ]
    return [_plain(value) for value in column.to_pylist()]


def _iso(seconds: int, fraction: int, digits: int) -> str:
    whole = str(pa.scalar(seconds, pa.int64()).cast(pa.timestamp("s")).as_py().isoformat())
    return f"{whole}.{fraction:0{digits}d}" if digits else whole


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return value


def _parameter(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"--param {text!r}: write name=value")
    return name, value


def _text(file: Path | None) -> str:
    assert file is not None
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--file {file}: {error}") from error


def _read(file: Path) -> pa.Table:
    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise CandlewrightError(f"{file} cannot be read as Parquet: {one_line(error)}") from error


def _stored(
    settings: Settings, ticker: str | None, since: str | None, table: str, parameters: Mapping[str, str]
) -> pa.Table:
    from iceberg.read import read_ohlc, read_ticks

    assert ticker is not None
    try:
        start = to_nanoseconds(since) if since is not None else 0
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    if table == "ticks":
        return read_ticks(settings, ticker, start, _FAR_NS)
    if table == "ohlc":
        return read_ohlc(settings, ticker, int(parameters.get("period_seconds", "60")), start, _FAR_NS)
    raise typer.BadParameter(f"--table {table}: stored data is in ticks and ohlc")
