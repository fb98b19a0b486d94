"""`candlewright import`: candles and trades from files, checked here and written by the Spark driver."""

import contextlib
import datetime as dt
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from pyarrow import csv

from bus import KeyedTables, topics
from candlewright.cli.output import Output, print_rows, say
from candlewright.wire.errors import CandlewrightError, ConfigurationError, InvalidRequest
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.ticker import Ticker
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.records.bus import open_bus
from candlewright_platform.supervisor import origin
from core.imports import KEEP_SECONDS, Import, differences_of, folder_of, rows_of
from core.origin import Origin
from core.settings import Settings
from datasets.archives import FORMATS, OF_ONE_VENUE, OWN_COLUMNS, BadFile, Candles, Wanted, together
from datasets.archives.trades import MAX_TRADES, TRADE_FORMATS, Last, in_turn
from datasets.archives.trades import SCHEMA as TRADE_SCHEMA
from datasets.layouts.files import replacing

TRADE_COLUMNS = ("ticker", "trades", "new", "same", "different", "filled_gaps", "first", "last")
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
_TRADE_DIFFERENCES = ("ts", "why", "trade_id", "stored_price", "file_price", "stored_size", "file_size")
_MICRO = 1_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LOOK_SECONDS = 0.2
_QUIET_SECONDS = 10.0
#: Files that no import has ordered, and to which no command has written for this long.
_ABANDONED_SECONDS = 3_600.0


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
    ordered = Import(import_id=uuid.uuid4().hex)
    target = rows_of(settings.data_dir, ordered.import_id)
    with open_bus(settings) as bus:
        _tidy(settings, bus)
        try:
            with replacing(target) as draft:
                staged = (_stage_trades if of in TRADE_FORMATS else _stage_candles)(files, of, wanted, draft)
        except OSError as error:
            raise CandlewrightError(f"{target} cannot be written: {error.strerror or error}") from error
        for remark in dict.fromkeys(staged.remarks):
            say(remark)
        done = _carried_out(bus, replace(ordered, rows=staged.rows), target)
    if done.state == "failed":
        raise CandlewrightError(done.error)
    _show(done, staged, wanted, output)
    _report(settings, done, differences, output)


@dataclass(frozen=True, slots=True)
class _Staged:
    """The rows that were read, in the data directory. `first` and `last`: their times, in µs.

    `period_seconds`: None for trades.
    """

    rows: int
    first: int
    last: int
    remarks: list[str]
    period_seconds: int | None = None


def _stage_candles(files: Sequence[Path], of: str, wanted: Wanted, draft: Path) -> _Staged:
    remarks: list[str] = []

    def parts() -> Iterator[Candles]:
        for number, file in enumerate(files, 1):
            _say_file(number, files)
            part = FORMATS[of](file, wanted)
            remarks.extend(part.remarks)
            yield part

    candles = together(parts())
    pq.write_table(candles, draft)
    times = candles["open_time"].cast(pa.int64())
    period_seconds = candles["period_seconds"][0].as_py()
    return _Staged(candles.num_rows, pc.min(times).as_py(), pc.max(times).as_py(), remarks, period_seconds)


