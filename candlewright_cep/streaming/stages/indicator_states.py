"""Indicators on a stream: one state per partition instead of all rows seen."""

import base64
from collections.abc import Hashable, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.expressions import WindowFunction
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions.indicators.indicator import Input
from candlewright_cep.functions.indicators.indicator import Rows as Part
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.indicators.series import Layout, Memory
from candlewright_cep.limits import Limits
from candlewright_cep.planning.over import Window
from candlewright_cep.planning.relation import arranged
from candlewright_cep.streaming.rows.release import Rows
from candlewright_cep.streaming.stages.running_over import too_many_partitions
from candlewright_cep.times import UNITS
from candlewright_cep.vector import Array, Index, Vector

#: The most numbers that all indicators of one window keep.
MOST_KEPT = 1 << 22
_FEW = 1_000
_PAST_NS = 2 * UNITS["DAY"]

Key = tuple[Hashable, ...]


class IndicatorStates:
    """The values of `functions` for the rows of each feed, which come in the order of the window.

    Partitions by a time (a day, a session) are dropped two days after it.
    """

    def __init__(self, window: Window, functions: Sequence[WindowFunction], limits: Limits) -> None:
        self._window = window
        self._functions = functions
        self._most = limits.partitions
        self._memories = [Memory() for _ in functions]
        self._numbers: dict[Key, int] = {}
        self._tickers: list[str] = []
        self._let_go_at = _FEW
        # The keys and tickers of the last feed, and the numbers of its partitions.
        self._last: tuple[list[pa.Array], Index] | None = None

    def feed(self, rows: Rows) -> list[Vector]:
        """One column per function, in the order of `rows`. Raises TriggerRejected for too much state."""
        arrangement, bounds, order = arranged(rows.relation, self._window.partition, self._window.order)
        if len(self._numbers) > self._let_go_at:
            self._let_go(rows)
        values = arrangement.values(bounds)
        partitions = self._partitions(rows, order[bounds.starts])
        back: Index = np.empty_like(order)
        back[order] = np.arange(len(order))
        layout = Layout(partitions, bounds.ends - bounds.starts)
        inputs = {part: Input.of(values.value(part)) for function in self._functions for part in function.arguments}
        found: list[Vector] = []
        for function, memory in zip(self._functions, self._memories, strict=True):
            memory.grow(len(self._numbers))
            given = [inputs[part] for part in function.arguments]
            part = Part(bounds.starts, bounds.ends, layout, memory)
            found.append(INDICATORS[function.name].over(given, function.numbers, part).take(back))
            self._check()
        return found

    def _check(self) -> None:
        if sum(memory.size for memory in self._memories) > MOST_KEPT:
            raise TriggerRejected(
                f"the indicators of a window keep more than {MOST_KEPT} numbers", hint="use fewer or shorter ones"
            )

    def _partitions(self, rows: Rows, firsts: Index) -> Index:
        """The partitions' numbers; makes room for each in the memories."""
        own, last = (
            [rows.relation.column(index).take(firsts).to_arrow() for index in self._window.partition],
            self._last,
        )
        own.append(rows.ticker.take(pa.array(firsts)))
        if last is not None and all(one.equals(other) for one, other in zip(own, last[0], strict=True)):
            # Usual when a minute closes.
            return last[1]
        columns = [rows.relation.column(index).take(firsts).to_list() for index in self._window.partition]
        keys: list[Key] = list(zip(*columns, strict=True)) if columns else [()] * len(firsts)
        if self._has_too_many(keys):
            self._let_go(rows)
            if self._has_too_many(keys):
                raise too_many_partitions(self._most)
        numbers = self._numbers
        found = [numbers.setdefault(key, len(numbers)) for key in keys]
        self._tickers += [""] * (len(numbers) - len(self._tickers))
        for number, ticker in zip(found, own[-1].to_pylist(), strict=True):
            self._tickers[number] = ticker or ""
        self._last = own, np.array(found, np.int64)
        return self._last[1]

    def _has_too_many(self, reached: Sequence[Key]) -> bool:
        return len(self._numbers) + sum(key not in self._numbers for key in reached) > self._most

    def _let_go(self, rows: Rows) -> None:
        """Drop partitions whose time is long past for their ticker; checked whenever their number has doubled."""
        times = [
            place for place, index in enumerate(self._window.partition) if rows.relation.column(index).type.is_time
        ]
        if times:
            keys = list(self._numbers)
            values = np.array([[key[place] or 0 for place in times] for key in keys], np.int64)
            _, tickers = np.unique(np.array(self._tickers), return_inverse=True)
            newest = np.full((int(tickers.max()) + 1, len(times)), np.iinfo(np.int64).min)
            np.maximum.at(newest, tickers, values)
            self._keep(np.flatnonzero((newest[tickers] - values <= _PAST_NS).all(axis=1)))
        self._let_go_at = max(_FEW, 2 * len(self._numbers))

    def _keep(self, numbers: Index) -> None:
        keys, self._last = list(self._numbers), None
        self._numbers = {keys[number]: place for place, number in enumerate(numbers.tolist())}
        self._tickers = [self._tickers[number] for number in numbers.tolist()]
        for memory in self._memories:
            memory.keep(numbers)

    @property
    def partitions(self) -> int:
        return len(self._numbers)

    def drop(self, tickers: Set[str]) -> None:
        kept = [number for number, ticker in enumerate(self._tickers) if ticker not in tickers]
        if len(kept) < len(self._tickers):
            self._keep(np.array(kept, np.int64))

    def snapshot(self) -> dict[str, Any]:
        count = len(self._numbers)
        return {
            "keys": [list(key) for key in self._numbers],
            "tickers": self._tickers,
            "memories": [
                {"rows": memory.rows[:count].tolist(), "tables": [_written(table[:count]) for table in memory.tables]}
                for memory in self._memories
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        if not state or not state["keys"]:
            # All partitions were dropped, so the state does not say how wide their tables were.
            return
        self._numbers = {tuple(key): number for number, key in enumerate(state["keys"])}
        self._tickers, self._last = list(state["tickers"]), None
        count = len(self._tickers)
        self._memories = [
            Memory(np.array(memory["rows"], np.int64), [_read(table, count) for table in memory["tables"]])
            for memory in state["memories"]
        ]


def _written(table: Array) -> str:
    return base64.b64encode(table.tobytes()).decode()


def _read(written: str, rows: int) -> Array:
    found: Array = np.frombuffer(base64.b64decode(written)).copy()
    return found.reshape(rows, -1)
