"""`candlewright import`: candles from files, checked here and written by the Spark driver."""

import contextlib
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from pyarrow import csv

from bus import topics
from bus.api import Bus
from candlewright.cli.output import Output, print_rows, say
from candlewright.wire.errors import CandlewrightError, ConfigurationError, InvalidRequest
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.ticker import Ticker
from candlewright_platform.cli.bus import open_bus
from candlewright_platform.cli.loading import settings_for
from candlewright_platform.supervisor import origin
from core.imports import KEEP_SECONDS, Import, differences_of, folder_of, rows_of
from core.origin import Origin
from core.settings import Settings
from datasets.archives import FORMATS, OF_ONE_VENUE, Candles, Wanted, together
from datasets.layouts.files import replacing

COLUMNS = ("ticker", "period", "candles", "new", "same", "different", "absent", "first", "last")
_SHOWN_DIFFERENCES = 10
_DIFFERENCE_COLUMNS = (
    "open_time",
    "why",
    "stored_source",
    "stored_close",
    "file_close",
    "stored_volume",
    "file_volume",
)
_LOOK_SECONDS = 0.2
_QUIET_SECONDS = 10.0


def import_files(
    files: Sequence[Path],
    of: str,
    ticker: str,
    *,
    period: str | None,
    mapping: Sequence[str],
    differences: Path,
    output: Output,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    settings = settings_for(config, data_dir)
    wanted = _wanted(of, ticker, period, mapping)
    _check_origin(settings, of)
    parts = []
    for number, file in enumerate(files, 1):
        if sys.stderr.isatty():
            say(f"{number} of {len(files)}: {file}")
        parts.append(FORMATS[of](file, wanted))
    candles = together(parts)
    for remark in dict.fromkeys(remark for part in parts for remark in part.remarks):
        say(remark)
    with open_bus(settings) as bus:
        _tidy(settings)
        ordered = Import(uuid.uuid4().hex, rows=candles.num_rows)
        target = rows_of(settings.data_dir, ordered.import_id)
        try:
            with replacing(target) as draft:
                pq.write_table(candles, draft)
        except OSError as error:
            raise CandlewrightError(f"{target} cannot be written: {error.strerror or error}") from error
        done = _carried_out(bus, ordered, target)
    if done.state == "failed":
        raise CandlewrightError(done.error)
    _show(done, parts, wanted, output)
    _report(settings, done, differences, output)


def _wanted(of: str, ticker: str, period: str | None, mapping: Sequence[str]) -> Wanted:
    if of not in FORMATS:
        raise typer.BadParameter(f"{of!r} is not a format: choose {', '.join(FORMATS)}", param_hint="--format")
    if mapping and of != "csv":
        raise typer.BadParameter(f"the columns of {of} are known: --mapping is for csv", param_hint="--mapping")
    named: dict[str, str] = {}
    for pair in (each for text in mapping for each in text.split(",")):
        name, separator, column = pair.partition("=")
        if not separator or not column:
            raise typer.BadParameter(f"{pair!r} is not NAME=COLUMN", param_hint="--mapping")
        named[name.strip()] = column.strip()
    try:
        return Wanted(Ticker.parse(ticker), None if period is None else parse_period(period), named)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error


def _check_origin(settings: Settings, of: str) -> None:
    """A venue's own archive is not mixed with data of the sandbox."""
    if of in OF_ONE_VENUE:
        try:
            origin.check(settings.data_dir, Origin.EXCHANGES)
        except ConfigurationError as error:
            text = (
                f"{settings.data_dir} is of the sandbox: import a venue's archive into another directory (--data-dir)"
            )
            raise CandlewrightError(text) from error


def _carried_out(bus: Bus, ordered: Import, target: Path) -> Import:
    """What became of it. Ctrl-C withdraws what the driver has not begun; what it has begun, it finishes."""
    bus.put(topics.TABLE_IMPORTS, {ordered.import_id: ordered.to_bytes()}, keep_seconds=KEEP_SECONDS)
    said, asked_at, has_warned = "", time.monotonic(), False
    try:
        while True:
            (value,) = bus.get(topics.TABLE_IMPORTS, [ordered.import_id])
            if value is None:
                raise CandlewrightError("the import is lost with the bus: run it again")
            found = Import.from_bytes(value)
            if found.is_over:
                return found
            if found.error and found.error != said:
                said = found.error
                say(f"waiting: {said}")
            if found.state == "running" and sys.stderr.isatty():
                say(f"compared {found.compared:,} of {found.rows:,} candles")
            if found.state == "asked" and not has_warned and time.monotonic() - asked_at > _QUIET_SECONDS:
                has_warned = True
                say("waiting for the Spark driver, which writes the tables")
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        (value,) = bus.get(topics.TABLE_IMPORTS, [ordered.import_id])
        if value == ordered.to_bytes():
            bus.delete(topics.TABLE_IMPORTS, [ordered.import_id])
            target.unlink(missing_ok=True)
            say("nothing was imported")
        else:
            say("the driver finishes what it has begun")
        raise


def _show(done: Import, parts: Sequence[Candles], wanted: Wanted, output: Output) -> None:
    tables = [part.table for part in parts]
    period = tables[0]["period_seconds"][0].as_py()
    row = {
        "ticker": str(wanted.ticker),
        "period": format_period(period),
        "candles": done.rows,
        "new": done.new,
        "same": done.same,
        "different": done.different,
        "absent": done.absent,
        "first": min(pc.min(table["open_time"]).as_py() for table in tables),
        "last": max(pc.max(table["open_time"]).as_py() for table in tables),
    }
    print_rows([row], output, COLUMNS, "")


def _report(settings: Settings, done: Import, file: Path, output: Output) -> None:
    """The candles that were not written, the first of them on the screen and all of them in `file`."""
    found = differences_of(settings.data_dir, done.import_id)
    if not (done.different or done.absent):
        return
    table = pq.read_table(found)
    try:
        with replacing(file) as draft:
            csv.write_csv(table, str(draft))
    except OSError as error:
        raise CandlewrightError(f"{file} cannot be written: {error.strerror or error}; see {found}") from error
    found.unlink()
    if output is Output.table:
        print_rows(table.slice(0, _SHOWN_DIFFERENCES).to_pylist(), output, _DIFFERENCE_COLUMNS, "")
    say(f"{table.num_rows:,} candles were not written, because the stored ones stay: all of them are in {file}")


def _tidy(settings: Settings) -> None:
    """What imports that were cut short have left."""
    folder = folder_of(settings.data_dir)
    for file in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > KEEP_SECONDS:
                file.unlink()
