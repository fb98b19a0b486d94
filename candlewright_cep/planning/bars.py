"""Bars by traded amount: BARS BY VOLUME, TRADES or VALUE.

A bar ends with the trade that brings its total to the size; the next trade begins a new bar. Totals are counted in
integer units, so that they do not depend on how rows were batched.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.binder import Field, lookup
from candlewright_cep.binding.expressions import Column
from candlewright_cep.functions.aggregates.kernels import accumulate
from candlewright_cep.functions.scalars.scalar import cast
from candlewright_cep.matching.recognize import SortKey
from candlewright_cep.planning.plans import Inputs, Plan
from candlewright_cep.planning.relation import Relation, Source, arranged, concatenated
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import Identifier
from candlewright_cep.types import BIGINT, DOUBLE, Kind, SqlType
from candlewright_cep.vector import Index, Vector

MEASURES = ("VOLUME", "TRADES", "VALUE")
#: The units of a full bar, unless its size is a number of trades. Rounded sums of doubles may fall short of the exact
#: sum, so a bar is full if less than a billionth of it is missing.
_UNITS, _MISSING = 1 << 40, 1 << 10
#: The units of more rows together could overflow 64 bits.
_BLOCK = 1 << 22
_MOST_TRADES = 10**9


@dataclass(frozen=True, slots=True)
class Closed:
    """`bars`: the finished bars in order, each with the number of the piece that ended it; `rest`: the open bars so
    far, each with the number of its last piece.
    """

    bars: Relation
    last: Index
    rest: Relation
    rest_last: Index


@dataclass(kw_only=True, frozen=True, slots=True)
class Bars:
    """The bars of the trades of `inner`, of which `time`, `price` and `amount` are columns. Each value of `partition`
    (the ticker, if there is one) has its own bars. Trades without a time, price or amount are ignored.

    A *piece* is a trade, or a bar that is still open, as a row with the columns of a bar and its units.
    """

    inner: Plan
    measure: str
    size: float
    time: int
    price: int
    amount: int
    partition: tuple[int, ...]
    fields: tuple[Field, ...]
    at: Position

    @property
    def opened(self) -> int:
        """The column of a bar's first time; the next column is its last time."""
        return len(self.partition)

    def run(self, inputs: Inputs) -> Relation:
        pieces, _ = self.pieces(self.inner.run(inputs))
        # In the order of time for all tickers together, as a stream has them, which decides between bars of equal ends.
        rows, _, _ = arranged(pieces, (), (self._order,))
        found: list[Relation] = []
        rest = rows.slice(0, 0)
        for start in range(0, max(rows.length, 1), _BLOCK):
            block = rows.slice(start, min(_BLOCK, rows.length - start))
            closed = self.closed(concatenated([rest, block]) if rest.length else block)
            rest = closed.rest
            found.append(closed.bars)
        return found[0] if len(found) == 1 else concatenated(found)

    @property
    def _order(self) -> SortKey:
        return SortKey(Column(self.opened + 1, self.fields[self.opened + 1].type), False, False)

    def pieces(self, rows: Relation) -> tuple[Relation, Index]:
        """The trades as pieces, and their row numbers in `rows`."""
        work.spend(rows.length)
        time = rows.column(self.time).expand()
        price, amount = (cast(rows.column(index), DOUBLE).expand() for index in (self.price, self.amount))
        prices, amounts = price.values, amount.values
        usable = time.mask & price.mask & amount.mask & np.isfinite(prices) & np.isfinite(amounts) & (amounts >= 0)
        picked = np.flatnonzero(usable)
        prices, amounts = prices[picked], amounts[picked]
        times = Vector(time.type, time.values[picked], None)
        with np.errstate(over="ignore"):
            values = prices * amounts
        of_price, of_amount = Vector(DOUBLE, prices, None), Vector(DOUBLE, amounts, None)
        units = np.ones(len(picked), np.int64)
        if self.measure != "TRADES":
            share = np.minimum((amounts if self.measure == "VOLUME" else np.abs(values)) / self.size, 1.0)
            units = np.rint(share * _UNITS).astype(np.int64)
        found: list[Source] = [rows.column(index).take(picked) for index in self.partition]
        found += [times, times, of_price, of_price, of_price, of_price, of_amount, Vector(DOUBLE, values, None)]
        found += [Vector(BIGINT, np.ones(len(picked), np.int64), None), Vector(BIGINT, units, None)]
        return Relation(found, len(picked)), picked

    def closed(self, pieces: Relation) -> Closed:
        """The bars that pieces make; an open bar must precede the trades that continue it."""
        work.spend(pieces.length, work.FOLDED_A_STEP)
        rows, bounds, order = arranged(pieces, range(self.opened), (self._order,))
        units = rows.column(rows.width - 1).expand().values
        totals = np.cumsum(units)
        # For each row, the row after the last one of a bar that begins here.
        following = (np.searchsorted(totals, totals - units + self._enough) + 1).tolist()
        begun: list[int] = []
        for first, end in zip(bounds.starts.tolist(), bounds.ends.tolist(), strict=True):
            while first < end:
                begun.append(first)
                first = following[first]
        firsts = np.array(begun, np.int64)
        lasts = np.append(firsts[1:], rows.length)[: len(firsts)] - 1
        merged = self._merged(rows, firsts, lasts)
        whole = merged.column(merged.width - 1).expand().values >= self._enough
        ends, came = rows.column(self.opened + 1).expand().values[lasts], order[lasts]
        done, left = np.flatnonzero(whole), np.flatnonzero(~whole)
        done = done[np.lexsort((came[done], ends[done]))]
        bars = merged.select(range(merged.width - 1))
        return Closed(bars.take(done), came[done], merged.take(left), came[left])

    @property
    def _enough(self) -> int:
        return int(self.size) if self.measure == "TRADES" else _UNITS - _MISSING

    def _merged(self, rows: Relation, firsts: Index, lasts: Index) -> Relation:
        """Merges each run of pieces into one row."""
        if not len(firsts):
            return rows
        at = self.opened
        found: list[Source] = [rows.column(index).take(firsts) for index in (*range(at), at)]
        found.append(rows.column(at + 1).take(lasts))
        high, low = (rows.column(at + place).expand().values for place in (3, 4))
        found.append(rows.column(at + 2).take(firsts))
        found.append(Vector(DOUBLE, np.maximum.reduceat(high, firsts), None))
        found.append(Vector(DOUBLE, np.minimum.reduceat(low, firsts), None))
        found.append(rows.column(at + 5).take(lasts))
        for place in range(at + 6, rows.width):
            column = rows.column(place).expand()
            # Added one after another, so that sums do not depend on the batching.
            found.append(Vector(column.type, accumulate(np.add, column.values, firsts)[lasts], None))
        return Relation(found, len(firsts))


