"""Tables: the columns of each, from the definitions that create them."""

from pathlib import Path

from documentation.markdown import code, page, table
from documentation.source import comments_of_assignments
from iceberg import tables

#: What a column means, by its name in any table, or by table and name where that differs.
MEANINGS = {
    "ticker": "`BASE/QUOTE.VENUE`",
    "period_seconds": "length of the candle; `604800` is a week from Monday",
    "open_time": "when the candle begins, UTC",
    "open": "first price",
    "high": "highest price",
    "low": "lowest price",
    "close": "last price",
    "volume": "traded amount in the base currency",
    "quote_volume": "traded amount in the quote currency, if the venue reports it",
    "trade_count": "number of trades, if the venue reports it",
    "source": "`exchange`: the venue's own candle; `ticks`: made from trades; `derived`: from aggregates; `archive`",
    "complete": "all trades of its time are accounted for",
    "updated_at": "when the row was last written",
    "revision": "0 for the first publication, then one more for each correction",
    "known_at": "when the revision was published; for a candle of history, when it was committed",
    "trade_id": "the venue's own id",
    "ts": "the venue's time, in microseconds",
    "ts_ns": "the venue's time, in nanoseconds since the epoch",
    "price": "price",
    "size": "amount in the base currency",
    "side": "of the taker: `buy`, `sell` or `unknown`",
    "received_at": "when the ingestor received the trade",
    "trigger_id": "the trigger",
    "event_id": "the same whenever the event is delivered again",
    "fired_at": "event time of the last row",
    "columns": "the event's row as a JSON object; an array if it has several",
    "context": "texts by name: see [events](../triggers.md#events)",
    "from_trade_id": "last trade before the gap",
    "to_trade_id": "first trade after the gap",
    "from_ts": "time of the last trade before the gap",
    "to_ts": "time of the first trade after the gap",
    "missing": "number of trades that are missing, if the ids show it",
    "repaired": "whether the trades were fetched later",
    "reason": "what caused the gap",
    "detected_at": "when the gap was found",
    "request_id": "the request",
    "start": "first requested open time",
    "end": "end of the requested open times, exclusive",
    "expected": "candles that the range must hold",
    "got": "candles that it holds",
    "holes": "half-open ranges for which the venue has no candle",
    "status": "how it ended",
    "destination": "the name of the alert's destination",
    "attempts": "number of attempts, including the last one",
    "delivered_at": "when the destination accepted it",
    "error": "why the last attempt failed",
    "closed_until": "if the range extends past the closed candles: where the omitted ones begin",
}

INTRODUCTION = """
The tables are Iceberg v2, in Spark's catalog `lake` and namespace `market`: `lake.market.ohlc`. Rows are unordered;
sort them. The platform is the only writer.
[Read the tables from other programs](../operations.md#reading-the-tables-from-other-programs).
"""


def definitions() -> list[tables.TableDefinition]:
    return [value for value in vars(tables).values() if isinstance(value, tables.TableDefinition)]


def markdown() -> str:
    blocks = [INTRODUCTION]
    texts = comments_of_assignments(Path(tables.__file__))
    names = {id(value): name for name, value in vars(tables).items()}
    for definition in definitions():
        rows = [
            (
                code(column.name),
                code(column.field_type),
                "" if column.required else "yes",
                MEANINGS.get(column.name, column.doc or ""),
            )
            for column in definition.schema.fields
        ]
        head = ("column", "type", "may be NULL", "meaning")
        name = definition.name.rpartition(".")[2]
        blocks += [f"## `market.{name}`", texts.get(names[id(definition)], ""), table(head, rows)]
    return page("Tables", *blocks)
