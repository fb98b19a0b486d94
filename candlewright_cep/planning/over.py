"""Window functions: OVER (PARTITION BY ... ORDER BY ... frame), and row patterns in a window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.binding.expressions import WindowFunction
from candlewright_cep.functions.aggregates.aggregates import COUNTS, empty_value, reduced, running, spend
from candlewright_cep.functions.aggregates.frames import framed
from candlewright_cep.functions.indicators.indicator import Input, whole
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.usage import SHARE, Extent, Usage
from candlewright_cep.limits import Limits
from candlewright_cep.matching.conditions import Trial
from candlewright_cep.matching.matching import LESS_WORK, bound_path, evaluate_matches, masks, row_times
from candlewright_cep.matching.recognize import RecognizePlan, SortKey
from candlewright_cep.matching.search import Found, PartitionSearch, StepLimit
from candlewright_cep.planning.plans import Inputs, Plan
from candlewright_cep.planning.relation import Relation, Source, arranged, sort_codes
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.types import BIGINT, DOUBLE
from candlewright_cep.vector import Bools, Index, Vector, blocks, choose, concatenate, counted, ranges

_EXPANDED = 30_000_000
#: For each row, the number of its peer group (rows equal in ORDER BY); and where each group begins and ends.
Groups = tuple[Index, Index, Index]


@dataclass(frozen=True, slots=True)
class Bound:
    """`kind` as in `syntax.FrameBound`; `amount` rows (ROWS), groups, or nanoseconds or a number (RANGE)."""

    kind: str
    amount: float | int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """`exclude` as in `syntax.WindowNode`."""

    unit: str
    lower: Bound
    upper: Bound
    exclude: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    frame: Frame
    recognize: RecognizePlan | None = None
    seek: bool = False


#: The frame of functions that use all rows of the partition so far.
UP_TO_HERE = Frame("ROWS", Bound("UNBOUNDED PRECEDING"), Bound("CURRENT ROW"))
RANKING = {
    "ROW_NUMBER": BIGINT,
    "RANK": BIGINT,
    "DENSE_RANK": BIGINT,
    "PERCENT_RANK": DOUBLE,
    "CUME_DIST": DOUBLE,
    "NTILE": BIGINT,
}
VALUES = ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
_FROM_1 = Extent(1)
_NO_NULLS = "never NULL; NULLs of ORDER BY come last"
_OF_ROW = "NULL if that row does not exist, or its value is NULL (IGNORE NULLS skips those)"
#: Functions that exist only with OVER.
USAGES = (
    Usage("ROW_NUMBER()", "number of the row in its partition, from 1", "ROW_NUMBER()", _NO_NULLS, _FROM_1),
    Usage("RANK()", "1 plus the number of rows before the row and its peers", "RANK()", _NO_NULLS, _FROM_1),
    Usage(
        "DENSE_RANK()",
        "number of the row's value among the distinct values, from 1",
        "DENSE_RANK()",
        _NO_NULLS,
        _FROM_1,
    ),
    Usage("PERCENT_RANK()", "share of the other rows that come before, 0 to 1", "PERCENT_RANK()", _NO_NULLS, SHARE),
    Usage("CUME_DIST()", "share of the rows up to this one and its peers", "CUME_DIST()", _NO_NULLS, SHARE),
    Usage(
        "NTILE(n)",
        "number of the row's part if the partition is divided into n equal parts",
        "NTILE(4)",
        _NO_NULLS,
        _FROM_1,
    ),
    Usage("LAG(x, n, default)", "x of the row n (1) rows before, or default", "LAG(price)", _OF_ROW),
    Usage("LEAD(x, n, default)", "x of the row n (1) rows later, or default", "LEAD(price)", _OF_ROW),
    Usage("NTH_VALUE(x, n)", "x of the nth row of the frame", "NTH_VALUE(price, 2)", _OF_ROW),
)


def takes_frame(function: WindowFunction) -> bool:
    return function.name not in (*RANKING, *INDICATORS, "LAG", "LEAD")


@dataclass(kw_only=True, frozen=True, slots=True)
class Over:
    """`inner` with one more column per function (or pattern measure), in the order of `inner`'s rows.

    The aggregates of the `passed` rows are not needed: only frames of later rows may contain these rows.
    """

    inner: Plan
    window: Window
    functions: tuple[WindowFunction, ...]
    measures: tuple[int, ...]
    fields: tuple[Field, ...]
    limits: Limits
    at: Position
    passed: Bools | None = None

    def run(self, inputs: Inputs) -> Relation:
        return self.searched(self.inner.run(inputs), None)[0]

    def searched(self, rows: Relation, skipped: Bools | None) -> tuple[Relation, Index]:
        """`run` over these rows. For a row pattern, also returns, for each row in the window's order, where the next
        match may begin after that row's match (0 without a match). No match begins at rows that are `skipped` (in
        the same order).
        """
        arrangement, bounds, order = arranged(rows, self.window.partition, self.window.order)
        back = np.empty_like(order)
        back[order] = np.arange(len(order), dtype=np.int64)
        values = arrangement.values(bounds)
        low, high = _frames(self.window, values, bounds, arrangement.length)
        if self.passed is not None:
            high = np.where(self.passed[order], low, high)
        further: list[Source] = []
        measures: list[Vector] = []
        ends: Index = np.zeros(0, np.int64)
        if self.window.recognize is not None:
            low, high, measures, ends = _reduced_to_match(
                self.window, arrangement, bounds, low, high, self.at, skipped=skipped
            )
        excluded = (
            _Excluded(self.window, values, bounds, low=low, high=high, at=self.at)
            if self.window.frame.exclude
            else None
        )
        rows_of_all = _wanted(bounds, bounds.ends - bounds.starts)
        for function in self.functions:
            if excluded is not None and takes_frame(function):
                found = excluded.compute(function)
            else:
                found = counted(_compute(function, values, bounds, self.window, low, high, rows_of_all, self.at))
            further.append(found.take(back))
        further += [measures[index].take(back) for index in self.measures]
        return rows.with_columns(further), ends

    def newest(self, rows: Relation, bounds: Bounds, counts: Index) -> list[Vector] | None:
        """The columns of the functions for the last `counts[p]` rows of each partition, in time for those rows alone.

        `rows` are those of one partition after another (`bounds`), in the order in which they came. None where that is
        not the order of the window, or where it takes more than the row's number and event time to know a frame.
        """
        window = self.window
        if window.recognize is not None or window.frame.exclude or window.frame.unit == "GROUPS":
            return None
        if len(window.order) != 1 or window.order[0].descending:
            return None
        if any(map(takes_frame, self.functions)) and not _looks_back(window.frame):
            return None
        values = rows.values(bounds)
        times = values.value(window.order[0].expression).expand()
        if times.type.is_text or times.valid is not None or times.values.dtype != np.int64:
            return None
        is_first = np.zeros(rows.length, np.bool_)
        is_first[bounds.starts] = True
        if not (is_first[1:] | (times.values[1:] >= times.values[:-1])).all():
            return None
        wanted = _wanted(bounds, counts)
        low, high = _newest_frames(window.frame, times.values, bounds, counts, wanted)
        return [
            counted(_compute(function, values, bounds, window, low, high, wanted, self.at))
            for function in self.functions
        ]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """`rows`: for which something is computed; `first`, `end`: of the partition of each."""

    rows: Index
    first: Index
    end: Index


def _wanted(bounds: Bounds, counts: Index) -> _Wanted:
    """The last `counts[p]` rows of each partition."""
    rows = ranges(bounds.ends - counts, counts)
    return _Wanted(rows, np.repeat(bounds.starts, counts), np.repeat(bounds.ends, counts))


# -- frames ---------------------------------------------------------------------------------------------------------


def _frames(window: Window, values: RowValues, bounds: Bounds, length: int) -> tuple[Index, Index]:
    """The frame of each row, `low` to `high` (exclusive), inside the row's partition."""
    sizes = bounds.ends - bounds.starts
    first, end = np.repeat(bounds.starts, sizes), np.repeat(bounds.ends, sizes)
    rows = np.arange(length, dtype=np.int64)
    frame = window.frame
    if frame.unit == "ROWS":
        low = _row_bound(frame.lower, rows, first, end)
        high = _row_bound(frame.upper, rows, first, end) + 1
        if frame.upper.kind == "UNBOUNDED FOLLOWING":
            high = end
    elif frame.unit == "GROUPS":
        groups = peer_groups(window.order, values, bounds, length=length)
        low, high = (
            _group_bound(bound, groups, first, end, side) for side, bound in enumerate((frame.lower, frame.upper))
        )
    else:
        low, high = _range_frame(window, values, bounds, rows, first, end)
    low, high = np.clip(low, first, end), np.clip(high, first, end)
    return low, np.maximum(low, high)