def bars(inner: Plan, measure: str, size: float, *, alias: str, at: Position) -> Bars:
    """Raises TriggerRejected for rows that are not trades, and for an invalid size."""
    if not (math.isfinite(size) and size > 0):
        raise at.reject("the size of BARS BY must be a number greater than 0")
    if measure == "TRADES" and (size != int(size) or size > _MOST_TRADES):
        raise at.reject(f"BARS BY TRADES takes a whole number of at most {_MOST_TRADES}")
    time = _place(inner, "ts", lambda kind: kind.kind is Kind.TIMESTAMP, at)
    price = _place(inner, "price", lambda kind: kind.is_numeric, at)
    amount = _place(inner, "size", lambda kind: kind.is_numeric, at)
    ticker = lookup(inner.fields, Identifier("ticker", False, at), None)
    partition = () if ticker is None or inner.fields[ticker].type.kind is Kind.OPAQUE else (ticker,)
    kind = inner.fields[time].type
    columns: list[tuple[str, SqlType]] = [("ticker", inner.fields[index].type) for index in partition]
    columns += [("open_time", kind), ("close_time", kind)]
    columns += [(name, DOUBLE) for name in ("open", "high", "low", "close", "volume", "quote_volume")]
    columns.append(("trade_count", BIGINT))
    fields = tuple(Field(name, column, alias) for name, column in columns)
    return Bars(
        inner=inner,
        measure=measure,
        size=size,
        time=time,
        price=price,
        amount=amount,
        partition=partition,
        fields=fields,
        at=at,
    )


def _place(plan: Plan, name: str, fits: Callable[[SqlType], bool], at: Position) -> int:
    found = lookup(plan.fields, Identifier(name, False, at), None)
    if found is None or not fits(plan.fields[found].type):
        raise at.reject(
            f"BARS BY needs trades: a column {name}" + (" of times" if name == "ts" else " of numbers"),
            "(SELECT ticker, ts, price, size FROM ticks) BARS BY VOLUME 100",
        )
    return found
