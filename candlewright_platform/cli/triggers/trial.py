"""`candlewright trigger try`: the trigger engine over stored data; with `--input` it needs no running platform."""

import datetime as dt
import json
import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer

from candlewright.cli import chart
from candlewright.cli.output import Output, print_arrow_table, say, style_of_stdout
from candlewright.cli.progress import RequestProgress
from candlewright.cli.requests import CHART_COLUMNS, CHART_ROWS
from candlewright.cli.trigger import content_of, parameter, read_text
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.grid import SECOND
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import format_nanoseconds, to_nanoseconds
from candlewright_cep import SkipFailed, TriggerRejected
from candlewright_cep.engine import compile_query, evaluate_named
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.triggers.text import read_views
from core.settings import Settings
from triggers.texts.check import INPUTS, TriggerRules, compile_trigger, warnings_for

if TYPE_CHECKING:
    from candlewright_platform.cli.triggers.backtest import Backtest

_NAMED_FILE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)
#: The parameter, and the column to which it applies.
PERIOD = "period_seconds"
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def try_one(
    sql: str | None,
    file: Path | None,
    inputs: list[str],
    *,
    table: str | None,
    ticker: str | None,
    since: str | None,
    parameters: list[str],
    output: Output,
    data_dir: Path | None,
    config: Path | None,
    as_seen: bool = False,
    views: Sequence[Path] = (),
) -> None:
    if (not inputs) == (ticker is None):
        raise typer.BadParameter("give the data once: --input table.parquet, or --ticker T with --since ISO")
    if as_seen and ticker is None:
        raise typer.BadParameter("--as-seen reads the bars that were published of a ticker: name it with --ticker")
    values = dict(map(parameter, parameters))
    text = read_text(sql, file)
    settings = settings_for(config, data_dir)
    files, named = _named_files(inputs, table), read_views(views, settings)
    if both := files.keys() & {name.lower() for name in named}:
        raise typer.BadParameter(f"'{min(both)}' is both an --input and a --view")
    try:
        if files:
            read = {name: _read(path) for name, path in files.items()}
            default = _default_table(files, table, values)
            found = _evaluated(text, read | named, values, default)
            _warn(text, {name: rows.schema for name, rows in read.items()}, values, named, default, _tickers(read))
        else:
            assert ticker is not None
            default = table or ("ohlc" if PERIOD in values else "ticks")
            _warn(text, {name: stream.schema for name, stream in INPUTS.items()}, values, named, default, [ticker])
            found = _over_history(
                text,
                values,
                ticker,
                since=since,
                table=table,
                output=output,
                settings=settings,
                views=named,
                as_seen=as_seen,
            )
    except (TriggerRejected, SkipFailed) as error:
        say(one_line(error))
        raise typer.Exit(1) from error
    if output is Output.json:
        for row in plain_rows(found):
            print(_json(dict(zip(found.column_names, row, strict=True))))
    else:
        print_arrow_table(found)


def _warn(
    text: str,
    schemas: Mapping[str, pa.Schema],
    parameters: Mapping[str, str],
    views: Mapping[str, str],
    default: str,
    tickers: Sequence[str],
) -> None:
    """Say what `trigger check` warns of; whether the text is valid shows when it runs."""
    if default not in schemas and len(schemas) == 1:
        (default,) = schemas
    with suppress(TriggerRejected):
        query = compile_query(text, schemas, parameters, default_table=default, is_stored=True, views=views)
        for warning in warnings_for(query.warnings, tickers):
            say(f"warning: {warning}")


def _tickers(tables: Mapping[str, pa.Table]) -> list[str]:
    found = [table["ticker"].cast(pa.string()) for table in tables.values() if "ticker" in table.column_names]
    return sorted({name for column in found for name in pc.unique(column).drop_null().to_pylist()})