def _looks_back(frame: Frame) -> bool:
    return {frame.lower.kind, frame.upper.kind} <= {"PRECEDING", "CURRENT ROW"}


def _newest_frames(frame: Frame, times: Index, bounds: Bounds, counts: Index, wanted: _Wanted) -> tuple[Index, Index]:
    """`_frames` of the last rows of each partition, which are in the order of their `times`."""
    if frame.unit == "ROWS":
        low = _row_bound(frame.lower, wanted.rows, wanted.first, wanted.end)
        high = _row_bound(frame.upper, wanted.rows, wanted.first, wanted.end) + 1
    else:
        low, high = np.empty_like(wanted.rows), np.empty_like(wanted.rows)
        parts = zip(bounds.starts.tolist(), bounds.ends.tolist(), np.cumsum(counts).tolist(), strict=True)
        done = 0
        for start, end, upto in parts:
            own = times[start:end]
            new = own[len(own) - (upto - done) :]
            low[done:upto] = start + np.searchsorted(own, new - frame.lower.amount, side="left")
            high[done:upto] = start + np.searchsorted(own, new - frame.upper.amount, side="right")
            done = upto
    low, high = np.clip(low, wanted.first, wanted.end), np.clip(high, wanted.first, wanted.end)
    return low, np.maximum(low, high)