def _stage_trades(files: Sequence[Path], of: str, wanted: Wanted, draft: Path) -> _Staged:
    form, last = TRADE_FORMATS[of], Last()
    rows, times = 0, []
    with pq.ParquetWriter(draft, TRADE_SCHEMA, compression="zstd") as writer:
        for number, file in enumerate(in_turn(files, form, wanted), 1):
            _say_file(number, files)
            for part in form.read(file, wanted, last):
                rows += part.num_rows
                if rows > MAX_TRADES:
                    raise BadFile(file, f"over {MAX_TRADES:,} trades: import fewer files at a time")
                writer.write_table(part.cast(TRADE_SCHEMA))
                times += pc.min_max(part["ts_ns"]).as_py().values()
    if last.missing:
        last.remarks.append(f"missing from the files, between their first and last trade: {last.missing:,} ids")
    return _Staged(rows, min(times) // _MICRO, max(times) // _MICRO, last.remarks)


def _say_file(number: int, files: Sequence[Path]) -> None:
    if sys.stderr.isatty():
        say(f"reading file {number} of {len(files)}")


def _wanted(of: str, ticker: str, period: str | None, mapping: Sequence[str]) -> Wanted:
    if of not in FORMATS and of not in TRADE_FORMATS:
        known = ", ".join((*FORMATS, *TRADE_FORMATS))
        raise typer.BadParameter(f"{of!r} is not a format: choose {known}", param_hint="--format")
    if of in TRADE_FORMATS and period is not None:
        raise typer.BadParameter("trades have no period", param_hint="--period")
    if mapping and of != "csv":
        raise typer.BadParameter(f"the columns of {of} are known: --mapping is for csv", param_hint="--mapping")
    named: dict[str, str] = {}
    for pair in (each for text in mapping for each in text.split(",")):
        name, separator, column = pair.partition("=")
        if not separator or not column:
            raise typer.BadParameter(f"{pair!r} is not NAME=COLUMN", param_hint="--mapping")
        if name.strip() not in OWN_COLUMNS:
            known = ", ".join(OWN_COLUMNS)
            raise typer.BadParameter(f"{name.strip()!r} is not one of {known}", param_hint="--mapping")
        named[name.strip()] = column.strip()
    try:
        return Wanted(Ticker.parse(ticker), None if period is None else parse_period(period), named)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error


def _check_origin(settings: Settings, of: str) -> None:
    """A venue's own archive is not mixed with data of the sandbox."""
    if of in OF_ONE_VENUE or of in TRADE_FORMATS:
        try:
            origin.check(settings.data_dir, Origin.EXCHANGES)
        except ConfigurationError as error:
            text = (
                f"{settings.data_dir} is of the sandbox: import a venue's archive into another directory (--data-dir)"
            )
            raise CandlewrightError(text) from error


def _carried_out(bus: KeyedTables, ordered: Import, target: Path) -> Import:
    """Its outcome. Ctrl-C withdraws the part that the driver has not begun; the driver finishes the rest."""
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
                say(f"compared {found.compared:,} of {found.rows:,}")
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


def _show(done: Import, staged: _Staged, wanted: Wanted, output: Output) -> None:
    first, last = (_EPOCH + dt.timedelta(microseconds=time) for time in (staged.first, staged.last))
    counts = {"new": done.new, "same": done.same, "different": done.different}
    if staged.period_seconds is None:
        counts["filled_gaps"] = done.filled_gaps
        row = {"ticker": str(wanted.ticker), "trades": done.rows, **counts, "first": first, "last": last}
        print_rows([row], output, columns=TRADE_COLUMNS, empty="")
        return
    what = {"ticker": str(wanted.ticker), "period": format_period(staged.period_seconds), "candles": done.rows}
    print_rows(
        [what | counts | {"absent": done.absent, "first": first, "last": last}], output, columns=COLUMNS, empty=""
    )


def _report(settings: Settings, done: Import, file: Path, output: Output) -> None:
    """Reports the rows that were not written: the first ones on the screen, and all of them in `file`."""
    found = differences_of(settings.data_dir, done.import_id)
    if not (done.different or done.absent):
        return
    with pq.ParquetFile(found) as stored:
        try:
            with replacing(file) as draft, csv.CSVWriter(str(draft), stored.schema_arrow) as writer:
                for batch in stored.iter_batches():
                    writer.write_batch(batch)
        except OSError as error:
            raise CandlewrightError(f"{file} cannot be written: {error.strerror or error}; see {found}") from error
        shown = next(stored.iter_batches(_SHOWN_DIFFERENCES)).to_pylist()
    found.unlink()
    of_trades = "trade_id" in shown[0]
    if output is Output.table:
        print_rows(shown, output, columns=_TRADE_DIFFERENCES if of_trades else _DIFFERENCE_COLUMNS, empty="")
    count = done.different + done.absent
    what = ("trade" if of_trades else "candle") + ("" if count == 1 else "s")
    say(f"{count:,} {what} not written, because the stored ones stay; {file} lists them all")


def _tidy(settings: Settings, bus: KeyedTables) -> None:
    """Delete the files of interrupted imports."""
    ordered = bus.items(topics.TABLE_IMPORTS)
    folder = folder_of(settings.data_dir)
    for file in folder.iterdir() if folder.is_dir() else ():
        limit = KEEP_SECONDS if file.name.partition(".")[0] in ordered else _ABANDONED_SECONDS
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > limit:
                file.unlink()
