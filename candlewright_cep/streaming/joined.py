"""A running text that joins inputs: each side has its own operators, and rows meet once no earlier row can arrive."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.streaming.joins.meeting import Arriving, Kept, Running
from candlewright_cep.streaming.rows.release import SEQUENCE, TAKEN_AT, Clock, Rows, rows_of
from candlewright_cep.streaming.stages.stages import Stage
from candlewright_cep.streaming.stream import Events, Passed, TriggerStream, fed, own_rows

__all__ = ["JoinedStream"]


@dataclass(slots=True)
class JoinedStream(TriggerStream):
    """A `TriggerStream` of several inputs. `firsts`: for an input, by its name, what `active_from` and `tickers` say
    for all other inputs.
    """

    firsts: Mapping[str, tuple[int, Mapping[str, int] | None]] = field(default_factory=dict)
    _running: Running = field(init=False, repr=False)

    def _operators(self) -> list[Stage]:
        assert self.query.joined is not None
        self._running = Running(self.query, self.query.joined, self._slots)
        return self._running.every_stage()

    def feed(self, released: pa.Table, clock: Clock, *, is_own: bool = False) -> Events:
        raise TypeError("a stream of several inputs takes the rows of each with feed_input")

    def feed_input(self, name: str, period: int, released: pa.Table, *, clock: Clock) -> Events:
        """`feed` with rows of the input `name` (of `period`, if it has periods) and their watermarks. Returns what both
        sides together have decided.

        Raises TriggerRejected if the work exceeds a limit.
        """
        rows = released.num_rows + self._waiting_rows()
        return self._worked(rows, lambda: self._events(self._run(self._running, (name, period), released, clock)))

    def _run(self, running: Running, place: tuple[str, int], released: pa.Table, clock: Clock) -> Passed:
        """The rows that a branch emits."""
        if running.arriving is not None:
            rows, known = self._arrive(running.arriving, place, released, clock)
        else:
            assert running.meeting is not None
            left, right = (self._run(side, place, released, clock) for side in running.sides)
            rows, known = running.meeting.feed(left.rows, left.clock, right.rows, at_right=right.clock)
        found = fed(running.stages, Passed(rows, known), slots=self._slots)
        return Passed(found.rows, known, found.context)

    def _arrive(
        self, arriving: Arriving, place: tuple[str, int], released: pa.Table, clock: Clock
    ) -> tuple[Rows, Clock]:
        leaf = arriving.leaf
        source = leaf.source
        is_here = (leaf.name, leaf.period) == place
        if not is_here or (not released.num_rows and SEQUENCE not in released.column_names):
            released = source.schema.empty_table().append_column(SEQUENCE, pa.array([], pa.int64()))
        active_from, tickers = self.firsts.get(leaf.name, (self.active_from, self.tickers))
        released = own_rows(released, source.ticker_column, active_from, tickers=tickers)
        time = source.time_columns[0]
        if TAKEN_AT in released.column_names and not self._running.shows_own_times:
            released = _taken_at(released, time)
        elif TAKEN_AT in released.column_names:
            time = TAKEN_AT
        rows = rows_of(released, len(source.schema), time, ticker_column=source.ticker_column)
        return (arriving.feed(rows, clock) if is_here else rows), arriving.clock

    @property
    def late_rows(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for stage in self.stages:
            if isinstance(stage, Arriving):
                for ticker, count in stage.waiting.late.items():
                    found[ticker] = found.get(ticker, 0) + count
        return found

    def _waiting_rows(self) -> int:
        held = [stage.rows for stage in self.stages if isinstance(stage, Kept)]
        return sum(rows.length for rows in held if rows is not None)

    def _check_kept(self) -> None:
        TriggerStream._check_kept(self)
        most = self.query.compiled.limits.retained_rows
        for stage in self.stages:
            if isinstance(stage, Kept) and (found := stage.of_a_ticker(most)) > most:
                raise TriggerRejected(
                    f"the join keeps {found} rows of a ticker; {most} are allowed",
                    hint="use a shorter interval, or see whether one of its inputs has stopped",
                )
            held = stage.waiting.held if isinstance(stage, Arriving) else None
            if held is not None and held.length > most:
                raise TriggerRejected(
                    f"more than {most} rows wait for a slower ticker",
                    hint="name the tickers that trade, or set idle_seconds",
                )


def _taken_at(released: pa.Table, column: str) -> pa.Table:
    """The rows, with the times at which they were taken in place of their own times."""
    place = released.schema.get_field_index(column)
    field = released.schema.field(place)
    return released.set_column(place, field, released.column(TAKEN_AT).cast(field.type))
