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
from candlewright_platform.cli.backtest import DEFAULT_PERIOD_SECONDS, check_tables
from candlewright_platform.cli.explaining import newest_trades
from core.settings import Settings
from triggers.check import INPUTS, CompiledTrigger, TriggerRules, compile_trigger
from triggers.planned import Measured, TriggerPlan, measure, planned, to_dict

__all__ = ["Planned", "run"]

_MEASURED_NS = 3_600 * SECOND
#: How many hours back (or bars, of longer ones) it is looked for bars.
_REACHES = (2, 200, 1_000_000)
#: Tickers whose rows are measured.
_MOST_TICKERS = 20


@dataclass(frozen=True, slots=True)
class Planned:
    """`note`: why nothing was measured; `what`: what was, as `bars of 1m`."""

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
) -> Planned:
    """Without tickers nothing is measured. Raises TriggerRejected."""
    rules = TriggerRules.of(settings.triggers)
    compiled = compile_trigger(sql, parameters, rules, views=views)
    plan, warnings = planned(compiled, rules), compiled.query.warnings
    if not tickers:
        return Planned(plan, warnings, None, note="--ticker names the tickers that it is measured over")
    if compiled.query.joined is not None or compiled.is_on_events:
        what = "joins inputs by time" if compiled.query.joined is not None else "reads trigger_events"
        return Planned(plan, warnings, None, note=f"a text that {what} is not measured")
    wanted = list(dict.fromkeys(tickers))[:_MOST_TICKERS]
    try:
        check_tables(settings)
        rows, what = _last_hour(settings, compiled, wanted)
    except CandlewrightError as error:
        return Planned(plan, warnings, None, note=str(error))
    if not rows.num_rows:
        return Planned(plan, warnings, None, note=f"no {what} of these tickers are stored")
    return Planned(plan, warnings, measure(compiled.query, rows, wanted), what)


def _last_hour(settings: Settings, compiled: CompiledTrigger, tickers: Sequence[str]) -> tuple[pa.Table, str]:
    """The rows of the hour before the newest one, in order of time; of trades at most the newest 20,000 of a ticker."""
    if compiled.is_on_bars:
        period = compiled.options.period_seconds or DEFAULT_PERIOD_SECONDS
        parts, column = [_newest_bars(settings, ticker, period) for ticker in tickers], "open_time"
        what, length = f"bars of {format_period(period)}", max(_MEASURED_NS, period * SECOND)
    else:
        parts, column = [newest_trades(settings, ticker, None) for ticker in tickers], "ts_ns"
        what, length = "trades", _MEASURED_NS
    rows = pa.concat_tables(parts)
    times = rows[column].cast(pa.int64())
    hour = rows.filter(pc.greater(times, (pc.max(times).as_py() or 0) - length))
    return hour if len(tickers) == 1 else hour.sort_by(column), what


def _newest_bars(settings: Settings, ticker: str, period: int) -> pa.Table:
    """Those of about the last hour; from further back where it takes that."""
    from iceberg.read import read_ohlc

    now = time.time_ns()
    found = INPUTS["ohlc"].schema.empty_table()
    for reach in _REACHES:
        start = max(0, now - max(_MEASURED_NS, period * SECOND) * reach)
        found = read_ohlc(settings, ticker, period, start_ns=start, end_ns=now).cast(INPUTS["ohlc"].schema)
        if found.num_rows:
            break
    return found
