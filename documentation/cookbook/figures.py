"""Where a recipe fires on its recording, and how the price changed afterwards."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.engine import evaluate_named
from documentation.cookbook.recipes import Recipe
from documentation.cookbook.recordings import RECORDINGS, Recording
from triggers.texts.check import LIVE_INPUTS

STEPS = (5, 15, 60)
_SECOND = 1_000_000_000
Numbers = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Prices:
    """One ticker's prices in time order: closes of bars, or trades."""

    times: Times
    values: Numbers


@dataclass(frozen=True, slots=True)
class After:
    """Relative changes of the price after a number of bars or seconds: of matches, and of every row."""

    steps: int
    matches: Numbers
    every: Numbers


@dataclass(frozen=True, slots=True)
class Run:
    """A recipe over its recording: the rows, the matches, and the changes after both."""

    recipe: Recipe
    recording: Recording
    rows: pa.Table
    matches: pa.Table
    after: tuple[After, ...]


class Recordings:
    """The recordings of a directory, each read once."""

    def __init__(self, directory: Path, recipes: dict[str, Recipe]) -> None:
        self._directory = directory
        self._recipes = recipes
        self._tables: dict[str, pa.Table] = {}

    def table(self, name: str) -> pa.Table:
        if name not in self._tables:
            self._tables[name] = RECORDINGS[name].table(self._directory)
        return self._tables[name]

    def matches(self, recipe: Recipe) -> pa.Table:
        """Without what the end of the recording decides: a window or a silence that ends after it."""
        parameters = recipe.text.parameters | recipe.settings
        table = self.events(recipe.reads) if recipe.reads else self.table(recipe.recording)
        found = evaluate_named(recipe.text.sql, {recipe.input: table}, parameters, table_name=recipe.input)
        rows = self.table(recipe.recording)
        last = pc.max(rows["open_time" if "open_time" in rows.column_names else "ts"])
        return found.filter(pc.less_equal(found["at"], last))

    def events(self, names: tuple[str, ...]) -> pa.Table:
        """What the triggers of these recipes would have fired."""
        found = []
        for name in names:
            for number, row in enumerate(self.matches(self._recipes[name]).to_pylist(), 1):
                columns = json.dumps(row, default=str)
                event = {"trigger_id": name, "event_id": f"{name}-{number}", "fired_at": row["at"]}
                found.append(event | {"ticker": row["ticker"], "columns": columns})
        return pa.Table.from_pylist(found, LIVE_INPUTS["trigger_events"].schema).sort_by("fired_at")

    def run(self, recipe: Recipe) -> Run:
        recording = RECORDINGS[recipe.recording]
        rows, matches = self.table(recipe.recording), self.matches(recipe)
        return Run(recipe, recording, rows, matches, changes_after(recording, rows, matches))


def nanoseconds(column: pa.ChunkedArray) -> Times:
    times: Times = column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy()
    return times


def prices(recording: Recording, rows: pa.Table, ticker: str) -> Prices:
    own = rows.filter(pc.equal(rows["ticker"], ticker))
    time, price = ("open_time", "close") if recording.period_seconds else ("ts", "price")
    return Prices(nanoseconds(own[time]), own[price].to_numpy())


def changes_after(recording: Recording, rows: pa.Table, matches: pa.Table) -> tuple[After, ...]:
    """A match counts from the price of the row at `at`, which is what was known when it fired."""
    found = []
    for steps in STEPS:
        of_matches, of_every = [], []
        for ticker in pc.unique(matches["ticker"]).to_pylist():
            own = prices(recording, rows, ticker)
            at = nanoseconds(matches.filter(pc.equal(matches["ticker"], ticker))["at"])
            now = np.searchsorted(own.times, at, side="right") - 1
            of_matches.append(_changes(recording, own, now, at, steps))
            every = np.arange(len(own.times))
            of_every.append(_changes(recording, own, every, own.times, steps))
        none = [np.empty(0)]
        found.append(After(steps, np.concatenate(of_matches or none), np.concatenate(of_every or none)))
    return tuple(found)


def _changes(recording: Recording, own: Prices, now: Times, at: Times, steps: int) -> Numbers:
    """From row `now` to this many bars later, or to the last trade this many seconds after `at`, if recorded."""
    if recording.period_seconds:
        later = now + steps
        known = later < len(own.times)
    else:
        end = at + steps * _SECOND
        later = np.searchsorted(own.times, end, side="right") - 1
        known = end <= own.times[-1]
    return own.values[later[known]] / own.values[now[known]] - 1
