"""Describes what a trigger keeps and when it fires: its plan in sentences, and measurements over stored rows."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period
from candlewright_cep import Clock, Events, JoinedStream, ReleaseBuffer, StreamQuery, TriggerStream
from candlewright_cep.functions.aggregates.aggregates import AGGREGATES
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.matching.program import Op, Program, following, longest_match
from candlewright_cep.matching.recognize import RecognizePlan
from candlewright_cep.planning.bars import Bars
from candlewright_cep.planning.over import RANKING, Over, takes_frame
from candlewright_cep.planning.plans import AsofJoin, Filter, Group, Join, Match, Plan, Renamed, Union
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.streaming.query import chain_of
from candlewright_cep.streaming.rows.release import FOREVER
from candlewright_cep.streaming.stages.stages import is_lookup
from candlewright_cep.tracing.wording import column_names, text_of
from triggers.events.chained import EVENTS_LABEL
from triggers.events.firings import firings
from triggers.texts.check import CompiledTrigger, TriggerRules

__all__ = ["Measured", "PlanStep", "TriggerPlan", "measure", "measure_join", "planned", "shared_views", "to_dict"]

#: Rows fed at a time, about as many as in a few micro-batches.
_PART_ROWS = 1_000
_NOTHING = "nothing"
_AT_ONCE = "with the row that decides it"
_TOO_MUCH = "the trigger is suspended past triggers.max_rows_per_key"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """`keeps`: its state; `bound`: what limits that state; `fires`: when it emits rows."""

    kind: str
    text: str
    keeps: str = _NOTHING
    bound: str = ""
    fires: str = _AT_ONCE


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """`together`: whose rows are processed in one order of time."""

    reads: tuple[str, ...]
    together: str
    steps: tuple[PlanStep, ...]
    fires: tuple[str, ...]


@dataclass(kw_only=True, frozen=True, slots=True)
class Measured:
    """Measurements of a run over stored rows. `state_bytes`, `partitions` and `kept_rows` are those at its end."""

    tickers: tuple[str, ...]
    rows: int
    span_seconds: float
    events: int
    cpu_seconds: float
    state_bytes: int
    partitions: int
    kept_rows: int

    @property
    def rows_per_second(self) -> float:
        """The average rate at which the rows arrived."""
        return self.rows / self.span_seconds if self.span_seconds > 0 else 0.0

    @property
    def rows_per_cpu_second(self) -> float:
        """The rate at which the engine processes them."""
        return self.rows / self.cpu_seconds if self.cpu_seconds > 0 else 0.0

    @property
    def core_share(self) -> float:
        """The share of one core that it needs at the rate at which the rows arrived."""
        return self.cpu_seconds / self.span_seconds if self.span_seconds > 0 else 0.0


def planned(compiled: CompiledTrigger, rules: TriggerRules, readers: Mapping[str, int] | None = None) -> TriggerPlan:
    """`readers`: by registered view, the number of triggers that read it, if that is known."""
    query, options = compiled.query, compiled.options
    if query.joined is not None:
        reads = tuple(dict.fromkeys(_read(leaf.name, leaf.period) for leaf in query.joined.leaves()))
    else:
        reads = (_read(query.input_name, options.period_seconds),)
    shared = shared_views(compiled)
    steps = tuple(
        step
        for node in _nodes(query)
        for step in (
            [_view(node.registered, readers or {})]
            if isinstance(node, Renamed) and node.registered in shared
            else _steps(node, rules)
        )
    )
    together = "the rows of all its tickers together" if query.needs_merge else "each ticker by itself"
    return TriggerPlan(reads, together, steps, tuple(_fires(compiled, steps, rules)))


def shared_views(compiled: CompiledTrigger) -> dict[str, None]:
    """The names of the registered views that are computed once for all triggers that read them."""
    nodes = (compiled.query.nodes[count] for count in compiled.shared_views)
    return {node.registered: None for node in nodes if isinstance(node, Renamed)}


def _view(name: str, readers: Mapping[str, int]) -> PlanStep:
    known = f", {readers[name]} now" if name in readers else ""
    return PlanStep("view", f"view {name}: the steps so far run once for all triggers that read it{known}")


def _read(name: str, period_seconds: int) -> str:
    if name == "ohlc":
        return (
            f"ohlc: bars of {format_period(period_seconds)}" if period_seconds else "ohlc: bars of every period in use"
        )
    return {"ticks": "ticks: trades", "trigger_events": "trigger_events: events of triggers"}.get(name, name)


def _nodes(query: StreamQuery) -> Iterator[Plan]:
    """The nodes from the inputs to the result."""
    if query.joined is None:
        yield from query.nodes
        return
    pending: list[Any] = [query.compiled.plan]
    found: list[Plan] = []
    while pending:
        chain = chain_of(pending.pop())
        found += reversed(chain)
        head: Any = chain[0]
        pending += [part for name in ("left", "right") if (part := getattr(head, name, None)) is not None]
        pending += getattr(head, "branches", ())
    yield from reversed(found)


def _steps(node: Plan, rules: TriggerRules) -> Iterator[PlanStep]:
    match node:
        case Filter(is_of_changes=True):
            yield PlanStep("changes", "EMIT CHANGES: rows that change their group", _NOTHING)
        case Filter():
            yield PlanStep("filter", text_of(node.condition, column_names(node.inner)))
        case WindowTable():
            yield PlanStep("windows", f"{node.function} of {' and '.join(map(_span, node.intervals))}")
        case Group():
            yield _grouped(node, rules)
        case Over() if node.window.recognize is not None:
            yield _window_pattern(node, node.window.recognize)
        case Over():
            yield _over(node, rules)
        case Bars():
            yield PlanStep(
                "bars",
                f"BARS BY {node.measure} {node.size:g}",
                f"one open bar for each {_named(node.inner, node.partition)}",
                "one row each",
                "with the trade that fills a bar",
            )
        case Match():
            yield _match(node, rules)
        case Join() if is_lookup(node):
            yield PlanStep("lookup", f"{node.kind} JOIN with the rows of VALUES")
        case Join():
            yield _join(node, rules)
        case AsofJoin():
            yield PlanStep(
                "asof join",
                f"{node.kind} ASOF JOIN",
                "left rows until they are decided, and of the right side the last row of each key",
                _rows_bound(rules),
                "once the right side's time has passed the left row's"
                if node.is_backward
                else "once its bound has passed",
            )
        case Union():
            yield PlanStep("union", f"UNION ALL of {len(node.branches)} branches")


def _named(plan: Plan, columns: tuple[int, ...]) -> str:
    names = column_names(plan)
    return ", ".join(names[index] for index in columns) or "input"


def _rows_bound(rules: TriggerRules) -> str:
    return f"{rules.retained_rows:,} rows a ticker; {_TOO_MUCH}"


def _grouped(node: Group, rules: TriggerRules) -> PlanStep:
    names = column_names(node.inner)
    keys = ", ".join(text_of(key, names) for key in node.keys)
    grows = [part.function for part in node.aggregates if AGGREGATES[part.function].grows]
    kept = "the rows of each open window"
    more = f" ({', '.join(grows)} need every value)" if grows else ""
    return PlanStep(
        "group",
        f"GROUP BY {keys or 'nothing'}",
        kept + more,
        f"the window's length; {_rows_bound(rules)}",
        "when the watermark passes the end of the window",
    )


def _over(node: Over, rules: TriggerRules) -> PlanStep:
    frame, functions = node.window.frame, node.functions
    names = ", ".join(dict.fromkeys(function.name for function in functions))
    each = f"for each {_named(node.inner, node.window.partition)}" if node.window.partition else "in all"
    indicators = [function for function in functions if function.name in INDICATORS]
    framed = [function for function in functions if takes_frame(function)]
    lags = [function.offset for function in functions if function.name in ("LAG", "LEAD")]
    keeps, bounds = [], []
    if indicators:
        longest = max(int(number) for each in indicators for number in (*each.numbers, 1))
        keeps.append(
            f"what the indicators need of the last {_count(longest, 'row')}" if longest > 1 else "a few numbers"
        )
        bounds.append("their lengths")
    if framed and frame.lower.kind == "UNBOUNDED PRECEDING":
        sketched = {function.arguments[0] for function in framed if function.name == "APPROX_PERCENTILE"}
        totals = [function for function in framed if function.name != "APPROX_PERCENTILE"]
        if totals:
            keeps.append(_count(len(totals), "running total"))
            bounds.append("one of each function")
        if sketched:
            keeps.append(f"sketches of {_count(len(sketched), 'column')}")
            bounds.append("26 kB for each sketch")
    elif framed:
        amount = frame.lower.amount
        if frame.unit == "ROWS":
            keeps.append(_count(int(amount) + 1, "row"))
            bounds.append("the frame")
        else:
            reach = _span(int(amount)) if frame.unit == "RANGE" else _count(int(amount), "group")
            keeps.append(f"the rows of the last {reach}")
            bounds.append(_rows_bound(rules))
    if lags:
        keeps.append(_count(max(lags), "row"))
        bounds.append("its distance")
    ranks = [function.name for function in functions if function.name in RANKING]
    if ranks:
        keeps.append("a row's position" if ranks == ["ROW_NUMBER"] else "the rows of each open window")
    is_ahead = frame.upper.kind == "FOLLOWING" or any(function.name == "LEAD" for function in functions)
    fires = "once the rows that it looks at have arrived" if is_ahead else _AT_ONCE
    if frame.unit == "RANGE" and framed and not is_ahead:
        fires = "once the watermark has passed its time, as rows of equal time belong together"
    return PlanStep("over", f"{names} OVER (…)", f"{' and '.join(keeps) or _NOTHING} {each}", "; ".join(bounds), fires)


def _window_pattern(node: Over, plan: RecognizePlan) -> PlanStep:
    rows = _count(int(node.window.frame.upper.amount) + 1, "row")
    each = f"for each {_named(node.inner, node.window.partition)}" if node.window.partition else "in all"
    return PlanStep(
        "pattern",
        f"row pattern of {' '.join(plan.variables)} in a frame of {rows}",
        f"the last {rows} {each}",
        "the frame",
        "once the rows of its frame have come",
    )


def _match(node: Match, rules: TriggerRules) -> PlanStep:
    plan = node.recognize
    search = plan.search
    kept = f"of each {_named(node.inner, plan.partition)} " if plan.partition else ""
    before = plan.conditions.before_match
    back = f", and {_count(before, 'row')} before them" if before else ""
    bounds = [f"WITHIN {_span(search.within_ns)}"] if search.within_ns is not None else []
    if search.gap_ns is not None:
        bounds.append(f"WITHIN {_span(search.gap_ns)} from the previous row")
    program = search.automaton.program
    if (longest := longest_match(program, 0)) is not None:
        bounds.append(f"{_count(longest, 'row')} a match")
    bounds.append(f"{rules.retained_rows:,} rows a ticker, past which the oldest attempts are given up")
    names = column_names(node.inner)
    conditions = "; ".join(f"{name} AS {text_of(condition, names, name)}" for name, condition in plan.definitions)
    return PlanStep(
        "pattern",
        f"MATCH_RECOGNIZE of {' '.join(plan.variables)}{' with ' + conditions if conditions else ''}",
        f"{kept}the rows since the oldest attempt that may still match{back}",
        "; ".join(bounds),
        "".join(_match_fires(plan)),
    )


def _match_fires(plan: RecognizePlan) -> Iterator[str]:
    program = plan.search.automaton.program
    deadline = " or when WITHIN has passed" if plan.search.has_deadline else ""
    if plan.has_end_anchor:
        yield "when its partition ends"
    elif _is_greedy_at_the_end(program):
        longest = "" if longest_match(program, 0) is None else ", or with the last row of its longest form"
        yield f"with the first row that cannot continue the match{longest}{deadline}"
    elif _is_decided_by_its_last_row(program):
        yield "with the match's last row"
    else:
        yield f"with the match's last row, unless a preferred way is still open; then once that has failed{deadline}"
    if plan.search.timeouts:
        yield "; what is not finished comes when WITHIN has passed"
    if ahead := plan.measures_lookahead:
        yield f"; {_count(ahead, 'row')} later, for NEXT in MEASURES"


def _join(node: Join, rules: TriggerRules) -> PlanStep:
    if node.band is None:
        return PlanStep(
            "join",
            f"{node.kind} JOIN on equal times",
            "the rows of one time",
            _rows_bound(rules),
            "once every side has passed that time",
        )
    reach = [_span(abs(bound)) for bound in (node.band.lower, node.band.upper) if bound is not None]
    return PlanStep(
        "interval join",
        f"{node.kind} JOIN within {' and '.join(reach)}",
        "the rows of both sides that may still meet another",
        f"the interval; {_rows_bound(rules)}",
        "once the times of both sides have passed the interval"
        if node.kind == "FULL"
        else "once the right side's time has passed the interval",
    )


def _is_greedy_at_the_end(program: Program) -> bool:
    """Whether the pattern tries to take a further row after one that could be the last."""
    for place, each in enumerate(program.code):
        if each.op is Op.TAKE:
            tried = list(_closure(program, place + 1))
            if Op.ACCEPT in tried and tried[0] is not Op.ACCEPT:
                return True
    return False


def _is_decided_by_its_last_row(program: Program) -> bool:
    """Whether no preferred way is longer than the one taken."""
    for each in program.code:
        if each.op is Op.SPLIT:
            for place, target in enumerate(each.targets[:-1]):
                longest = longest_match(program, target)
                if longest is None or longest > min(_shortest(program, other) for other in each.targets[place + 1 :]):
                    return False
    return True


def _closure(program: Program, start: int) -> Iterator[Op]:
    """The instructions that take a row or end the match, in order of preference."""
    pending, seen = [start], set[int]()
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        op = program.code[place].op
        if op in (Op.TAKE, Op.ACCEPT):
            yield op
        else:
            pending += reversed(following(program, place))


def _shortest(program: Program, start: int) -> int:
    """The least number of rows that a match needs from a place on."""
    reached = {start: 0}
    pending = [start]
    while pending:
        place = pending.pop()
        rows = reached[place] + (program.code[place].op is Op.TAKE)
        for target in following(program, place):
            if rows < reached.get(target, len(program) + 1):
                reached[target] = rows
                pending.append(target)
    return min(rows for place, rows in reached.items() if program.code[place].op is Op.ACCEPT)


def _count(number: int, one: str) -> str:
    return f"{number:,} {one}{'s' if number != 1 else ''}"


def _span(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, SECOND)
    return f"{nanoseconds / SECOND:g} s" if rest or not seconds else format_period(seconds)


def _fires(compiled: CompiledTrigger, steps: tuple[PlanStep, ...], rules: TriggerRules) -> Iterator[str]:
    if compiled.is_stateless:
        yield "Each row decides alone, on arrival, however old it is."
    else:
        waits = list(dict.fromkeys(step.fires for step in steps if step.fires != _AT_ONCE))
        yield f"An event comes {', then '.join(waits) or _AT_ONCE}."
        delay = rules.watermark_delay_ns
        mark = f"The watermark is {_span(delay)} behind" if delay else "The watermark is"
        yield f"{mark} the newest row of the ticker, or the exchange's clock; rows older than it are late and left out."
    if EVENTS_LABEL in compiled.labels:
        yield "The watermark of events is where trades and bars were 5 s ago; late events get its time."
    if compiled.query.needs_merge:
        yield "The slowest of its tickers decides how far time has come."
    options = compiled.options
    if options.cooldown_ns:
        yield f"After an event of a ticker none follows for {_span(options.cooldown_ns)} (cooldown_seconds)."
    if options.deadman_ns:
        yield f"A silence of {_span(options.deadman_ns)} by the platform's clock is an event (deadman_seconds)."
    if options.lookback_ns:
        yield f"It first takes the stored rows of the last {_span(options.lookback_ns)} (lookback_seconds)."


# ---- measured
def measure(query: StreamQuery, rows: pa.Table, tickers: Sequence[str]) -> Measured:
    """Run the text as a stream over rows of these tickers, in time order and in parts. Raises TriggerRejected."""
    stream = TriggerStream(query=query)
    buffer = ReleaseBuffer(query.source.time_columns[-1], "ticker")

    def found() -> Iterator[Events]:
        for start in range(0, rows.num_rows, _PART_ROWS):
            released = buffer.push(rows.slice(start, _PART_ROWS)).rows
            yield stream.feed(released, buffer.clock)

    times = rows.column(query.source.time_columns[0]).cast(pa.int64()).to_numpy()
    return _measured(stream, found(), times, tickers)


def measure_join(query: StreamQuery, rows: Mapping[tuple[str, int], pa.Table], tickers: Sequence[str]) -> Measured:
    """`measure` for a text that joins: `rows` by input and period, each in time order. A bar arrives when it has
    closed. Raises TriggerRejected.
    """
    assert query.joined is not None
    stream = JoinedStream(query=query)
    sources = {(leaf.name, leaf.period): leaf.source for leaf in query.joined.leaves()}
    buffers = {place: ReleaseBuffer(source.time_columns[0], "ticker") for place, source in sources.items()}
    came = {
        place: rows[place].column(source.time_columns[0]).cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy()
        + place[1] * SECOND
        for place, source in sources.items()
    }
    times = np.sort(np.concatenate(list(came.values())))

    def found() -> Iterator[Events]:
        ends = [*times[_PART_ROWS::_PART_ROWS].tolist(), FOREVER]
        before = dict.fromkeys(came, 0)
        for end in ends:
            for place, own in came.items():
                upto = int(np.searchsorted(own, end))
                released = buffers[place].push(rows[place].slice(before[place], upto - before[place])).rows
                before[place] = upto
                # The stream waits for a ticker whose rows have not come yet.
                known = buffers[place].clock
                clock = Clock({ticker: known.watermarks.get(ticker, -FOREVER) for ticker in tickers}, known.closed)
                yield stream.feed_input(*place, released, clock=clock)

    return _measured(stream, found(), times, tickers)


def _measured(
    stream: TriggerStream, found: Iterator[Events], times: npt.NDArray[np.int64], tickers: Sequence[str]
) -> Measured:
    """`times`: of all rows, ascending. Rows are fed while `found` is iterated."""
    began = time.process_time()
    columns = stream.query.columns
    events = sum(len(firings(part, columns, 0, numbers_hold=True)) for part in found)
    used = time.process_time() - began
    span = (int(times[-1]) - int(times[0])) / SECOND if len(times) else 0.0
    size = len(stream.snapshot())
    return Measured(
        tickers=tuple(tickers),
        rows=len(times),
        span_seconds=span,
        events=events,
        cpu_seconds=used,
        state_bytes=size,
        partitions=stream.partitions,
        kept_rows=stream.retained_rows,
    )


def to_dict(plan: TriggerPlan, measured: Measured | None) -> dict[str, Any]:
    """A dictionary for JSON."""
    costs = None
    if measured is not None:
        costs = asdict(measured) | {
            "rows_per_second": measured.rows_per_second,
            "rows_per_cpu_second": measured.rows_per_cpu_second,
            "core_share": measured.core_share,
        }
    return asdict(plan) | {"measured": costs}
