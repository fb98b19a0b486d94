"""Memory and state of a pattern with WITHIN over a long run, and the cost of a live partial match: no bus, no Spark.

    python -m benchmarks.triggers.trigger_memory [--rows 50000000] [--batch-rows 50000]

Ticks of 100 random walks arrive as serialised TickBatches at the triggers of one bus partition. After each micro-batch
the state is written and read back, as if another worker took over. The run is divided into tenths: `resident_mib` and
`state_bytes` have an entry for the end of each; `growth` is the resident memory at the end over that after the first.
`state_bytes_per_live`: the state divided by the partial matches live at the end. `partial_match`: bytes of an
additional live partial match, with 1 and with 11 rows after its first, in memory and in the state, measured with
thousands of them. `seconds`: CPU time for evaluating, writing and reading back, without making the ticks.
"""

import argparse
import gc
import json
import resource
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.triggers.trigger_engine import V_SHAPE, Ticks
from candlewright.wire.tick_columns import TickColumns, encode
from candlewright_cep.streaming.operators import MatchStage
from candlewright_cep.streaming.patterns.match_stream import MatchStream
from candlewright_cep.streaming.stream import TriggerStream
from protobuf import records_pb2 as records
from triggers.partition import TriggerPartition

WITHIN = (
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(A.price) AS p, COUNT(*) AS n "
    "PATTERN (A X* B) WITHIN INTERVAL '60' SECOND "
    "DEFINE A AS size > 6, X AS price < A.price * 1.01, B AS price > A.price + 0.4)"
)
SYMBOLS = 100
_STEPS = 10


def run(rows: int = 50_000_000, batch_rows: int = 50_000, partial_matches: int = 5_000) -> dict[str, Any]:
    """`partial_matches`: how many are live at once when the bytes of one are measured."""
    per_match = {str(length): partial_match(partial_matches, length) for length in (1, 11)}
    ticks = Ticks(SYMBOLS)
    partition = _registered(WITHIN)
    events, done, seconds, state = 0, 0, 0.0, dict[str, bytes]()
    resident: list[float] = []
    sizes: list[int] = []
    for step in range(1, _STEPS + 1):
        while done < rows * step // _STEPS:
            count = min(batch_rows, rows * step // _STEPS - done)
            values = ticks.batch(count)
            started = time.process_time()
            events += len(partition.process(values).fired)
            # Any worker may run the query's next micro-batch, so it writes and reads the state.
            state = partition.segments()
            partition = TriggerPartition.of(state)
            seconds += time.process_time() - started
            done += count
        gc.collect()
        resident.append(_resident_mib())
        sizes.append(sum(map(len, state.values())))
    live = _live(_matches(partition))
    return {
        "rows": done,
        "seconds": round(seconds, 3),
        "rows_per_second": round(done / seconds),
        "result_rows": events,
        "resident_mib": resident,
        "growth": round(resident[-1] / resident[0], 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "state_bytes": sizes,
        "live": live,
        "state_bytes_per_live": round(sizes[-1] / max(1, live)),
        "partial_match": per_match,
    }


def partial_match(count: int, length: int) -> dict[str, int]:
    """Bytes of a live partial match with `length` rows after its first, with one in each of `count` tickers."""
    tracemalloc.start()
    partition = _registered(V_SHAPE % "")
    place = np.arange(length + 1)
    time_ns = (1_704_067_200 + place) * 1_000_000_000
    price, size, side = (100.0 - place).astype(np.float64), np.ones(length + 1), np.ones(length + 1, np.uint8)
    ids = np.char.mod("%d", place + 10**9).astype("S10")
    names = [f"S{number:05d}/USDT.SIM" for number in range(count)]
    partition.process(
        [
            encode(
                TickColumns(
                    ticker=name,
                    first_sequence=1,
                    timestamp=time_ns,
                    price=price,
                    size=size,
                    side=side,
                    trade_id=ids,
                    received_at=time_ns,
                )
            )
            for name in names
        ]
    )
    gc.collect()
    matches = _matches(partition)
    live = max(1, _live(matches))
    saved = sum(len(stream.snapshot()) for stream in _streams(partition))
    held = _size_of(matches)
    tracemalloc.stop()
    return {"live": live, "memory_bytes": round(held / live), "state_bytes": round(saved / live)}


def _registered(sql: str) -> TriggerPartition:
    partition = TriggerPartition()
    registration = records.TriggerRegistration(trigger_id="w", version=1, sql=sql)
    partition.process([], controls=[records.TriggerControl(register=registration).SerializeToString()])
    return partition


def _streams(partition: TriggerPartition) -> list[TriggerStream]:
    return [stream for shard in partition._registry.shards.values() for stream in shard.streams.values()]


def _matches(partition: TriggerPartition) -> list[MatchStream]:
    stages = [stage for stream in _streams(partition) for stage in stream.stages]
    return [stage.stream for stage in stages if isinstance(stage, MatchStage)]


def _live(streams: Sequence[MatchStream]) -> int:
    return sum(part.search.attempt is not None for stream in streams for part in stream.partitions.values())


def _size_of(streams: Sequence[MatchStream]) -> int:
    """Bytes freed with all that these streams hold: their partitions, and the rows, which are in Arrow's memory."""
    before: int = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
    for stream in streams:
        vars(stream).clear()
    gc.collect()
    left: int = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
    return before - left


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--batch-rows", type=int, default=50_000)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    print(json.dumps(run(asked.rows, asked.batch_rows)))


if __name__ == "__main__":
    main()