def _named_files(inputs: list[str], table: str | None) -> dict[str, Path]:
    """`NAME=FILE`, or one FILE, which is called `table`. Raises typer.BadParameter."""
    named = [_NAMED_FILE.fullmatch(text) for text in inputs]
    pairs = [
        (found[1], found[2]) for text, found in zip(inputs, named, strict=True) if found and not Path(text).exists()
    ]
    if not inputs:
        return {}
    if not pairs and len(inputs) == 1:
        return {table or "ticks": Path(inputs[0])}
    if len(pairs) < len(inputs):
        raise typer.BadParameter("several inputs need their names: --input ticks=FILE --input ohlc=FILE")
    names = [name.lower() for name, _ in pairs]
    if len(set(names)) < len(names):
        raise typer.BadParameter("two inputs have the same name")
    if table is not None and table.lower() not in names:
        raise typer.BadParameter(f"--table {table}: the inputs are {', '.join(names)}")
    return {name: Path(file) for name, file in pairs}


def _default_table(files: Mapping[str, Path], table: str | None, parameters: Mapping[str, str]) -> str:
    """The table that a bare condition reads, as in a running trigger."""
    return table or ("ohlc" if PERIOD in parameters and "ohlc" in files else "ticks")


def _evaluated(
    text: str, tables: Mapping[str, pa.Table | str], parameters: Mapping[str, str], default: str
) -> pa.Table:
    """Evaluates like a running trigger: without `period_seconds`, a text that keeps state runs over each period
    separately.
    """
    bars = tables.get("ohlc")
    if not isinstance(bars, pa.Table) or PERIOD in parameters or not _is_of_each_period(text, bars, tables, parameters):
        return evaluate_named(text, tables, parameters, table_name=default)
    found = [
        evaluate_named(text, tables, {**parameters, PERIOD: str(period)}, table_name=default)
        for period in sorted(pc.unique(bars[PERIOD]).drop_null().to_pylist())
    ]
    return pa.concat_tables(found)


def _is_of_each_period(
    text: str, bars: pa.Table, tables: Mapping[str, pa.Table | str], parameters: Mapping[str, str]
) -> bool:
    if PERIOD not in bars.column_names or pc.count_distinct(bars[PERIOD]).as_py() < 2:
        return False
    views = {name: view for name, view in tables.items() if isinstance(view, str)}
    try:
        compiled = compile_trigger(text, parameters, TriggerRules(idle_ns=SECOND), views=views)
    except TriggerRejected:
        # This could not run live: an ORDER BY, other columns, a join that does not say which bars it reads.
        return False
    return compiled.is_on_bars and not compiled.is_stateless and not compiled.labels


def _over_history(
    text: str,
    parameters: Mapping[str, str],
    ticker: str,
    *,
    since: str | None,
    table: str | None,
    output: Output,
    settings: Settings,
    views: Mapping[str, str],
    as_seen: bool,
) -> pa.Table:
    """The rows of a backtest; with `--output table` its chart is printed, too."""
    from candlewright_platform.cli.triggers import backtest

    if table not in (None, "ticks", "ohlc"):
        raise typer.BadParameter(f"--table {table}: stored data is in ticks and ohlc")
    try:
        start = to_nanoseconds(since) if since is not None else None
        Ticker.parse(ticker)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    with RequestProgress(ticker, unit="%") as progress:
        found = backtest.run(
            settings,
            text,
            parameters,
            ticker=ticker,
            since=start,
            table=table,
            progress=progress,
            views=views,
            as_seen=as_seen,
        )
    if output is Output.table:
        _draw(ticker, found)
    return found.table


def _draw(ticker: str, found: "Backtest") -> None:
    from rich.console import Console

    if not found.candles:
        return
    width, style = min(Console().width, CHART_COLUMNS), style_of_stdout()
    fired = [time / SECOND for time in found.fired]
    span = f"{format_nanoseconds(found.first)} to {format_nanoseconds(found.last)}"
    print(f"{ticker}: {found.rows} {found.what}, {span}")
    for line in chart.render(found.candles, width, height=CHART_ROWS, style=style, marks=fired):
        print(line)
    told = f"fired {len(found.fired)} time{'s' if len(found.fired) != 1 else ''}"
    print(told + (f"; {found.suppressed} more fell into cooldown_seconds" if found.suppressed else ""))