def _row_bound(bound: Bound, rows: Index, first: Index, end: Index) -> Index:
    match bound.kind:
        case "UNBOUNDED PRECEDING":
            return first
        case "UNBOUNDED FOLLOWING":
            return end
        case "PRECEDING":
            return rows - int(bound.amount)
        case "FOLLOWING":
            return rows + int(bound.amount)
    return rows


def _group_bound(bound: Bound, groups: Groups, first: Index, end: Index, side: int) -> Index:
    """Where the frame begins (`side` 0) or ends (1), by groups of peers."""
    if bound.kind.startswith("UNBOUNDED"):
        return first if bound.kind == "UNBOUNDED PRECEDING" else end
    steps = {"PRECEDING": -1, "FOLLOWING": 1}.get(bound.kind, 0) * int(bound.amount)
    of_row, firsts, ends = groups
    edges = np.concatenate([np.zeros(1, np.int64), firsts if side == 0 else ends, np.full(1, len(of_row))])
    found: Index = edges[np.clip(of_row + 1 + steps, 0, len(edges) - 1)]
    return found


def _range_frame(
    window: Window, values: RowValues, bounds: Bounds, rows: Index, first: Index, end: Index
) -> tuple[Index, Index]:
    if not window.order:
        return first, end
    peers_low, peers_high = peers(window.order, values, bounds, rows=rows)
    frame = window.frame
    found: list[Index] = []
    for bound, is_low in ((frame.lower, True), (frame.upper, False)):
        match bound.kind:
            case "UNBOUNDED PRECEDING":
                found.append(first)
            case "UNBOUNDED FOLLOWING":
                found.append(end)
            case "CURRENT ROW":
                found.append(peers_low if is_low else peers_high)
            case _:
                found.append(_distance(window, values, bounds, bound, is_low=is_low, peers=(peers_low, peers_high)))
    return found[0], found[1]


def peers(keys: Sequence[SortKey], values: RowValues, bounds: Bounds, *, rows: Index) -> tuple[Index, Index]:
    """The first peer of each row, and the end of its peers."""
    group, firsts, ends = peer_groups(keys, values, bounds, length=len(rows))
    return firsts[group], ends[group]


def peer_groups(keys: Sequence[SortKey], values: RowValues, bounds: Bounds, *, length: int) -> Groups:
    new = np.zeros(length, dtype=np.bool_)
    new[bounds.starts] = True
    for key in keys:
        ranks = sort_codes(values.value(key.expression), key)
        if ranks is not None and length:
            new[1:] |= ranks[1:] != ranks[:-1]
    group = np.cumsum(new) - 1
    firsts = np.flatnonzero(new)
    return group, firsts, np.append(firsts[1:], length)[: len(firsts)]


