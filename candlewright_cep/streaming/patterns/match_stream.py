"""MATCH_RECOGNIZE over a growing input: all partitions of one trigger together.

Conditions and measures are vectorised over the rows of all touched partitions; the search of each partition keeps its
position between batches. A row is tested once the rows that its conditions look ahead to have arrived; a match is
emitted once the rows that its measures look ahead to have arrived.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.matching.bulk import BulkSearch
from candlewright_cep.matching.foresight import Foresight
from candlewright_cep.matching.glance import Resting
from candlewright_cep.matching.matching import LESS_WORK, evaluate_matches, mask_array
from candlewright_cep.matching.path_values import PathValues
from candlewright_cep.matching.recognize import RecognizePlan, columns_of
from candlewright_cep.matching.search import Found, Matches, PartitionSearch, StepLimit
from candlewright_cep.planning.plans import match_relation
from candlewright_cep.streaming.patterns.left_behind import LeftBehind
from candlewright_cep.streaming.patterns.match_log import MatchLog
from candlewright_cep.streaming.patterns.match_partition import Partition, Pending, read, written
from candlewright_cep.streaming.patterns.match_results import MatchResult, Reports, context_of
from candlewright_cep.streaming.patterns.tested import PathBatch, Tested
from candlewright_cep.streaming.rows.partitioning import Key, by_partition
from candlewright_cep.streaming.rows.release import FOREVER, Clock, Rows, compact
from candlewright_cep.streaming.rows.retained import Gathered, RetainedRows
from candlewright_cep.streaming.slots import Slots
from candlewright_cep.vector import Array, Index, distinct, ranges
from candlewright_cep.work import WorkLimit

#: A partition, and where its new rows begin and end.
New = tuple[Partition, int, int]
#: A batch copies no kept rows of a partition with this many; once they are in so many pieces, small ones are merged.
MANY_KEPT, MOST_PIECES = 256, 32
#: Beyond MANY_KEPT, this part of a partition's rows may be left until they are dropped together.
_SPARE_PART = 16
#: So few rows are tested again rather than selected.
_FEW_ROWS = 16
#: An open attempt with at most so many rows is not kept: searching them again with those of all partitions costs less.
SHORT_ATTEMPT = 32
#: How conditions are divided between the masks of rows and the search; a state of another form is searched again.
_FORM = 1
_NO_TIMES = np.zeros(0, np.int64)
#: From this number of partitions on, blank ones are searched for, and again whenever their number has doubled.
FEW_PARTITIONS = 1_000


class MatchStream:
    """`feed` takes released rows, `clock` the watermarks; the result has the columns of the MATCH_RECOGNIZE."""

    def __init__(
        self, plan: RecognizePlan, slots: Slots | None = None, rising: tuple[int, ...] = (), *, is_joint: bool = False
    ) -> None:
        """`rising`: see `left_behind`; `is_joint`: the rows of all tickers come in one order of time."""
        self._slots = slots or Slots((), {})
        self.plan = replace(plan, search=replace(plan.search, strict=False))
        self.partitions: dict[Key, Partition] = {}
        self.reports = Reports()
        self._lookahead = plan.conditions.lookahead
        self._measures_ahead = plan.measures_lookahead
        self._lookback = plan.conditions.lookback
        # Rows that are kept before those that attempts need.
        self._before_match = max(plan.conditions.before_match, plan.measures_lookback)
        self._last_bits = sum(1 << variable for variable in plan.search.automaton.last_variables())
        self._left_behind = LeftBehind(rising, is_joint=is_joint)
        # Whether a partition without rows and matches can be dropped, because a new one would behave the same.
        self._forgets_blank = not self._before_match and not plan.search.automaton.has_start_anchor
        self._look_at = FEW_PARTITIONS
        self._columns = columns_of(plan)
        self._retained = RetainedRows(self._columns)
        self._begun = 0
        self._by_number: dict[int, Partition] = {}
        self._log = self._new_log()
        self._bulk = BulkSearch(self.plan.search, is_whole=False)
        is_linear = plan.conditions.path is None and plan.search.is_linear
        self._foresight = None if is_linear else Foresight.of(plan.conditions, plan.variables, plan.search.automaton)

    def _new_log(self) -> MatchLog:
        return MatchLog(self._columns, self._by_number, has_times=self.plan.time_column is not None)

    # -- one batch ------------------------------------------------------------------------------------------------

    def feed(self, rows: Rows, clock: Clock) -> MatchResult | None:
        """None if there is nothing to emit. Raises TriggerRejected if the work exceeds a limit."""
        touched, grouped, over = self._accept(rows)
        for key in over:
            partition = self.partitions[key]
            partition.is_over = True
            touched.setdefault(key, (partition, 0, 0))
        if clock.closed or self.plan.search.has_deadline:
            for key, partition in self.partitions.items():
                if key not in touched and self._is_due(partition, clock):
                    touched[key] = partition, 0, 0
        found = self._advance(list(touched.values()), grouped, clock) if touched else None
        for key in over:
            self._let_go(key)
        if len(self.partitions) > self._look_at:
            self._let_go_blank()
        return found

    def rests(self, key: Key) -> Resting:
        """What a partition waits for."""
        part = self.partitions.get(key)
        if part is not None and part.search.attempt is None and not part.pending and part.place < 0:
            # Find an open attempt that was not kept.
            self._run(part, Found())
        attempt = None if part is None else part.search.attempt
        if part is not None and part.pending:
            return Resting(is_idle=False, is_clean=False)
        if part is not None and part.place >= 0:
            return Resting(False, False, part.place, part.end - part.search.next_start)
        if part is None or attempt is None:
            return Resting(is_idle=True, is_clean=True)
        seen = part.masks[attempt.start - part.search.base :]
        is_clean = not any(mask & self._last_bits for mask in seen)
        return Resting(False, is_clean, attempt.place, part.search.end - part.search.oldest_needed)

    def skip(self, keys: Sequence[Key], rows: Rows) -> None:
        """Skip rows that cannot matter, and abandon open attempts. `rows`: the last ones of each of these partitions of
        one ticker, which later conditions look back at."""
        names, codes = distinct(rows.ticker)
        tickers = [names[code] for code in codes.tolist()]
        counts = Counter(tickers)
        self._begin([(key, {str(key[0])}) for key in keys])
        for key in keys:
            part, name = self.partitions[key], str(key[0])
            self._retained.release(part.pieces)
            part.first_row, part.count = part.end, counts[name]
            part.tested = part.end
            part.masks, part.written, part.place = [], "", -1
            part.tickers.add(name)
            part.search.skip_to(part.end)
            part.path = self._path_values(part.search)
        order = {key[0]: place for place, key in enumerate(keys)}
        places = np.argsort([order[name] for name in tickers], kind="stable").astype(np.int64)
        kept = compact(rows.take(places), self._columns)
        owners = [self.partitions[key].pieces for key in keys]
        self._retained.add(owners, [counts[str(key[0])] for key in keys], kept)

    def _accept(self, rows: Rows) -> tuple[dict[Key, New], Rows, list[Key]]:
        """The partitions of new rows, the rows in the order of partitions and ORDER BY, and the partitions that get no
        more rows after these.
        """
        touched: dict[Key, New] = {}
        if rows.length == 0:
            return touched, rows, []
        names, codes = distinct(rows.ticker)
        grouped, codes, pieces = by_partition(rows, codes, self.plan.partition, keys=self.plan.order)
        tickers = [set(names) for _ in pieces] if len(names) == 1 else _tickers_of(pieces, names, codes)
        over = self._begin([(key, own) for (key, _, _), own in zip(pieces, tickers, strict=True)])
        for (key, start, end), own in zip(pieces, tickers, strict=True):
            partition = self.partitions[key]
            partition.tickers |= own
            touched[key] = partition, start, end
        return touched, grouped, over

    def _begin(self, reached: list[tuple[Key, set[str]]]) -> list[Key]:
        """Create the partitions that rows have reached for the first time. Returns those that get no more rows after
        these. Raises TriggerRejected for too many partitions.
        """
        most = self.plan.search.limits.partitions
        new = [(key, tickers) for key, tickers in reached if key not in self.partitions]
        if len(self.partitions) + len(new) > most:
            self._let_go_blank()
            new = [(key, tickers) for key, tickers in reached if key not in self.partitions]
        over = self._left_behind.begin(new) if self._left_behind.rising else []
        if len(self.partitions) + len(new) - len(over) > most:
            raise self._too_many()
        for key, _ in new:
            search = PartitionSearch(self.plan.search)
            self._begun += 1
            self._add(key, Partition(search=search, number=self._begun, path=self._path_values(search)))
        return over

    def _add(self, key: Key, part: Partition) -> None:
        self.partitions[key] = self._by_number[part.number] = part

    def _let_go(self, key: Key) -> None:
        part = self.partitions.pop(key)
        del self._by_number[part.number]
        self._retained.release(part.pieces)
        self._left_behind.remove(key, part.tickers)

    def _let_go_blank(self) -> None:
        """Drop the partitions that behave as a new one would."""
        if self._forgets_blank:
            for key in [
                key for key, part in self.partitions.items() if not part.count and not part.search.match_number
            ]:
                self._let_go(key)
        self._look_at = max(FEW_PARTITIONS, 2 * len(self.partitions))

    def _too_many(self) -> TriggerRejected:
        most = self.plan.search.limits.partitions
        return self.plan.at.reject(
            f"the pattern keeps more than {most} partitions at a time",
            "name columns with few values in PARTITION BY, and add WITHIN",
        )

    def _path_values(self, search: PartitionSearch) -> PathValues | None:
        path, foresight = self.plan.conditions.path, self._foresight
        if path is None and foresight is None:
            return None
        return PathValues(search.base, 0 if path is None else len(path.hoisted), foresight)

    def _watermark(self, partition: Partition, clock: Clock) -> int | None:
        if partition.is_over:
            return FOREVER
        known = [clock.of(ticker) for ticker in partition.tickers]
        return None if not known or any(value is None for value in known) else min(v for v in known if v is not None)

    def _is_due(self, partition: Partition, clock: Clock) -> bool:
        if partition.place >= 0:
            return True
        if partition.search.attempt is None and not clock.closed:
            return False
        watermark = self._watermark(partition, clock)
        if watermark is None:
            return False
        if watermark == FOREVER:
            return not partition.search.closed
        attempt = partition.search.attempt
        deadline = None if attempt is None else partition.search.deadline(attempt)
        if deadline is None:
            return False
        seen = partition.search.watermark
        # Once its deadline has passed, time alone does not advance an attempt that waits for $.
        return watermark >= deadline and not (self.plan.has_end_anchor and seen is not None and seen >= deadline)

    def _advance(self, touched: list[New], grouped: Rows, clock: Clock) -> MatchResult | None:
        parts: list[Partition] = []
        new: list[int] = []
        spans = []
        for part, start, end in touched:
            if part.count or end > start:
                parts.append(part)
                new.append(end - start)
                spans.append((part.pieces, start, end))
                part.written, part.place = "", -1
                part.count += end - start
        if not parts:
            return None
        together = self._retained.gathered(spans, grouped)
        sizes = np.array([part.count for part in parts], dtype=np.int64)
        ends = sizes.cumsum()
        bounds = Bounds(ends - sizes, ends)
        untested = self._untested(parts, together, bounds)
        values = self._values(untested.rows, untested.bounds)
        row_masks, times = self._masks(untested, values, together), self._times(untested, together)
        batch = PathBatch.of(self.plan.conditions.path, self._foresight, values, masks=row_masks, times=times)
        ready = Found()
        watches_time = self.plan.search.has_deadline or bool(clock.closed) or any(part.is_over for part in parts)
        is_many = not self._measures_ahead and self._bulk.suits(grouped.length)
        in_bulk: list[tuple[Partition, int]] = []
        for part, start, moved in zip(parts, bounds.starts.tolist(), untested.moved.tolist(), strict=True):
            # Without deadlines and ended tickers, nothing depends on the watermark.
            watermark = self._watermark(part, clock) if watches_time else None
            shift = start - part.first_row
            if part.path is None and is_many and watermark != FOREVER:
                in_bulk.append((part, shift))
                continue
            self._test(part, row_masks, times, shift, watermark)
            if part.path is not None:
                batch.bind(part, part.path, shift, moved=moved)
            self._search(part, ready, shift)
            part.search.prospects = None
        found = self._search_in_bulk(in_bulk, row_masks, ready) if in_bulk else None
        matches = ready.matches() if found is None else found.merged(ready.matches())
        result = self._put_out(matches, together, bounds)
        self._forget(parts, new, together, bounds)
        return result

    def _values(self, rows: Rows, bounds: Bounds) -> RowValues:
        return RowValues(self._slots.reader(rows.relation.column, rows.ticker), rows.length, bounds)

    def _untested(self, parts: list[Partition], together: Gathered, bounds: Bounds) -> Tested:
        """The rows to test, and those that they look back at; all rows if there are few others."""
        passed = [max(0, part.computed - self._lookback - part.first_row) for part in parts]
        if together.length <= _FEW_ROWS or 2 * sum(passed) < together.length:
            return Tested(together.rows, bounds, None, np.zeros(len(parts), np.int64))
        starts = bounds.starts + np.array(passed, np.int64)
        lengths = bounds.ends - starts
        moved = starts - (lengths.cumsum() - lengths)
        sizes = lengths[lengths > 0]
        places = ranges(starts[lengths > 0], sizes)
        ends = sizes.cumsum()
        return Tested(together.take(places), Bounds(ends - sizes, ends), places, moved)

    def _masks(self, tested: Tested, values: RowValues, together: Gathered) -> Array:
        """The masks of the rows to test; 0 for rows that were tested before."""
        masks = mask_array(self.plan.conditions, values, tested.rows.length)
        return masks if tested.places is None else tested.placed(masks, together.length)

    def _times(self, tested: Tested, together: Gathered) -> Array:
        if self.plan.time_column is None:
            return np.zeros(0, np.int64)
        times = tested.rows.relation.column(self.plan.time_column).expand().values
        return times if tested.places is None else tested.placed(times, together.length)

    def _test(self, part: Partition, row_masks: Array, times: Array, shift: int, watermark: int | None) -> None:
        closed = watermark == FOREVER
        end = part.end if closed else max(part.tested, part.end - self._lookahead)
        low, high = part.tested + shift, end + shift
        new = row_masks[low:high].tolist()
        if part.search.closed and new:
            part.search.closed = False
        if watermark is not None and end < part.end and len(times):
            # No deadline may pass before the rows that still wait for rows that NEXT reads.
            watermark = min(watermark, int(times[high]))
        part.search.watermark = None if closed else watermark
        part.search.extend(new, times[low:high].tolist(), closed=closed)
        part.masks += new
        part.tested = end

    def _search_in_bulk(self, parts: list[tuple[Partition, int]], row_masks: Array, ready: Found) -> Matches | None:
        """Run all attempts of these partitions, given with the index of their first row. An open attempt with many rows
        continues alone, and so does the last attempt of a partition, unless it has few and can only wait. None if this
        search is not possible; the results are then all in `ready`.
        """
        begins, lengths, ends = [], [], []
        for part, shift in parts:
            tested, end = part.tested, max(part.tested, part.end - self._lookahead)
            attempt = part.search.attempt
            if attempt is not None and tested - attempt.start > SHORT_ATTEMPT:
                self._go_on(part, row_masks, end, ready, shift)
                # An attempt that is still open has already seen all rows.
                begin = part.search.next_start if part.search.attempt is None else end
            else:
                begin = part.search.oldest_needed
            if begin < tested:
                known = part.masks[begin - part.search.base : tested - part.search.base]
                row_masks[begin + shift : tested + shift] = known
            begins.append(begin + shift)
            lengths.append(end - begin)
            ends.append(end)
        firsts, sizes = np.array(begins, np.int64), np.array(lengths, np.int64)
        places = sizes.cumsum()
        bounds = Bounds(places - sizes, places)
        try:
            found = self._bulk.find(row_masks[ranges(firsts, sizes)], bounds)
        except WorkLimit as error:
            raise self._too_much(error) from None
        if found is None:
            for part, shift in parts:
                self._test(part, row_masks, _NO_TIMES, shift, None)
                self._search(part, ready, shift)
            return None
        counts = np.bincount(found.partitions, minlength=len(parts)).tolist()
        numbered = np.array([part.search.match_number for part, _ in parts])[found.partitions]
        moved = firsts - bounds.starts
        undecided = np.where(found.undecided < 0, -1, found.undecided + moved).tolist()
        most = min(SHORT_ATTEMPT, self.plan.search.limits.retained_rows)
        waits = [self.plan.search.automaton.waits(place) for place in range(int(found.places.max(initial=0)) + 1)]
        waiting = np.array(waits, np.bool_)[found.places].tolist()
        for (part, shift), length, end, count, row, is_waiting in zip(
            parts, lengths, ends, counts, undecided, waiting, strict=True
        ):
            if part.search.attempt is not None and not length:
                continue
            part.search.attempt = None
            begin = row - shift if row >= 0 else end
            part.masks = row_masks[begin + shift : end + shift].tolist()
            part.tested = end
            part.search.restart(begin, part.masks, count)
            if row >= 0 and not (is_waiting and end - begin <= most):
                self._search(part, ready, shift)
        matches = found.matches
        return replace(matches, starts=matches.starts + moved[found.partitions], numbers=matches.numbers + numbered)

    def _go_on(self, part: Partition, row_masks: Array, end: int, ready: Found, shift: int) -> None:
        """Let an open attempt take rows up to `end`, in growing portions, until it has ended."""
        matches, rows = len(ready.starts), 64
        while part.search.attempt is not None and part.tested < end:
            low, high = part.tested + shift, min(part.tested + rows, end) + shift
            new = row_masks[low:high].tolist()
            part.search.extend(new)
            part.masks += new
            part.tested = high - shift
            self._run(part, ready, once=True)
            rows *= 2
        for index in range(matches, len(ready.starts)):
            ready.starts[index] += shift

    def _search(self, part: Partition, ready: Found, shift: int) -> None:
        if part.pending or self._measures_ahead:
            found = Found()
            self._run(part, found)
            self._wait(part, found)
            ready.unmatched.extend(row + shift for row in found.unmatched)
            self._ready(part, ready, shift)
            return
        matches, unmatched = len(ready.starts), len(ready.unmatched)
        self._run(part, ready)
        for index in range(matches, len(ready.starts)):
            ready.starts[index] += shift
        for index in range(unmatched, len(ready.unmatched)):
            ready.unmatched[index] += shift

    def _run(self, part: Partition, found: Found, *, once: bool = False) -> None:
        """Search as far as the rows allow, giving up old starts past the limit of retained rows. `once`: see
        `PartitionSearch.run`.
        """
        search = part.search
        dropped, degraded = found.dropped, found.degraded
        while True:
            try:
                search.run(found, once=once)
            except WorkLimit as error:
                raise self._too_much(error) from None
            except StepLimit:
                attempt = search.attempt
                assert attempt is not None
                search.attempt = None
                search.next_start = attempt.start + 1
                found.dropped += 1
                continue
            if search.end - search.oldest_needed <= self.plan.search.limits.retained_rows:
                break
            # Dropping a single start would test all rows again for each new one, so give up a quarter of them.
            kept = self.plan.search.limits.retained_rows * 3 // 4
            search.next_start = max(search.oldest_needed + 1, search.end - kept)
            search.attempt = None
            found.dropped += 1
        self.reports.dropped_starts += found.dropped - dropped
        self.reports.degraded_skips += found.degraded - degraded

    def _too_much(self, error: WorkLimit) -> TriggerRejected:
        return self.plan.at.reject(str(error), LESS_WORK)

    @staticmethod
    def _wait(part: Partition, found: Found) -> None:
        first = 0
        for index, (start, size, number) in enumerate(zip(found.starts, found.lengths, found.numbers, strict=True)):
            labels = list(found.labels[first : first + size])
            first += size
            part.pending.append(Pending(start, labels, number, index in found.timed_out, index in found.partial))

    def _ready(self, part: Partition, ready: Found, shift: int) -> None:
        count = 0
        for match in part.pending:
            if not part.search.closed and match.start + max(1, len(match.labels)) + self._measures_ahead > part.end:
                break
            count += 1
            if match.timed_out:
                ready.timed_out.add(len(ready.starts))
            if match.partial:
                ready.partial.add(len(ready.starts))
            ready.add(match.start + shift, match.labels, match.number)
        del part.pending[:count]

    def _put_out(self, matches: Matches, together: Gathered, bounds: Bounds) -> MatchResult | None:
        if not len(matches.starts) and not len(matches.unmatched):
            return None
        matches, given, bounds = self._with_matches(matches, together, bounds)
        result = evaluate_matches(self.plan, matches, given.relation.column, bounds=bounds)
        shown = given.take(result.rows)
        relation = match_relation(self.plan, shown.relation, result.measures)
        return MatchResult(shown.replaced(relation), context_of(matches, result, given))

    @staticmethod
    def _with_matches(matches: Matches, together: Gathered, bounds: Bounds) -> tuple[Matches, Rows, Bounds]:
        """The matches over the rows of all partitions, or only of those with matches if the others have many rows."""
        if len(bounds.ends) == 1:
            return matches, together.rows, bounds
        used = np.zeros(len(bounds.ends), np.bool_)
        for rows in (matches.starts, matches.unmatched):
            used[np.searchsorted(bounds.ends, rows, side="right")] = True
        sizes = bounds.ends - bounds.starts
        if 2 * int(sizes[used].sum()) >= together.length:
            return matches, together.rows, bounds
        ends = np.cumsum(np.where(used, sizes, 0))
        moved = ends - bounds.ends
        matches = replace(
            matches,
            starts=matches.starts + moved[np.searchsorted(bounds.ends, matches.starts, side="right")],
            unmatched=matches.unmatched + moved[np.searchsorted(bounds.ends, matches.unmatched, side="right")],
        )
        given = together.take(ranges(bounds.starts[used], sizes[used]))
        return matches, given, Bounds((ends - sizes)[used], ends[used])

    def _forget(self, parts: list[Partition], new: list[int], together: Gathered, bounds: Bounds) -> None:
        """Drop the rows that no attempt, pending match or later condition can reach. All partitions' rows are copied
        together; for a partition that keeps many, only the `new` ones are copied.
        """
        keep: list[tuple[int, int]] = []
        for part, start, end, fresh in zip(parts, bounds.starts.tolist(), bounds.ends.tolist(), new, strict=True):
            search = part.search
            base = min(search.oldest_needed, search.end)
            if base - search.base > max(0, len(part.masks) - MANY_KEPT) // _SPARE_PART:
                del part.masks[: base - search.base]
                search.forget(base)
                if part.path is not None:
                    part.path.forget(base)
            needed = min([search.base, part.tested, *(match.start for match in part.pending)])
            first = max(part.first_row, needed - self._before_match)
            low, old = start + first - part.first_row, end - fresh
            part.first_row, part.count = first, end - low
            if old - low < MANY_KEPT:
                self._retained.release(part.pieces)
            else:
                self._retained.release(part.pieces, old - low)
                low = old
                if len(part.pieces) >= MOST_PIECES:
                    low -= self._retained.release_small(part.pieces, fresh)
            keep.append((low, end))
        lengths = [high - low for low, high in keep]
        if len(keep) == 1:
            kept = together.part(keep[0][0], lengths[0])
        else:
            kept = together.take(ranges(np.array([low for low, _ in keep], np.int64), np.array(lengths, np.int64)))
        self._retained.add([part.pieces for part in parts], lengths, compact(kept, self._columns))
        if self._retained.has_many_spare(self.retained_rows):
            owners = [part.pieces for part in self.partitions.values() if part.count]
            if owners:
                self._retained.repack(owners)

    def drop(self, tickers: Set[str]) -> None:
        """Drop the partitions that have only rows of these tickers."""
        for key in [key for key, part in self.partitions.items() if part.tickers <= tickers]:
            self._let_go(key)
        self._left_behind.drop(tickers)

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def retained_rows(self) -> int:
        return sum(part.count for part in self.partitions.values())

    def snapshot(self) -> tuple[str, Rows | None]:
        """The state as JSON, and the retained rows of all partitions."""
        return self._written({}), self._log.whole()

    def parts(self) -> tuple[str, Rows | None, dict[int, bytes]]:
        """A snapshot whose older rows are in chunks that never change, by number."""
        log, last, chunks = self._log.parts()
        return self._written(log), last, chunks

    def _written(self, log: Mapping[str, Any]) -> str:
        for key, part in self.partitions.items():
            part.written = part.written or written(key, part)
        parts_written = ",".join([part.written for part in self.partitions.values()])
        reports = [self.reports.dropped_starts, self.reports.degraded_skips, self.reports.late_rows]
        others = {
            "reports": reports,
            "newest": self._left_behind.snapshot(),
            "begun": self._begun,
            "log": log,
            "form": _FORM,
        }
        return f'{{"partitions":[{parts_written}],{json.dumps(others)[1:]}'

    def restore(
        self, state: Mapping[str, Any], rows: Rows | None, chunks: Mapping[int, bytes] = MappingProxyType({})
    ) -> None:
        """Raises ValueError if rows of the state are missing."""
        self.partitions.clear()
        self._by_number.clear()
        self._retained = RetainedRows(self._columns)
        self._log = self._new_log()
        self.reports = Reports(*state["reports"])
        for number, state_of_one in enumerate(state["partitions"]):
            self._add(*read(state_of_one, self.plan.search, number + 1))
        # Missing in states of older versions, which have all rows in one, in the order of the partitions.
        self._begun = state.get("begun", len(self.partitions))
        if "log" in state:
            rows = self._log.restore(state["log"], rows, chunks)
        if state.get("form") != _FORM:
            self._log = self._new_log()
            for part in self.partitions.values():
                part.search_again()
        known = [(key, part.tickers) for key, part in self.partitions.items()]
        self._left_behind.restore(state.get("newest", {}), known if self._left_behind.rising else ())
        parts = [part for _, part in sorted(self._by_number.items())]
        for part in parts:
            part.path = self._path_values(part.search)
        if rows is not None:
            self._retained.add([part.pieces for part in parts], [part.count for part in parts], rows)


def _tickers_of(pieces: Sequence[tuple[Key, int, int]], names: Sequence[str], codes: Index) -> list[set[str]]:
    """The tickers of the rows of each piece (key, first row, end), whose `codes` are their places in `names`."""
    starts = np.array([start for _, start, _ in pieces], dtype=np.int64)
    least, most = np.minimum.reduceat(codes, starts).tolist(), np.maximum.reduceat(codes, starts).tolist()
    return [
        {names[low]} if low == high else {names[code] for code in np.unique(codes[start:end]).tolist()}
        for (_, start, end), low, high in zip(pieces, least, most, strict=True)
    ]