def try_batch(batch: Path) -> None:
    """A line {"name", "sql", "input", "table"} in is a line {"name", "columns", "rows"} or {"name", "error"} out.

    `input`: a file, or an object of files by the names of the tables.
    """
    # Not splitlines, which also splits at other characters that a text may contain.
    lines = content_of("--batch", batch).split("\n")
    tables: dict[str, pa.Table] = {}
    for line in filter(str.strip, lines):
        print(_json(_case(line, tables)), flush=True)


def _case(line: str, tables: dict[str, pa.Table]) -> dict[str, Any]:
    try:
        case = json.loads(line)
        name, sql, source = case["name"], str(case["sql"]), case["input"]
    except (ValueError, KeyError, TypeError) as error:
        return {"name": None, "error": f"no case: a line is an object with name, sql and input ({error})"}
    try:
        wanted = str(case.get("table") or "ticks")
        files = source if isinstance(source, dict) else {wanted: source}
        for file in map(str, files.values()):
            if file not in tables:
                tables[file] = _read(Path(file))
        parameters = {str(key): str(value) for key, value in (case.get("parameters") or {}).items()}
        named = {str(table): tables[str(file)] for table, file in files.items()}
        found = _evaluated(sql, named, parameters, wanted)
        rows = list(plain_rows(found))
    except (CandlewrightError, TriggerRejected, SkipFailed) as error:
        return {"name": name, "error": one_line(error)}
    except Exception as error:  # The outermost loop: the other cases get their answers whatever happens to one.
        traceback.print_exc()
        return {"name": name, "error": f"internal error: {type(error).__name__}: {one_line(error)}"}
    return {"name": name, "columns": found.column_names, "rows": rows}


def _json(value: Any) -> str:
    """A DECIMAL is a number with all its digits, for which `json` has no form."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_json(key)}: {_json(part)}' for key, part in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def plain_rows(table: pa.Table) -> Iterator[list[Any]]:
    """Rows for JSON: times as ISO text with the precision of their type, intervals as `days hours:minutes:seconds`."""
    columns = [_plain_column(column.combine_chunks()) for column in table.columns]
    for row in zip(*columns, strict=True):
        yield list(row)


def _plain_column(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        per_second, digits = 10 ** _DIGITS[kind.unit], _DIGITS[kind.unit]
        zone = "Z" if kind.tz else ""
        return [
            None if value is None else _iso(value // per_second, value % per_second, digits) + zone
            for value in column.cast(pa.int64()).to_pylist()
        ]
    if pa.types.is_duration(kind):
        scale = SECOND // 10 ** _DIGITS[kind.unit]
        return [None if value is None else _interval(value * scale) for value in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_struct(kind):
        parts = [_plain_column(part) for part in column.flatten()]
        names = [part.name for part in kind]
        return [
            dict(zip(names, row, strict=True)) if known else None
            for *row, known in zip(*parts, column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_list(kind):
        items, ends = _plain_column(column.values), column.offsets.to_pylist()
        return [
            items[ends[row] : ends[row + 1]] if known else None
            for row, known in enumerate(column.is_valid().to_pylist())
        ]
    return [_plain(value) for value in column.to_pylist()]


def _interval(nanoseconds: int) -> str:
    seconds, fraction = divmod(abs(nanoseconds), SECOND)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    digits = 9 if fraction % 1_000 else 6 if fraction % 1_000_000 else 3
    written = f"{days} {hour:02d}:{minute:02d}:{second:02d}.{fraction:09d}"[: digits - 9 or None]
    return f"-{written}" if nanoseconds < 0 else written


def _iso(seconds: int, fraction: int, digits: int) -> str:
    whole = str(pa.scalar(seconds, pa.int64()).cast(pa.timestamp("s")).as_py().isoformat())
    return f"{whole}.{fraction:0{digits}d}" if digits else whole


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.date):
        return value.isoformat()
    return value


def _read(file: Path) -> pa.Table:
    try:
        return pq.read_table(file)
    except FileNotFoundError as error:
        raise CandlewrightError(f"there is no file {file}") from error
    except (OSError, pa.ArrowException) as error:
        raise CandlewrightError(f"{file} cannot be read as Parquet: {one_line(error)}") from error
