"""Random walks of prices, as trades and as the table that a trigger reads."""

import random

import pyarrow as pa

from candlewright.wire.grid import SECOND
from tests.flink_replacement_spark.trigger_feed import T0
from triggers.texts.check import INPUTS


def table_of(ticker: str, first_id: int, prices: list[float]) -> pa.Table:
    """The trades of `trigger_feed.trades` as the table `ticks`."""
    ids = range(first_id, first_id + len(prices))
    times = [T0 + number * SECOND for number in ids]
    columns = {
        "ticker": [ticker] * len(prices), "trade_id": [str(number) for number in ids], "ts": times, "ts_ns": times,
        "price": prices, "size": [0.5] * len(prices), "side": ["buy"] * len(prices), "received_at": times,
    }  # fmt: skip
    schema = INPUTS["ticks"].schema
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


def walk(seed: int, count: int) -> list[float]:
    chance = random.Random(seed)
    price, found = 100.0, []
    for _ in range(count):
        price += chance.choice((-1.0, -0.5, 0.0, 0.5, 1.0))
        found.append(price)
    return found
