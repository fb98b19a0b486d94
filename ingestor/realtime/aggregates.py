"""Cuts an exchange's aggregates (several raw trades of one price and time) to the missing ids."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from ingestor.trade import SIZE, Aggregate, Trade
from protobuf import records_pb2 as records


def cut(aggregate: Aggregate, first: int, last: int, *, known: Mapping[int, Trade]) -> Aggregate | None:
    """The part of an aggregate with ids `first` to `last`; None if it has none, or if `known` lacks a trade whose size
    must be subtracted.
    """
    low, high = max(aggregate.first, first), min(aggregate.last, last)
    if low > high:
        return None
    if (low, high) == (aggregate.first, aggregate.last):
        return aggregate
    size = Decimal(repr(aggregate.size))
    for order in (*range(aggregate.first, low), *range(high + 1, aggregate.last + 1)):
        trade = known.get(order)
        if trade is None:
            return None
        size -= Decimal(repr(trade[SIZE]))
    return Aggregate(low, high, aggregate.time, aggregate.price, float(size)) if size >= 0 else None


def seed_of(aggregates: Sequence[Aggregate]) -> records.Seed:
    prices = [aggregate.price for aggregate in aggregates]
    return records.Seed(
        period_seconds=0,
        open_time=[aggregate.time for aggregate in aggregates],
        open=prices,
        high=prices,
        low=prices,
        close=prices,
        volume=[aggregate.size for aggregate in aggregates],
        first_trade_id=[aggregate.first for aggregate in aggregates],
        last_trade_id=[aggregate.last for aggregate in aggregates],
    )
