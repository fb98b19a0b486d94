"""Why a trigger fired or did not: its text over the stored rows of its tickers."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from candlewright.client import TriggerInfo
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import LATEST_NS, SECOND
from candlewright.wire.periods import format_period
from candlewright.wire.times import format_nanoseconds
from candlewright_cep import Explanation, explain
from candlewright_platform.cli.stored.near_tables import check_tables
from candlewright_platform.cli.stored.near_tickers import near_stored
from candlewright_platform.cli.triggers.backtest import DEFAULT_PERIOD_SECONDS, in_trade_order
from core.settings import Settings
from triggers.events.chained import CHAINED, TRIGGER_EVENTS
from triggers.texts.alerts import engine_parameters
from triggers.texts.check import LIVE_INPUTS, CompiledTrigger, TriggerRules, compile_trigger
from triggers.texts.planned import shared_views

__all__ = ["ATTEMPTS", "Explained", "newest_trades", "run"]

ATTEMPTS = 3
#: The newest rows of a ticker that are examined: bars of each period, trades, events.
BARS, TRADES, EVENTS = 2_000, 20_000, 2_000
#: How far back trades are read; the span grows until there are enough of them.
_FIRST_REACH, _FARTHEST_REACH, _ENOUGH_TRADES = 600 * SECOND, 86_400 * SECOND, 2_000
#: The most tickers whose rows are read for a text that joins tickers.
_MOST_TICKERS = 20


@dataclass(frozen=True, slots=True)
class Explained:
    """`what`: what it ran over, such as `bars of 1m`; empty `tickers` mean all. `views`: the registered and built-in
    views that are computed once for all triggers that read them.
    """

    explanation: Explanation
    tickers: tuple[str, ...]
    what: str
    views: tuple[str, ...] = ()

    def to_dict(self, trigger_id: str, readers: Mapping[str, int]) -> dict[str, Any]:
        """For JSON. `readers`: by registered view, the number of triggers that read it."""
        views = [{"name": name, "triggers": readers.get(name)} for name in self.views]
        about = {"trigger_id": trigger_id, "tickers": list(self.tickers), "over": self.what, "views": views}
        return about | self.explanation.to_dict()


def run(
    settings: Settings,
    trigger: TriggerInfo,
    views: Mapping[str, str],
    *,
    ticker: str | None,
    at: int | None,
    attempts: int = ATTEMPTS,
) -> Explained:
    """`views`: the texts of those that the trigger reads; `ticker`: the one asked about; `at` in ns (default: now).

    Raises TriggerRejected, and CandlewrightError where no ticker is named or nothing of it is stored.
    """
    compiled = compile_trigger(trigger.sql, trigger.parameters, TriggerRules.of(settings.triggers), views=views)
    wanted = _tickers(compiled, trigger.tickers, ticker)
    check_tables(settings)
    periods = sorted({period or DEFAULT_PERIOD_SECONDS for period in compiled.periods}) if _reads_bars(compiled) else []
    tables = {name: source.schema.empty_table() for name, source in LIVE_INPUTS.items()}
    if compiled.reads_trades:
        tables["ticks"] = pa.concat_tables(newest_trades(settings, each, at) for each in wanted)
    if periods:
        tables["ohlc"] = pa.concat_tables(_bars(settings, each, period, at) for each in wanted for period in periods)
    if compiled.reads_events:
        tables[TRIGGER_EVENTS] = _events(settings, wanted, compiled.sources, at, own=trigger.trigger_id)
    what = " and ".join(
        [
            *(["trades"] if compiled.reads_trades else []),
            *(f"bars of {format_period(each)}" for each in periods),
            *(["events"] if compiled.reads_events else []),
        ]
    )
    if not any(table.num_rows for table in tables.values()):
        raise CandlewrightError(_nothing_stored(settings, compiled, wanted, periods, what, at))
    default = "ohlc" if compiled.is_on_bars else "ticks"
    values = engine_parameters(trigger.parameters)
    found = explain(trigger.sql, {**tables, **views}, values, at=at, attempts=attempts, table_name=default)
    return Explained(found, tuple(wanted), what, tuple(shared_views(compiled)))


def _tickers(compiled: CompiledTrigger, tickers: Sequence[str], ticker: str | None) -> list[str]:
    """The tickers whose rows are read; empty for all tickers, of which only events can be read."""
    needs_all = compiled.query.needs_merge
    if ticker is not None and tickers and ticker not in tickers:
        raise CandlewrightError(f"the trigger does not see {ticker}: its tickers are {_listed(tickers)}")
    if needs_all and tickers:
        if len(tickers) > _MOST_TICKERS:
            raise CandlewrightError(
                f"the trigger takes the rows of its {len(tickers)} tickers together; {_MOST_TICKERS} can be explained"
            )
        return list(tickers)
    if ticker is not None:
        return [ticker]
    if len(tickers) == 1 or (compiled.is_on_events and not tickers):
        return list(tickers)
    seen = f"the trigger has {len(tickers)} tickers" if tickers else "the trigger has all active tickers"
    raise CandlewrightError(f"{seen}: name one with --ticker{f' ({_listed(tickers)})' if tickers else ''}")


def _nothing_stored(
    settings: Settings,
    compiled: CompiledTrigger,
    tickers: Sequence[str],
    periods: Sequence[int],
    what: str,
    at: int | None,
) -> str:
    before = "" if at is None else f" before {format_nanoseconds(at)}"
    if compiled.is_on_events:
        of_triggers = f" of {_listed(compiled.sources)}" if compiled.sources else ""
        on_tickers = f" on {_listed(tickers)}" if tickers else ""
        return f"no events{of_triggers}{on_tickers} are stored{before}"
    nothing = f"no {what} of {_listed(tickers)} are stored"
    if not any(_has_any(settings, each, periods, with_trades=compiled.reads_trades) for each in tickers):
        asked = f"; a trigger stores none, c.realtime('{tickers[0]}') does" if compiled.reads_trades else ""
        return f"{nothing}{near_stored(settings, tickers[0]) or asked}"
    return f"{nothing}{f' shortly{before}' if before else ' of the last hours'}; --at names another time"


def _has_any(settings: Settings, ticker: str, periods: Sequence[int], *, with_trades: bool) -> bool:
    from iceberg import OHLC, has_files_in, load_table, open_catalog
    from iceberg.read import tick_bounds

    if with_trades and tick_bounds(settings, ticker, start_ns=0, end_ns=LATEST_NS) is not None:
        return True
    table = load_table(open_catalog(settings), OHLC)
    return any(has_files_in(table, ticker, period, start_ns=0, end_ns=LATEST_NS) for period in periods)


def _listed(tickers: Sequence[str]) -> str:
    return ", ".join(tickers[:3]) + (" …" if len(tickers) > 3 else "")


# ---- the rows
def _reads_bars(compiled: CompiledTrigger) -> bool:
    return compiled.is_on_bars or any(label > 0 for label in compiled.labels)


def _bars(settings: Settings, ticker: str, period: int, at: int | None) -> pa.Table:
    """The closed bars; the last one may have opened `at` that time."""
    from iceberg.read import read_ohlc

    now = time.time_ns()
    length = period * SECOND
    end = min(now, now if at is None else at + length)
    found = read_ohlc(settings, ticker, period, start_ns=max(0, end - BARS * length), end_ns=end).cast(
        LIVE_INPUTS["ohlc"].schema
    )
    opened = found["open_time"].cast(pa.int64())
    return found.filter(pc.less_equal(opened, now - length))


def newest_trades(settings: Settings, ticker: str, at: int | None) -> pa.Table:
    """The newest trades, however old they are."""
    from iceberg.read import read_ticks, tick_bounds

    found = LIVE_INPUTS["ticks"].schema.empty_table()
    bounds = tick_bounds(settings, ticker, start_ns=0, end_ns=time.time_ns() if at is None else at + 1)
    if bounds is None:
        return found
    reach = _FIRST_REACH
    while True:
        start = max(bounds[0], bounds[1] - reach)
        found = read_ticks(settings, ticker, start_ns=start, end_ns=bounds[1])
        if found.num_rows >= _ENOUGH_TRADES or start == bounds[0] or reach >= _FARTHEST_REACH:
            break
        reach *= 4
    return in_trade_order(found).cast(LIVE_INPUTS["ticks"].schema).slice(max(0, found.num_rows - TRADES))


def _events(
    settings: Settings, tickers: Sequence[str], sources: Sequence[str], at: int | None, *, own: str
) -> pa.Table:
    """The newest events, in time order. Without `sources`, those of triggers that read no events."""
    from iceberg.read import read_newest_events

    end = time.time_ns() if at is None else at + 1
    found = read_newest_events(settings, tickers=tickers, trigger_ids=sources, end_ns=end, least=EVENTS)
    wanted = pc.not_equal(found["trigger_id"], own)
    if not sources:
        key_type = found.schema.field("context").type.key_type
        wanted = pc.and_(wanted, pc.is_null(pc.map_lookup(found["context"], pa.scalar(CHAINED, key_type), "first")))
    found = found.filter(wanted)
    schema = LIVE_INPUTS[TRIGGER_EVENTS].schema
    return found.select(schema.names).cast(schema).slice(max(0, found.num_rows - EVENTS))
