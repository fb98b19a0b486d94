"""What a trigger keeps, when it fires, and what it costs over the last stored hour of its tickers."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period
from candlewright_platform.cli.stored.near_tables import check_tables
from candlewright_platform.cli.triggers.backtest import DEFAULT_PERIOD_SECONDS
from candlewright_platform.cli.triggers.explanation import newest_trades
from core.settings import Settings
from triggers.texts.check import INPUTS, TriggerRules, compile_trigger
from triggers.texts.planned import Measured, TriggerPlan, measure, measure_join, planned, to_dict

__all__ = ["Planned", "run"]

_MEASURED_NS = 3_600 * SECOND
#: The event time of trades, and of bars.
_TIMES = ("ts_ns", "open_time")
#: How far back to search for bars, in hours, or in periods of longer bars.
_REACHES = (2, 200, 1_000_000)
#: Tickers whose rows are measured.
_MOST_TICKERS = 20


@dataclass(frozen=True, slots=True)
class Planned:
    """`note`: why nothing was measured; `what`: what was measured, such as `bars of 1m`."""

    plan: TriggerPlan
    warnings: tuple[str, ...]
    measured: Measured | None
    what: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        about = {"warnings": list(self.warnings), "over": self.what, "note": self.note}
        return to_dict(self.plan, self.measured) | about


def run(
    settings: Settings,
    sql: str,
    parameters: Mapping[str, str],
    *,
    tickers: Sequence[str],
    views: Mapping[str, str] | None = None,
    readers: Mapping[str, int] | None = None,
) -> Planned:
    """Without tickers nothing is measured. `readers`: see `planned`. Raises TriggerRejected."""
    rules = TriggerRules.of(settings.triggers)
    compiled = compile_trigger(sql, parameters, rules, views=views)
    plan, warnings = planned(compiled, rules, readers), compiled.warnings_for(tickers)
    if not tickers:
        return Planned(plan, warnings, None, note="--ticker names the tickers that it is measured over")
    if compiled.reads_events:
        return Planned(plan, warnings, None, note="a text that reads trigger_events is not measured")
    wanted = list(dict.fromkeys(tickers))[:_MOST_TICKERS]
    periods = compiled.labels
    if not periods:
        periods = (compiled.options.period_seconds or DEFAULT_PERIOD_SECONDS,) if compiled.is_on_bars else (0,)
    try:
        check_tables(settings)
        rows = {period: _newest(settings, period, wanted) for period in periods}
    except CandlewrightError as error:
        return Planned(plan, warnings, None, note=str(error))
    rows = _last_hour(rows)
    what = " and ".join(_named(period) for period in periods)
    missing = [_named(period) for period, found in rows.items() if not found.num_rows]
    if missing:
        return Planned(plan, warnings, None, note=f"no {' or '.join(missing)} of these tickers are stored")
    if compiled.query.joined is None:
        return Planned(plan, warnings, measure(compiled.query, rows[periods[0]], wanted), what)
    places = {("ohlc" if period else "ticks", period): found for period, found in rows.items()}
    return Planned(plan, warnings, measure_join(compiled.query, places, wanted), what)


def _named(period: int) -> str:
    return f"bars of {format_period(period)}" if period else "trades"


def _newest(settings: Settings, period: int, tickers: Sequence[str]) -> pa.Table:
    """In time order: bars, or trades for period 0; at most the newest 20,000 of a ticker."""
    parts = [_newest_bars(settings, t, period) if period else newest_trades(settings, t, None) for t in tickers]
    found = pa.concat_tables(parts)
    return found if len(tickers) == 1 else found.sort_by(_TIMES[period > 0])


def _last_hour(rows: Mapping[int, pa.Table]) -> dict[int, pa.Table]:
    """The rows of the last hour that every input has reached, by period; for a longer period, the last bar."""
    ends = {
        period: pc.add(found[_TIMES[period > 0]].cast(pa.int64()), period * SECOND) for period, found in rows.items()
    }
    newest = min(pc.max(own).as_py() or 0 for own in ends.values())
    return {
        period: rows[period].filter(
            pc.and_(pc.less_equal(own, newest), pc.greater(own, newest - max(_MEASURED_NS, period * SECOND)))
        )
        for period, own in ends.items()
    }


def _newest_bars(settings: Settings, ticker: str, period: int) -> pa.Table:
    """The bars of about the last hour, or, if it has none, earlier ones."""
    from iceberg.read import read_ohlc

    now = time.time_ns()
    found = INPUTS["ohlc"].schema.empty_table()
    for reach in _REACHES:
        start = max(0, now - max(_MEASURED_NS, period * SECOND) * reach)
        found = read_ohlc(settings, ticker, period, start_ns=start, end_ns=now).cast(INPUTS["ohlc"].schema)
        if found.num_rows:
            break
    return found