def _distance(
    window: Window, values: RowValues, bounds: Bounds, bound: Bound, *, is_low: bool, peers: tuple[Index, Index]
) -> Index:
    key = window.order[0]
    vector = values.value(key.expression).expand()
    numbers = -vector.values if key.descending else vector.values
    target = numbers - bound.amount if bound.kind == "PRECEDING" else numbers + bound.amount
    found = np.empty(len(numbers), dtype=np.int64)
    mask = vector.mask
    for start, end in zip(bounds.starts.tolist(), bounds.ends.tolist(), strict=True):
        known = np.flatnonzero(mask[start:end])
        low, high = (start + int(known[0]), start + int(known[-1]) + 1) if len(known) else (start, start)
        part = np.searchsorted(numbers[low:high], target[start:end], side="left" if is_low else "right")
        found[start:end] = low + part
    # Rows without a value are peers only of each other.
    return np.where(mask, found, peers[0] if is_low else peers[1])


# -- values ---------------------------------------------------------------------------------------------------------


def _compute(
    function: WindowFunction,
    values: RowValues,
    bounds: Bounds,
    window: Window,
    low: Index,
    high: Index,
    wanted: _Wanted,
    at: Position,
) -> Vector:
    rows, first, end = wanted.rows, wanted.first, wanted.end
    arguments = [values.value(argument).expand() for argument in function.arguments]
    if function.name in INDICATORS:
        inputs = [Input.of(argument) for argument in arguments]
        return INDICATORS[function.name].over(inputs, function.numbers, whole(bounds.starts, bounds.ends))
    if function.name in RANKING:
        return _ranking(function, window, values, bounds, rows, first, end)
    if function.ignores_nulls:
        return _known(function, arguments, rows, (first, end), (low, high))
    if function.name in ("LAG", "LEAD"):
        target = rows - function.offset if function.name == "LAG" else rows + function.offset
        outside = (target < first) | (target >= end)
        found = arguments[0].take(np.where(outside, -1, target))
        return choose(outside, arguments[1].take(rows), found) if len(arguments) > 1 else found
    if function.name in VALUES:
        target = {"FIRST_VALUE": low, "LAST_VALUE": high - 1}.get(function.name, low + function.offset - 1)
        return arguments[0].take(np.where((target >= low) & (target < high), target, -1))
    return _aggregate(function, arguments, bounds, window, low, high, at)


def _known(
    function: WindowFunction,
    arguments: list[Vector],
    rows: Index,
    partition: tuple[Index, Index],
    frame: tuple[Index, Index],
) -> Vector:
    """LAG, LEAD, FIRST_VALUE and the like over the rows whose value is not NULL."""
    present = arguments[0].mask
    positions = np.append(np.flatnonzero(present), -1)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(present)])
    first, end = partition if function.name in ("LAG", "LEAD") else frame
    offset = function.offset
    match function.name:
        case "LAG" if offset:
            wanted = before[rows] - offset
        case "LEAD" if offset:
            wanted = before[rows + 1] + offset - 1
        case "LAG" | "LEAD":
            return arguments[0].take(rows)
        case "LAST_VALUE":
            wanted = before[end] - 1
        case _:
            wanted = before[first] + offset - 1
    outside = (wanted < before[first]) | (wanted >= before[end])
    found = arguments[0].take(np.where(outside, -1, positions[np.where(outside, -1, wanted)]))
    return choose(outside, arguments[1].take(rows), found) if len(arguments) > 1 else found


