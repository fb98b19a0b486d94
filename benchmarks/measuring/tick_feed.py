"""Publishes a file of ticks as an ingestor would: a batch per ticker, marks, and a clock at the end."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bus import Bus, Record, SequenceStamp
from bus import topics as bus_topics
from bus.redis.redis_bus import RedisBus
from candlewright.wire import streams, tick_columns
from protobuf import records_pb2 as records

__all__ = ["MAX_BYTES", "WINDOW", "publish_apart"]

#: The whole input is on the bus.
MAX_BYTES = 16 << 30
#: Rows of the input that travel together: a TickBatch holds those of one ticker.
WINDOW = 50_000
#: The most batches in one call of the bus.
_PUBLISHED = 500
MINUTE_NS = 60_000_000_000


def publish_apart(url: str, input_file: Path, prefix: str, *, rows: int, window: int = WINDOW) -> None:
    """`_publish` in a separate process, so that the input takes no memory of the driver."""
    publisher = multiprocessing.get_context("spawn").Process(
        target=_publish, args=(url, input_file, prefix, rows, window)
    )
    publisher.start()
    publisher.join()
    if publisher.exitcode != 0:
        raise RuntimeError(f"the input could not be published: exit code {publisher.exitcode}")


def _publish(url: str, input_file: Path, prefix: str, rows: int, window_rows: int) -> None:
    """The first `rows` in input order, followed by marks that close every bar."""
    bus = RedisBus(url, max_bytes=MAX_BYTES)
    counts: dict[str, int] = {}
    newest_ns = 0
    left = rows
    file = pq.ParquetFile(input_file)
    for window in file.iter_batches(window_rows, columns=["ts_ns", "symbol", "price", "size", "side"]):
        ticks = window.slice(0, left)
        left -= ticks.num_rows
        if ticks.num_rows:
            newest_ns = max(newest_ns, pc.max(ticks["ts_ns"]).as_py())
            _publish_window(bus, ticks, prefix, counts)
    end = newest_ns // MINUTE_NS * MINUTE_NS + MINUTE_NS
    clocks = [
        _mark(name, clock=records.Clock(exchange_time=end, sequence=bus.last_sequence(streams.ticks(name))))
        for name in counts
    ]
    bus.publish(bus_topics.TICK_MARKS, clocks)
    bus.close()


def _publish_window(bus: Bus, ticks: pa.RecordBatch, prefix: str, counts: dict[str, int]) -> None:
    """`counts`: trades of each ticker so far, which are their ids."""
    symbols = ticks["symbol"].dictionary_encode()
    names = [f"{prefix}{name}" for name in symbols.dictionary.to_pylist()]
    code = symbols.indices.to_numpy()
    time_ns, price, size = (ticks[name].to_numpy() for name in ("ts_ns", "price", "size"))
    side = np.where(ticks["side"].to_numpy(zero_copy_only=False) == "buy", 1, 2).astype(np.uint8)
    new = [_mark(name, covered=records.Covered(job_id="bench", from_time=0)) for name in names if name not in counts]
    bus.publish(bus_topics.TICK_MARKS, new)
    order = np.argsort(code, kind="stable")
    batch = []
    for part in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
        name = names[int(code[part[0]])]
        first = counts.get(name, 0)
        ids = np.arange(first, first + len(part)).astype("S")
        counts[name] = first + len(part)
        columns = tick_columns.TickColumns(
            ticker=name,
            first_sequence=0,
            timestamp=time_ns[part],
            price=price[part],
            size=size[part],
            side=side[part],
            trade_id=ids,
            received_at=time_ns[part],
        )
        stamp = SequenceStamp(streams.ticks(name), len(part), streams.TICKS.tag)
        batch.append(Record(tick_columns.encode(columns), key=name.encode(), sequence=stamp))
    for first in range(0, len(batch), _PUBLISHED):
        bus.publish(bus_topics.TICKS, batch[first : first + _PUBLISHED])


def _mark(ticker: str, **body: Any) -> Record:
    return Record(records.TickMark(ticker=ticker, **body).SerializeToString(), key=ticker.encode())
