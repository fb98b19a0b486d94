"""`candlewright export`: stored candles as files for other tools."""

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import typer

from candlewright.cli.output import Output, print_rows, say
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.times import format_nanoseconds, to_nanoseconds
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.stored.near_tickers import near_stored
from candlewright_platform.lake import are_near
from core.settings import Settings
from datasets.layouts import LAYOUTS
from datasets.stored import Series, read_candles, stored_series

COLUMNS = ("ticker", "period", "candles", "holes", "unknown", "incomplete", "first", "last", "files")


def export(
    tickers: Sequence[str],
    to: str,
    periods: Sequence[str],
    *,
    start: str | None,
    end: str | None,
    folder: Path,
    manifest: Path | None,
    with_trades: bool,
    output: Output,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    if to not in LAYOUTS:
        raise typer.BadParameter(f"{to!r} is not a layout: choose {', '.join(LAYOUTS)}", param_hint="--to")
    if manifest is not None and to != "parquet":
        raise typer.BadParameter("a manifest is made of Parquet files: leave --to out", param_hint="--manifest")
    if with_trades and manifest is None:
        raise typer.BadParameter("trades are exported with a manifest: give --manifest FILE", param_hint="--trades")
    try:
        wanted = [parse_period(period) for period in periods]
        first, last = start and to_nanoseconds(start), end and to_nanoseconds(end)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    settings = settings_for(config, data_dir)
    if manifest is not None:
        from candlewright_platform.cli.stored import manifests

        series = chosen(settings, tickers, wanted)
        manifests.export(
            settings,
            series,
            start=first or None,
            end=last or None,
            folder=folder,
            manifest=manifest,
            output=output,
            with_trades=with_trades,
        )
        return
    rows = [
        _written(settings, series, to, first or None, last or None, folder)
        for series in chosen(settings, tickers, wanted)
    ]
    print_rows(rows, output, columns=COLUMNS, empty="")
    if output is Output.table:
        _say_what_is_missing(rows, to)


def chosen(settings: Settings, tickers: Sequence[str], periods: Sequence[int]) -> list[Series]:
    """The stored series that the command names; raises CandlewrightError for a name that fits none."""
    if not are_near(settings):
        raise CandlewrightError(f"found no tables in {settings.data_dir}: name the platform's folder with --data-dir")
    found = stored_series(settings, tickers, periods)
    for ticker in tickers:
        if not any(fnmatchcase(series.ticker, ticker) for series in found):
            of = f" with {' or '.join(map(format_period, periods))} candles" if periods else ""
            raise CandlewrightError(f"nothing stored fits {ticker}{of}{near_stored(settings, ticker)}")
    if not found:
        raise CandlewrightError(f"no candles are stored in {settings.data_dir}")
    return found


def _written(
    settings: Settings, series: Series, to: str, start: int | None, end: int | None, folder: Path
) -> dict[str, object]:
    layout = LAYOUTS[to]
    if sys.stderr.isatty():
        say(f"{series.ticker} {format_period(series.period_seconds)}: {series.rows} candles are stored")
    candles = read_candles(settings, series.ticker, series.period_seconds, start=start, end=end)
    table = candles.table if layout.keeps_incomplete else candles.whole
    try:
        files = layout.write(candles, folder) if table.num_rows else []
    except OSError as error:
        raise CandlewrightError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    bounds = table["open_time"].cast("int64").to_numpy()[[0, -1]] * 1_000 if table.num_rows else [None, None]
    return {
        "ticker": series.ticker,
        "period": format_period(series.period_seconds),
        "candles": table.num_rows,
        "holes": candles.holes,
        "unknown": candles.unknown,
        "incomplete": candles.incomplete,
        "first": bounds[0] and format_nanoseconds(int(bounds[0])),
        "last": bounds[1] and format_nanoseconds(int(bounds[1])),
        "files": str(files[0]) if len(files) == 1 else f"{len(files)} in {folder}",
    }


def _say_what_is_missing(rows: Sequence[dict[str, object]], to: str) -> None:
    unknown = sum(int(str(row["unknown"])) for row in rows)
    incomplete = sum(int(str(row["incomplete"])) for row in rows)
    if unknown:
        say(f"{unknown} candles inside these ranges are not stored: `candlewright history` fetches them")
    if incomplete:
        kept = "are marked in the column complete" if LAYOUTS[to].keeps_incomplete else "were left out"
        say(f"{incomplete} candles are known to be incomplete and {kept}")
