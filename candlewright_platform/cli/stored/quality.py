"""`candlewright quality`: the quality of stored candles."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import typer

from candlewright.cli.output import Output, print_rows, say
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.times import format_nanoseconds, to_nanoseconds
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.stored.exporting import chosen
from core.settings import Settings
from datasets.quality import Quality, examine
from datasets.stored import Series

COLUMNS = ("ticker", "period", "candles", "holes", "unknown", "incomplete", "outliers", "gaps", "equal")


def quality(
    tickers: Sequence[str],
    periods: Sequence[str],
    *,
    start: str | None,
    end: str | None,
    html: Path | None,
    with_trades: bool,
    output: Output,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    try:
        wanted = [parse_period(period) for period in periods]
        bounds = start and to_nanoseconds(start), end and to_nanoseconds(end)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    settings = settings_for(config, data_dir)
    found = [
        _examined(settings, series, bounds[0] or None, bounds[1] or None, with_trades=with_trades)
        for series in chosen(settings, tickers, wanted)
    ]
    if html is not None:
        from datasets.quality_page import write

        try:
            write(found, html)
        except OSError as error:
            raise CandlewrightError(f"{html} cannot be written: {error.strerror}") from error
    if output is Output.json:
        print_rows([_as_json(each) for each in found], output, columns=COLUMNS, empty="")
        return
    print_rows([_as_row(each) for each in found], output, columns=COLUMNS, empty="")
    for each in found:
        what = f"{each.ticker} {format_period(each.period_seconds)}"
        sound = "no candles are stored in this range"
        if each.first is not None and each.last is not None:
            sound = f"no problems, {format_nanoseconds(each.first)} to {format_nanoseconds(each.last)}"
        for problem in each.problems or [sound]:
            say(f"{what}: {problem}")
    if html is not None:
        say(f"the page is {html}")


def _examined(settings: Settings, series: Series, start: int | None, end: int | None, *, with_trades: bool) -> Quality:
    if sys.stderr.isatty():
        say(f"{series.ticker} {format_period(series.period_seconds)}: reading {series.rows} candles")
    past = series.last + 1
    return examine(
        settings,
        series.ticker,
        series.period_seconds,
        start=start or series.first,
        end=end or past,
        with_trades=with_trades,
    )


def _as_row(found: Quality) -> dict[str, object]:
    trades = found.trades
    return {
        "ticker": found.ticker,
        "period": format_period(found.period_seconds),
        "candles": found.rows,
        "holes": found.holes,
        "unknown": found.unknown,
        "incomplete": found.incomplete,
        "outliers": found.outlier_count,
        "gaps": f"{found.gaps_open} open of {found.gaps_open + found.gaps_repaired}",
        "equal": f"{trades.equal} of {trades.compared}" if trades.compared else "",
    }


def _as_json(found: Quality) -> dict[str, object]:
    row = asdict(found)
    row["period"] = format_period(row.pop("period_seconds"))
    for name in ("first", "last"):
        row[name] = row[name] and format_nanoseconds(row[name])
    row["outliers"] = [{"time": format_nanoseconds(each.time), "move": each.move} for each in found.outliers]
    row["unknown_ranges"] = [list(map(format_nanoseconds, each)) for each in found.unknown_ranges]
    row["days"] = [each._asdict() | {"day": str(np.datetime64(each.day, "D"))} for each in found.days]
    return row | {"problems": found.problems}