def _ranking(
    function: WindowFunction, window: Window, values: RowValues, bounds: Bounds, rows: Index, first: Index, end: Index
) -> Vector:
    if function.name == "ROW_NUMBER":
        return Vector(BIGINT, rows - first + 1, None)
    if function.name == "NTILE":
        # The first (size % tiles) tiles have one row more than the others.
        least, longer = np.divmod(end - first, function.offset)
        place = rows - first
        tile = np.where(
            place < longer * (least + 1),
            place // (least + 1),
            longer + (place - longer * (least + 1)) // np.maximum(least, 1),
        )
        return Vector(BIGINT, tile + 1, None)
    low, high = peers(window.order, values, bounds, rows=rows) if window.order else (first, end)
    if function.name == "RANK":
        return Vector(BIGINT, low - first + 1, None)
    if function.name == "PERCENT_RANK":
        return Vector(DOUBLE, (low - first) / np.maximum(end - first - 1, 1), None)
    if function.name == "CUME_DIST":
        return Vector(DOUBLE, (high - first) / np.maximum(end - first, 1), None)
    new = np.zeros(len(rows) + 1, dtype=np.int64)
    new[1:] = np.cumsum(low == rows)
    return Vector(BIGINT, new[1:][low] - new[first] if len(rows) else rows, None)


def _aggregate(
    function: WindowFunction,
    arguments: list[Vector],
    bounds: Bounds,
    window: Window,
    low: Index,
    high: Index,
    at: Position,
) -> Vector:
    if len(low) == 0:
        return empty_value(function.name, function.type, 0)
    if window.recognize is None and window.frame.lower.kind == "UNBOUNDED PRECEDING":
        length = int(bounds.ends[-1])
        spend(function.name, length)
        over = running(function.name, arguments, bounds.starts, length=length, kind=function.type)
        found = over.take(np.where(high > low, high - 1, -1))
        if function.name in COUNTS:
            return Vector(function.type, np.where(found.mask, found.values, 0), None)
        return found
    moved = framed(function.name, arguments, low, high=high, kind=function.type)
    if moved is not None:
        return moved
    sizes = high - low
    total = int(sizes.sum())
    _check_expanded(total, at)
    spend(function.name, total)
    return _reduced(function, arguments, sizes, lambda begin, end: ranges(low[begin:end], sizes[begin:end]))


def _reduced(
    function: WindowFunction, arguments: Sequence[Vector], sizes: Index, places: Callable[[int, int], Index]
) -> Vector:
    """The aggregate over each of the frames, which have these `sizes`. `places`: the rows of the frames from the first
    number to the second, one frame after another.
    """
    found = []
    for begin, end in blocks(sizes):
        own, rows = sizes[begin:end], places(begin, end)
        taken = [argument.take(rows) for argument in arguments]
        firsts = np.cumsum(own) - own
        found.append(reduced(function.name, taken, firsts, sizes=own, length=len(rows), kind=function.type))
        work.current().check()
    return concatenate(found)


def _check_expanded(total: int, at: Position) -> None:
    if total > _EXPANDED:
        raise at.reject(f"the frames of OVER hold more than {_EXPANDED} rows in total", "use a shorter frame")


class _Excluded:
    """Frames with EXCLUDE, which are not contiguous: the rows of every frame, one frame after another."""

    def __init__(
        self, window: Window, values: RowValues, bounds: Bounds, *, low: Index, high: Index, at: Position
    ) -> None:
        sizes = high - low
        _check_expanded(int(sizes.sum()), at)
        work.spend(int(sizes.sum()), work.FOLDED_A_STEP)
        rows = np.arange(len(low), dtype=np.int64)
        begin, end = rows, rows + 1
        if window.frame.exclude != "CURRENT ROW":
            begin, end = peers(window.order, values, bounds, rows=rows) if window.order else (low, high)
        places, of_frame = ranges(low, sizes), np.repeat(rows, sizes)
        kept = (places < begin[of_frame]) | (places >= end[of_frame])
        if window.frame.exclude == "TIES":
            kept |= places == of_frame
        self._values = values
        self._places, self._of_frame, self._count = places[kept], of_frame[kept], len(low)

    def compute(self, function: WindowFunction) -> Vector:
        arguments = [self._values.value(argument).expand() for argument in function.arguments]
        places, of_frame = self._places, self._of_frame
        if function.ignores_nulls:
            known = arguments[0].mask[places]
            places, of_frame = places[known], of_frame[known]
        sizes = np.bincount(of_frame, minlength=self._count)
        firsts = np.cumsum(sizes) - sizes
        if function.name not in VALUES:
            spend(function.name, len(places))
            edges = np.append(firsts, len(places))
            return _reduced(function, arguments, sizes, lambda begin, end: places[edges[begin] : edges[end]])
        wanted = {"FIRST_VALUE": firsts, "LAST_VALUE": firsts + sizes - 1}.get(
            function.name, firsts + function.offset - 1
        )
        is_there = (wanted >= firsts) & (wanted < firsts + sizes)
        found = np.append(places, -1)[np.where(is_there, wanted, -1)]
        return arguments[0].take(found)


