"""The made part of a recipe's page, and the index of all recipes."""

import numpy as np
import pyarrow.compute as pc

from documentation.cookbook import picture
from documentation.cookbook.figures import Numbers, Run
from documentation.cookbook.recipes import FOLDER, Recipe
from documentation.markdown import table

INDEX = FOLDER / "index.md"
_FEW = 30
_POINTS = 10_000
_GROUPS = ("Breakouts", "Reversals", "Trend", "Sessions", "Trades", "Several tickers and triggers")
_HEAD = """# Cookbook

{count} patterns as trigger texts. Each page has the idea, the SQL, a picture of a match in recorded market data, how
often the text fires there, and what the price did afterwards. Copy the SQL into a file, run it over your own bars
with `candlewright trigger try`, then register the same file with `candlewright trigger add`.
[Triggers](../triggers.md) explains the language. Before you rely on a figure, see
[how to read them](#how-to-read-the-figures).
"""
_NOTES = """## How to read the figures

- A match counts from the close of the bar, or the trade, that decides it: its column `at`. Nothing later is used to
  find it. Changes are measured from that price in basis points (bp, hundredths of a percent), without fees, spread or
  slippage, which are often larger than the mean change.
- *Every row* is the baseline: the same change after each row of the recording. A pattern that does no better than the
  baseline has found nothing.
- ± is one standard error, as if matches were independent. Matches that are close together share their future, so the
  true error is larger. A difference of less than two errors is noise; with three changes for each of about thirty
  recipes, four or five differences exceed that by chance.
- A picture shows one match: the middle one, or one with a clear shape. The table counts all of them.
- Each recording is one market at one time. The figures describe it; they are not a forecast.

`python -m documentation.cookbook --data DIR` computes figures and pictures from the recordings. The recordings
themselves are not part of the repository.
"""


def made(run: Run) -> str:
    """Picture, counts and changes; the commands that run the text."""
    parts = [
        f"![{_described(run)}](images/{run.recipe.name}.svg)",
        "## On recorded data",
        _counts(run),
        _changes(run),
        "## Run it",
        _commands(run.recipe),
    ]
    return "\n" + "\n\n".join(parts) + "\n\n"


def _described(run: Run) -> str:
    what = "Candles" if run.recording.period_seconds else "Trades"
    return f"{what} of {run.recording.what.partition(',')[0]} around a match, with a dot where the event fires"


def _counts(run: Run) -> str:
    time = run.rows["open_time" if run.recording.period_seconds else "ts"]
    first, last = (value.as_py() for value in (pc.min(time), pc.max(time)))
    days = (last - first).total_seconds() / 86_400
    found, of = run.matches.num_rows, f"{run.rows.num_rows:,} rows"
    often = f", {found / days:.1f} a day" if days >= 0.9 else ""
    form = (
        "%Y-%m-%d"
        if run.recording.period_seconds == 86_400
        else "%Y-%m-%d %H:%M:%S"
        if days < 0.1
        else "%Y-%m-%d %H:%M"
    )
    settings = ", ".join(f"`{name}={value}`" for name, value in run.recipe.settings.items())
    given = f" With {settings}." if settings else ""
    drawn = f" The picture shows number {picture.number(run)}." if found > 1 else ""
    return (
        f"**{found:,} {'match' if found == 1 else 'matches'}** in {of}{often}: {run.recording.what}, "
        f"{first:{form}} to {last:{form}} UTC.{given}{drawn}"
    )


def _changes(run: Run) -> str:
    after = [each for each in run.after if len(each.matches)]
    if not after:
        return "The recording ends too soon after the matches to say what followed."
    unit = "bars" if run.recording.period_seconds else "seconds"
    size = np.abs if run.recipe.expects == "either" else np.asarray
    name = "mean change, either way" if run.recipe.expects == "either" else "mean change"
    rows = [
        [f"{name}, after a match", *(_mean(size(each.matches)) for each in after)],
        [f"{name}, after every row", *(_mean(size(each.every), error=False) for each in after)],
    ]
    if run.recipe.expects != "either":
        word, sign = ("higher", 1) if run.recipe.expects == "up" else ("lower", -1)
        rows.append([f"{word}, after a match", *(_share(each.matches * sign) for each in after)])
        rows.append([f"{word}, after every row", *(_share(each.every * sign) for each in after)])
    rows.append(["matches counted", *(f"{len(each.matches):,}" for each in after)])
    found = table(["", *(f"{each.steps} {unit} later" for each in after)], rows)
    if max(len(each.matches) for each in after) < _FEW:
        found += f"\n\nFewer than {_FEW} matches: too few to conclude anything from these changes."
    return found


def _mean(changes: Numbers, *, error: bool = True) -> str:
    """In basis points."""
    points = changes * _POINTS
    if not error or len(points) < 2:
        return f"{points.mean():+.1f} bp"
    return f"{points.mean():+.1f} ± {points.std(ddof=1) / len(points) ** 0.5:.1f} bp"


def _share(changes: Numbers) -> str:
    return f"{(changes > 0).mean():.0%}"


def _commands(recipe: Recipe) -> str:
    given = "".join(f" --param {name}={value}" for name, value in recipe.text.parameters.items())
    tickers = recipe.text.tickers or (() if recipe.reads else ("BTC/USDT.BINANCE",))
    if len(tickers) == 1:
        data = f" --ticker {tickers[0]} --since 2024-01-01"
    else:
        data = f" --input {recipe.input}={recipe.input}.parquet"
    named = "".join(f" --ticker {ticker}" for ticker in tickers)
    file = f"--file {recipe.name}.sql"
    return (
        f"    candlewright trigger try {file}{given}{data}\n    candlewright trigger add {file}{given}{named} --follow"
    )


def index(recipes: dict[str, Recipe]) -> str:
    parts = [_HEAD.format(count=len(recipes))]
    for group in _GROUPS:
        rows = [
            (
                f"[![{each.title}](images/{each.name}.svg)]({each.name}.md)",
                f"**[{each.title}]({each.name}.md)**<br>{each.idea}",
                _first_line(each),
            )
            for each in recipes.values()
            if each.group == group
        ]
        if rows:
            parts.append(f"## {group}\n\n{table(('a match', 'idea', 'on recorded data'), rows)}\n")
    return "\n".join([*parts, _NOTES])


def _first_line(recipe: Recipe) -> str:
    """How often it fires, as its page says."""
    line = next(line for line in recipe.made.splitlines() if line.startswith("**"))
    return line.partition(" UTC.")[0].partition(":")[0]
