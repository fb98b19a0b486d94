"""Reads the past of triggers that look back when they begin: stored rows, and rows on the bus that are not stored yet.

Every stored row was on the bus before, so the table is read first. Then the bus shows which of these rows are after the
boundary (the end of the micro-batch), and has the rows before it that the table lacks: rows that tables have not taken
are held on the bus by their readers, whose positions are read before the table.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bus import Bus, StoredRecord
from bus import topics as bus_topics
from bus.api import partition_of
from candlewright.wire.errors import OffsetOutOfRange
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import read_range
from flink_replacement_spark.engine.checked_records import CheckedRecords
from flink_replacement_spark.live.tick_rows import rows_of_trades
from flink_replacement_spark.triggers.source import Span, TriggerPlan
from iceberg import TICKS, read_past_bars, read_past_ticks
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.records.lookback import LookbackRequest, past_bars, past_ticks
from triggers.records.rows import BarIntake, TickIntake, ticker_of
from triggers.texts.check import INPUTS

__all__ = ["look_back"]

log = get_logger()

#: The most rows of one look-back; the settings bound those of one ticker.
_ROWS = 1_000_000
_RECORDS = 200_000
_ATTEMPTS = 3
#: Trades are not stored unless a request wants that: they are searched on the bus, this far back and in steps of this
#: size.
_KEPT_RECORDS, _KEPT_BYTES, _KEPT_STEP = 20_000, 32 << 20, 500
#: How long a trade may take to reach the bus.
_WAY_MS = 10_000
_BARS = INPUTS["ohlc"].schema


#: Records by partition, first and end offset, read once for all look-backs of a micro-batch.
_Steps = dict[tuple[int, int, int], list[StoredRecord]]


class _TooMuch(Exception):
    """A look-back exceeds its bounds."""


def look_back(
    bus: Bus, settings: Settings | None, plan: TriggerPlan, *, live: TriggerPartition, output: TriggerOutput
) -> None:
    """Feed the triggers of `output.lookbacks` their past. A trigger whose past cannot be read is suspended."""
    found: dict[tuple[object, ...], pa.Table | str] = {}
    steps: _Steps = {}
    for request in output.lookbacks:
        key = (request.is_on_bars, request.period_seconds, request.tickers, request.since_ns)
        if key not in found:
            found[key] = (
                "there are no tables to look back at"
                if settings is None
                else _past(bus, settings, plan, request, steps)
            )
        past = found[key]
        if isinstance(past, str):
            live.refuse_lookback(request, past, output)
        else:
            live.look_back(request, past, output)


def _past(bus: Bus, settings: Settings, plan: TriggerPlan, request: LookbackRequest, steps: _Steps) -> pa.Table | str:
    """The rows, or the reason why they cannot be read."""
    reason = ""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if request.is_on_bars:
                found = _bars(bus, settings, plan, request)
            else:
                found = _ticks(bus, settings, plan, request, steps)
        except _TooMuch as error:
            return str(error)
        except OffsetOutOfRange:
            # Records that the bus trimmed meanwhile are in the table now.
            reason = "the bus trimmed rows while they were read"
            continue
        except Exception as error:  # An unreachable table must not stop triggers that do not look back.
            log.warning("lookback_failed", trigger_id=request.trigger_id, attempt=attempt, error=str(error))
            reason = f"the stored rows could not be read: {error}"
            continue
        if found.num_rows > _ROWS:
            return _too_many()
        return found
    return reason


def _too_many() -> str:
    return f"the look-back has more than {_ROWS:,} rows; ask for a shorter one, or fewer tickers"


def _ticks(bus: Bus, settings: Settings, plan: TriggerPlan, request: LookbackRequest, steps: _Steps) -> pa.Table:
    unstored = bus.holds(bus_topics.TICKS, bus_topics.READER_BAR_MAKER)
    waiting = _waiting_rows(bus)
    stored = _bounded(read_past_ticks(settings, request.tickers, request.since_ns, limit=_ROWS + 1))
    stored = pa.concat_tables([stored, _waiting_trades(bus, waiting, request)])
    states = bus.state(bus_topics.TICKS)
    # The reader of live trades puts rejected records aside.
    checked = CheckedRecords(settings.ticks.max_ahead_ns)
    older, recent, later = [], [], []
    for span in _spans(plan, bus_topics.TICKS, request, len(states)):
        state = states[span.partition]
        first = max(state.first, min(unstored.get(span.partition, 0), span.end))
        older += _kept(bus, Span(span.topic, span.partition, state.first, first), request.since_ns, steps)
        recent.append(Span(span.topic, span.partition, first, span.end))
        later.append(Span(span.topic, span.partition, span.end, state.end))
    own = set(request.tickers)
    before, behind = (
        TickIntake().rows([value for value in values if ticker_of(value) in own])
        for values in map(checked.values, ([*older, *_records(bus, recent)], _records(bus, later)))
    )
    return past_ticks(stored, before, behind, since_ns=request.since_ns)


def _waiting_rows(bus: Bus) -> dict[int, int]:
    """By partition, the offset from which trades are not yet in the table."""
    if not bus.partitions(bus_topics.TICK_ROWS):
        return {}
    held = bus.holds(bus_topics.TICK_ROWS, bus_topics.READER_TICK_TABLE)
    return {
        partition: max(state.first, held.get(partition, 0))
        for partition, state in enumerate(bus.state(bus_topics.TICK_ROWS))
    }


def _waiting_trades(bus: Bus, waiting: dict[int, int], request: LookbackRequest) -> pa.Table:
    """Trades of the request's tickers that the live query has counted and the table may not have yet."""
    found = [TICKS.arrow_schema.empty_table()]
    own = {partition_of(ticker.encode(), len(waiting)) for ticker in request.tickers} if waiting else set()
    ends = bus.state(bus_topics.TICK_ROWS) if own else []
    rows = 0
    for partition in own:
        for part in read_range(
            bus, bus_topics.TICK_ROWS, partition, first=waiting[partition], last=ends[partition].end - 1
        ):
            trades = rows_of_trades(part)
            trades = trades.filter(pc.is_in(trades["ticker"], value_set=pa.array(request.tickers, pa.string())))
            found.append(trades.filter(pc.greater_equal(trades["ts_ns"], request.since_ns)))
            rows += found[-1].num_rows
            if rows > _ROWS:
                raise _TooMuch(_too_many())
    return pa.concat_tables(found)