# -- row patterns in a window ---------------------------------------------------------------------------------------


def _reduced_to_match(
    window: Window, rows: Relation, bounds: Bounds, low: Index, high: Index, at: Position, *, skipped: Bools | None
) -> tuple[Index, Index, list[Vector], Index]:
    """Frames reduced to the match found in each (empty if there is none), the measures of every row, and where the next
    match may begin.
    """
    plan = window.recognize
    assert plan is not None
    search_plan = replace(plan.search, want_unmatched=False)
    frame_values = _FrameConditions(plan, rows, bounds)
    time = plan.time_column
    times = [] if time is None else row_times(rows.column(time).expand(), plan.order)
    found = Found()
    of_row = np.full(rows.length, -1, dtype=np.int64)
    ends = np.zeros(rows.length, dtype=np.int64)
    reach: list[tuple[int, int]] = []
    budget = plan.search.limits.mapped_rows
    try:
        for start, end in zip(bounds.starts.tolist(), bounds.ends.tolist(), strict=True):
            resume, number = start, 0
            for row in range(start, end):
                if row < resume or (skipped is not None and skipped[row]):
                    continue
                frame_low, frame_high = int(low[row]), int(high[row])
                budget -= frame_high - row
                if budget < 0:
                    raise at.reject("the frames hold too many rows for a row pattern", "use a shorter frame")
                search = PartitionSearch(search_plan, row)
                search.first_row = frame_low
                search.match_number = number
                work.spend(frame_high - row)
                row_masks, search.trials = frame_values.of(row, frame_high)
                search.extend(row_masks, times[row:frame_high], closed=True)
                before = len(found.starts)
                next_start = search.run_first(found, anywhere=window.seek)
                if len(found.starts) > before:
                    number += 1
                    of_row[row] = before
                    reach.append((frame_low, frame_high))
                    ends[row] = resume = row + 1 if search_plan.skip.kind == "NEXT" else max(next_start, row + 1)
    except (work.WorkLimit, StepLimit) as error:
        raise at.reject(str(error), LESS_WORK) from None
    lows, highs = (np.array(side, dtype=np.int64) for side in zip(*reach, strict=True)) if reach else (low[:0], low[:0])
    matches = found.matches()
    measures = evaluate_matches(
        replace(plan, rows="ONE"), matches, rows.column, bounds=bounds, reach=(lows, highs)
    ).measures
    starts = np.array([*found.starts, 0], dtype=np.int64)
    sizes = np.array([*found.lengths, 0], dtype=np.int64)
    low, high = starts[of_row], starts[of_row] + sizes[of_row]
    own = np.arange(rows.length, dtype=np.int64)
    low, high = np.where(of_row < 0, own, low), np.where(of_row < 0, own, high)
    return low, high, [measure.expand().take(of_row) for measure in measures], ends


class _FrameConditions:
    """Condition masks of one frame. PREV and NEXT cannot leave the frame, so conditions with navigation are computed
    for each frame separately.
    """

    def __init__(self, plan: RecognizePlan, rows: Relation, bounds: Bounds) -> None:
        self._plan = plan
        self._rows = rows
        self._shared: tuple[list[int], Sequence[Trial | None]] | None = None
        if plan.conditions.before_match == 0 and plan.conditions.lookahead == 0:
            values = rows.values(bounds)
            self._shared = masks(plan.conditions, values, rows.length), bound_path(plan.conditions, values, 0)[0]

    def of(self, low: int, high: int) -> tuple[list[int], Sequence[Trial | None]]:
        if self._shared is not None:
            return self._shared[0][low:high], self._shared[1]
        part = self._rows.take(np.arange(low, high, dtype=np.int64))
        values = part.values(Bounds.whole(part.length))
        return masks(self._plan.conditions, values, part.length), bound_path(self._plan.conditions, values, low)[0]
