"""The latency of a row pattern in Apache Flink, to compare with `trigger` of `bench latency`.

    .venv/bin/uv run --no-project --python 3.11 --with apache-flink==2.3.0 benchmarks/live/flink_latency.py [--rows 60]

It runs in a separate environment, which needs Java 17 and holds nothing of this project. Trades come from a socket one
by one, with a pause after each; each has a higher price than the one before, and so decides a match, which goes to
another socket. Everything runs in Flink's JVM, in one process, and each record is sent on at once (a buffer timeout of
0). One JSON line for each order of rows:

- `arrival`: by processing time. A row is evaluated as it comes.
- `event`: by the trades' times, with a watermark every millisecond that is the newest time.

and, in `way`, for each way of trades and matches:

- `between sockets`: from one socket to the other, without checkpoints. Nothing is stored: a kill loses what was in
  flight.
- `exactly once`: from a socket to Flink's file sink, which shows a match once a checkpoint with it is complete, as each
  of Flink's exactly-once sinks does. With a source that can be replayed, which a socket cannot, a kill then neither
  loses nor repeats a visible match. One line for each of `--checkpoints`, the ms between two; Flink's documentation
  uses 1,000.
- `on the bus`: the platform's own way, with trades and matches on disk (`flink_bus.py`, which runs in the project's
  `.venv`), without checkpoints: a kill of Flink loses and repeats matches. Two further lines: `without Flink`, what the
  way itself takes, and `candlewright`, the platform's own engine in Flink's place, whose events a kill neither loses
  nor repeats.
"""

import argparse
import json
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyflink.common.serialization import Encoder  # type: ignore[import-not-found]
from pyflink.datastream import DataStream, StreamExecutionEnvironment  # type: ignore[import-not-found]
from pyflink.datastream.connectors.file_system import FileSink, RollingPolicy  # type: ignore[import-not-found]
from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found]
from pyflink.table import Schema, StreamTableEnvironment  # type: ignore[import-not-found]

MATCH = """
SELECT CAST(number AS STRING) AS number FROM trades MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY {time}
  MEASURES B.number AS number
  ONE ROW PER MATCH AFTER MATCH SKIP TO LAST B
  PATTERN (A B) DEFINE B AS B.price > A.price)"""
TRADES = """
SELECT SPLIT_INDEX(f0, ',', 0) AS ticker, CAST(SPLIT_INDEX(f0, ',', 1) AS BIGINT) AS number,
  CAST(SPLIT_INDEX(f0, ',', 2) AS DOUBLE) AS price, arrived, happened
FROM lines"""
TIMES = {"arrival": "arrived", "event": "happened"}
HOST = "127.0.0.1"
WARM_ROWS = 200
_WARM_FILES = 5
#: Between two looks for a new file.
_LOOK_SECONDS = 0.0005
PROJECT = Path(__file__).parents[2]


def listening() -> socket.socket:
    found = socket.create_server((HOST, 0))
    found.settimeout(60)
    return found


