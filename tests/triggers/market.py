"""Market rows for triggers, written out or generated: as records of the bus, as tables, and their events."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from candlewright.wire.candlewright_pb2 import BUY, OHLCV, SELL, TickBatch
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from documentation.trigger_text import Text
from tests.triggers.trigger_records import register
from triggers.partition import TriggerPartition
from triggers.texts.check import INPUTS, TriggerRules

Row = dict[str, Any]
PERIOD = 60
#: Tickers close one second after their last row, by a clock that does not move until then.
RULES = TriggerRules(idle_ns=SECOND)
_NOW = 1


def completed(rows: Sequence[Row], input_name: str, ticker: str) -> list[Row]:
    """Rows completed with the columns that they omit."""
    return [_bar(row, ticker) if input_name == "ohlc" else _trade(row, ticker) for row in rows]


def _trade(row: Row, ticker: str) -> Row:
    return {"ticker": ticker, "price": 100.0, "size": 1.0} | row


def _bar(row: Row, ticker: str) -> Row:
    close = row.get("close", row.get("high", 100.0))
    opened = row.get("open", close)
    shape = {"open": opened, "high": max(opened, close), "low": min(opened, close), "close": close, "volume": 1.0}
    return {"ticker": ticker} | shape | row


def trades(seed: int, tickers: Sequence[str], count: int, *, start_ns: int) -> list[Row]:
    """Random walks on one clock: steps of a percent or two, many trades at the same time, sizes with a long tail."""
    chance = random.Random(seed)
    price = dict.fromkeys(tickers, 100.0)
    now, found = start_ns, []
    for _ in range(count):
        now += chance.choice((0, 0, 1, 3, 7, 20)) * SECOND
        ticker = chance.choice(tickers)
        price[ticker] = round(price[ticker] * chance.gauss(1, 0.015), 2)
        found.append(
            {"ticker": ticker, "time": now, "price": price[ticker], "size": round(chance.expovariate(1) ** 3, 3)}
        )
    return found


def bars(seed: int, tickers: Sequence[str], count: int, *, start_ns: int) -> list[Row]:
    """A minute at a time over all tickers; some minutes have no trade."""
    chance = random.Random(seed)
    last = dict.fromkeys(tickers, 1000.0)
    found = []
    for minute in range(count):
        for ticker in tickers:
            if chance.random() < 0.05:
                continue
            opened = last[ticker]
            close = last[ticker] = round(opened * chance.gauss(1, 0.003), 2)
            wick = abs(chance.gauss(0, 1)), abs(chance.gauss(0, 1))
            found.append(
                {
                    "ticker": ticker, "time": start_ns + minute * PERIOD * SECOND, "open": opened, "close": close,
                    "high": max(opened, close) + wick[0], "low": min(opened, close) - wick[1],
                    "volume": round(chance.expovariate(1) ** 2, 3),
                }
            )  # fmt: skip
    return found


def records_of(rows: Sequence[Row]) -> list[tuple[str, bytes]]:
    """(input, record) of each row, one record per row."""
    numbers: Counter[str] = Counter()
    found = []
    for row in rows:
        if "close" in row:
            found.append(("ohlc", _ohlcv(row).SerializeToString()))
            continue
        numbers[row["ticker"]] += 1
        number = numbers[row["ticker"]]
        record = TickBatch(
            ticker=row["ticker"], first_sequence=number, timestamp=[row["time"]], price=[row["price"]],
            size=[row["size"]], side=[SELL if row.get("side") == "sell" else BUY], trade_id=[str(number)],
            received_at=[row["time"] + SECOND],
        )  # fmt: skip
        found.append(("ticks", record.SerializeToString()))
    return found


def _ohlcv(row: Row) -> OHLCV:
    return OHLCV(
        open_time=row["time"], open=row["open"], high=row["high"], low=row["low"], close=row["close"],
        volume=row["volume"], period_seconds=row.get("period_seconds", PERIOD), ticker=row["ticker"], complete=True,
        source="ticks",
    )  # fmt: skip


def table_of(rows: Sequence[Row], input_name: str) -> pa.Table:
    """The rows as the stored table has them."""
    numbers: Counter[str] = Counter()
    found = []
    for row in rows:
        numbers[row["ticker"]] += 1
        own = {"side": "buy", "period_seconds": PERIOD} | row
        own |= {"ts": row["time"], "ts_ns": row["time"], "open_time": row["time"]}
        own |= {"trade_id": str(numbers[row["ticker"]]), "received_at": row["time"] + SECOND, "complete": True}
        found.append(own | {"source": "ticks"})
    schema = INPUTS[input_name].schema
    columns = [pa.array([row.get(part.name) for row in found], part.type) for part in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def streamed(
    texts: Mapping[str, Text],
    records: Sequence[tuple[str, bytes]],
    chance: random.Random,
    *,
    restarts: bool = False,
    sizes: Sequence[int] = (1, 2, 5, 50, 400),
) -> tuple[list[CEPTriggerEvent], list[CEPTriggerEvent]]:
    """The events of all texts while the records arrive in random micro-batches, including those of the end of all
    tickers.
    """
    partition = TriggerPartition(RULES)
    controls = [register(name, text.sql, *text.tickers, **text.parameters) for name, text in texts.items()]
    output = partition.process([], controls=controls, now_ns=_NOW)
    assert [report.state for report in output.reports] == ["active"] * len(texts), output.reports
    live: list[CEPTriggerEvent] = []
    place = 0
    while place < len(records):
        batch = records[place : place + chance.choice(sizes)]
        place += len(batch)
        ticks, ohlc = ([value for name, value in batch if name == wanted] for wanted in ("ticks", "ohlc"))
        output = partition.process(ticks, ohlc, now_ns=_NOW)
        assert not output.reports
        assert not output.late_rows
        live += output.events
        if restarts:
            partition = TriggerPartition.load(partition.save(), RULES)
    return live, partition.process([], now_ns=_NOW + 1000 * SECOND).events


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The table as rows, with times and dates as events carry them."""
    for place, part in enumerate(table.schema):
        if pa.types.is_timestamp(part.type):
            times = table.column(place).cast(pa.timestamp("ns", part.type.tz))
            table = table.set_column(place, part.name, times.cast(pa.int64()))
        elif pa.types.is_date(part.type):
            table = table.set_column(place, part.name, table.column(place).cast(pa.string()))
    return list(table.to_pylist())