def _kept(bus: Bus, span: Span, since_ns: int, steps: _Steps) -> list[StoredRecord]:
    """The last records of the span, as far back as is wanted and bounds allow. `steps`: what was read of it before."""
    found: list[list[StoredRecord]] = []
    size = 0
    first = span.end
    while first > span.first and span.end - first < _KEPT_RECORDS and size < _KEPT_BYTES:
        end, first = first, max(span.first, (first - 1) // _KEPT_STEP * _KEPT_STEP)
        step = steps.get((span.partition, first, end))
        if step is None:
            step = [
                row for part in read_range(bus, span.topic, span.partition, first=first, last=end - 1) for row in part
            ]
            steps[span.partition, first, end] = step
        found.append(step)
        size += sum(len(row.value) for row in step)
        if step and step[0].timestamp_ms + _WAY_MS < since_ns // 1_000_000:
            break
    return [row for step in reversed(found) for row in step]


def _bars(bus: Bus, settings: Settings, plan: TriggerPlan, request: LookbackRequest) -> pa.Table:
    period = request.period_seconds
    unstored = bus.holds(bus_topics.OHLC, bus_topics.READER_BAR_TABLE)
    stored = _bounded(read_past_bars(settings, request.tickers, period, start_ns=request.since_ns, limit=_ROWS + 1))
    states = bus.state(bus_topics.OHLC)
    spans = _spans(plan, bus_topics.OHLC, request, len(states))
    recent = [
        Span(span.topic, span.partition, max(states[span.partition].first, min(first, span.end)), span.end)
        for span in spans
        for first in (unstored.get(span.partition, 0),)
    ]
    later = [Span(span.topic, span.partition, span.end, states[span.partition].end) for span in spans]
    # As for trades, bars that clients dated too far ahead are skipped.
    checked = CheckedRecords(settings.ticks.max_ahead_ns)
    made = BarIntake().rows(checked.values(_records(bus, recent)))
    before = [bars.every for bars in made.values()]
    behind = [bars.first for bars in BarIntake().rows(checked.values(_records(bus, later))).values()]
    keep = _own(request)
    return past_bars(stored, keep(before), keep(behind), since_ns=request.since_ns, now_ns=plan.now_ns)


def _own(request: LookbackRequest) -> Callable[[Sequence[pa.Table]], pa.Table]:
    def keep(parts: Sequence[pa.Table]) -> pa.Table:
        rows = pa.concat_tables([_BARS.empty_table(), *(part.select(_BARS.names) for part in parts)])
        wanted = pc.is_in(rows["ticker"], value_set=pa.array(request.tickers, pa.string()))
        if request.period_seconds:
            wanted = pc.and_(wanted, pc.equal(rows["period_seconds"], request.period_seconds))
        return rows.filter(wanted)

    return keep


def _spans(plan: TriggerPlan, topic: str, request: LookbackRequest, count: int) -> list[Span]:
    places = {partition_of(ticker.encode(), count) for ticker in request.tickers}
    return [span for span in plan.of(topic) if span.partition in places]


def _records(bus: Bus, spans: Sequence[Span]) -> list[StoredRecord]:
    records = sum(span.end - span.first for span in spans)
    if records > _RECORDS:
        raise _TooMuch(f"{records:,} records of the bus are not in the table yet; register the trigger again later")
    return [
        record
        for span in spans
        for found in read_range(bus, span.topic, span.partition, first=span.first, last=span.end - 1)
        for record in found
    ]


def _bounded(rows: pa.Table) -> pa.Table:
    if rows.num_rows > _ROWS:
        raise _TooMuch(_too_many())
    return rows