def submit(order: str, trades: int, matches: int | Path, *, checkpoint_ms: int = 0) -> Any:
    """Start the job, which connects to the port of the trades. `matches`: also a port, or a folder for files that
    checkpoints make visible.
    """
    environment = StreamExecutionEnvironment.get_execution_environment()
    if checkpoint_ms:
        environment.enable_checkpointing(checkpoint_ms)
    environment.set_parallelism(1)
    environment.set_buffer_timeout(0)
    environment.get_config().set_auto_watermark_interval(1)
    tables = StreamTableEnvironment.create(environment)
    tables.get_config().set("table.local-time-zone", "UTC")
    lines = environment._j_stream_execution_environment.socketTextStream(HOST, trades, "\n")
    schema = (
        Schema.new_builder()
        .column("f0", "STRING")
        .column_by_expression("arrived", "PROCTIME()")
        .column_by_expression("happened", "TO_TIMESTAMP_LTZ(CAST(SPLIT_INDEX(f0, ',', 3) AS BIGINT), 3)")
        .watermark("happened", "happened")
        .build()
    )
    tables.create_temporary_view("lines", DataStream(lines), schema)
    tables.create_temporary_view("trades", tables.sql_query(TRADES))
    found = tables.sql_query(MATCH.format(time=TIMES[order]))
    jvm = get_gateway().jvm
    texts = tables._j_tenv.toDataStream(found._j_table, jvm.java.lang.Class.forName("java.lang.String"))
    if isinstance(matches, Path):
        sink = FileSink.for_row_format(str(matches), Encoder.simple_string_encoder())
        DataStream(texts).sink_to(sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
    else:
        texts.writeToSocket(HOST, matches, jvm.org.apache.flink.api.common.serialization.SimpleStringSchema())
    return environment.execute_async(order)


def between_sockets(order: str, rows: int, pause: float) -> dict[str, Any]:
    with listening() as trades, listening() as matches:
        job = submit(order, trades.getsockname()[1], matches.getsockname()[1])
        (source, _), (sink, _) = trades.accept(), matches.accept()
        with source, sink:
            for end in (source, sink):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sink.settimeout(30)
            found = timed(source, lambda: sink.recv(64), rows=rows, pause=lambda: random.expovariate(1 / pause))
            job.cancel().result()
    return {"name": order, "way": "between sockets", **found}


def exactly_once(order: str, rows: int, *, checkpoint_ms: int) -> dict[str, Any]:
    """Each trade comes at any time between two checkpoints."""
    with listening() as trades, tempfile.TemporaryDirectory(prefix="flink-") as folder:
        job = submit(order, trades.getsockname()[1], Path(folder), checkpoint_ms=checkpoint_ms)
        source, _ = trades.accept()
        seen: set[Path] = set()

        def wait() -> None:
            # Files are hidden until their checkpoint is complete.
            while not (shown := set(Path(folder).glob("*/[!.]*")) - seen):
                time.sleep(_LOOK_SECONDS)
            seen.update(shown)

        with source:
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found = timed(
                source, wait, rows=rows, pause=lambda: random.uniform(0, checkpoint_ms / 1_000), warm_rows=_WARM_FILES
            )
            job.cancel().result()
    return {"name": order, "way": "exactly once", "checkpoint_ms": checkpoint_ms, **found}


def timed(
    source: socket.socket,
    wait: Callable[[], object],
    *,
    rows: int,
    pause: Callable[[], float],
    warm_rows: int = WARM_ROWS,
) -> dict[str, Any]:
    """`wait`: until the match of the trade just sent is there; `pause`: seconds from a match to the next trade."""
    milliseconds = []
    for number in range(1, warm_rows + rows + 1):
        sent = time.perf_counter()
        source.sendall(f"PATTERN,{number},{number},{1_704_067_200_000 + 1_000 * number}\n".encode())
        if number > 1:
            wait()
            milliseconds.append((time.perf_counter() - sent) * 1_000)
        if number >= warm_rows:
            time.sleep(pause())
    ordered = sorted(milliseconds[-rows:])
    return {
        "p50_ms": round(ordered[len(ordered) // 2], 1),
        "p99_ms": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 1),
        "max_ms": round(ordered[-1], 1),
        "rows": rows,
    }


def on_the_bus(rows: int, pause: float) -> Iterator[dict[str, Any]]:
    command = [
        str(PROJECT / ".venv/bin/python"),
        "-m",
        "benchmarks.live.flink_bus",
        f"--rows={rows}",
        f"--pause={pause}",
    ]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as bus:
        assert bus.stdout is not None
        lines, orders, job, order = map(json.loads, bus.stdout), iter(TIMES), None, ""
        for line in lines:
            if "trades" in line:
                order = next(orders)
                job = submit(order, line["trades"], line["matches"])
                continue
            if job is not None:
                job.cancel().result()
                job = None
            yield {"name": order, "way": "on the bus"} | line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60, help="timed trades of each order")
    parser.add_argument("--pause", type=float, default=0.2, help="mean seconds between a match and the next trade")
    parser.add_argument("--checkpoints", type=int, nargs="*", default=[1_000, 100], help="ms between two checkpoints")
    options = parser.parse_args()
    for order in TIMES:
        print(json.dumps(between_sockets(order, options.rows, options.pause)), flush=True)
    for checkpoint_ms in options.checkpoints:
        found = exactly_once("arrival", options.rows, checkpoint_ms=checkpoint_ms)
        print(json.dumps(found), flush=True)
    for line in on_the_bus(options.rows, options.pause):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
