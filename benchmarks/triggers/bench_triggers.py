"""The cost of registered triggers side by side, end to end: ticks on the bus, the query, events on their topic.

    ./run bench triggers [--rows 2000000] [--symbols 1000] [--counts 1 100 1000 10000] [--setting distinct]

Each count has its own bus, on which the triggers run and have seen ticks of all symbols. The query is then paused
between two micro-batches until `rows` ticks are published, the same for each count. Timing runs from its continuation
to the end of the micro-batch that has read the last tick: all events are then on their topic. The fastest of `rounds`
counts. Settings, as in `trigger_engine`: `shared` - one text, each trigger over one ticker; `distinct` - each trigger
has a different text (conditions, patterns, windows), over one ticker. `ratio` is the time with 1,000 triggers over that
with one (else of the largest count over the smallest), `cpu_ratio` the same for the CPU time of all processes. The
floor is the same read with one empty pass, on the bus of the first count.

One trigger takes only the rows of its ticker, as it would on a platform, while 1,000 take those of all. `over_all` is
the cost of the fewest triggers that take every row: one for each kind of text, over all tickers with that kind.
`cpu_ratio_over_all`, for each count, is the CPU time over that: what it costs that the triggers are many.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.measuring.process_tree import ProcessTree
from benchmarks.measuring.spark_master import TWO_CORES, add_master
from benchmarks.measuring.tick_feed import MAX_BYTES
from benchmarks.triggers.trigger_engine import KINDS, Ticks, registrations
from benchmarks.triggers.trigger_stage import (
    HeldQuery,
    events_on_topic,
    register,
    settings_of,
    start_floor,
    start_triggers,
)
from bus import Bus, Record
from bus import topics as bus_topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from core.log import configure_logging
from flink_replacement_spark.driver.topics import prepare_topics
from flink_replacement_spark.spark.session import start_session
from flink_replacement_spark.triggers.source import TriggerSource
from protobuf import records_pb2 as records
from triggers.records.rows import ticker_of

COUNTS = (1, 100, 1_000, 10_000)
#: Rows made together: a TickBatch holds those of one symbol.
WINDOW = 50_000
#: The ratio compares these counts.
_FEW, _MANY = 1, 1_000


def run(
    rows: int = 2_000_000,
    symbols: int = 1_000,
    counts: Sequence[int] = COUNTS,
    *,
    setting: str = "distinct",
    rounds: int = 1,
    master: str = TWO_CORES,
) -> dict[str, Any]:
    """`rows`: ticks of each round; `result_rows`: events of the last round of each count."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        session = start_session(settings_of(folder, "", master))
        stack.callback(session.stop)
        session.dataSource.register(TriggerSource)
        names = Ticks(symbols).names
        costs = [
            {"triggers": count}
            | _cost(
                session, folder / str(count), _asked(setting, count, names), rows, symbols, rounds, has_floor=not place
            )
            for place, count in enumerate(counts)
        ]
        over_all = _cost(session, folder / "all", _over_all(setting, names), rows, symbols, rounds, has_floor=False)
    for cost in costs:
        cost["cpu_ratio_over_all"] = round(cost["cpu_seconds"] / over_all["cpu_seconds"], 2)
    few, many = _pair(costs)
    return {
        "rows": rows,
        "seconds": many["seconds"],
        "rows_per_second": many["rows_per_second"],
        "result_rows": sum(cost["result_rows"] for cost in costs),
        "floor_rows_per_second": costs[0]["floor_rows_per_second"],
        "floor_ratio": round(many["rows_per_second"] / costs[0]["floor_rows_per_second"], 3),
        "setting": setting,
        "symbols": symbols,
        "costs": costs,
        "over_all": over_all,
        "ratio_of": [many["triggers"], few["triggers"]],
        "ratio": round(many["seconds"] / few["seconds"], 2),
        "cpu_ratio": round(many["cpu_seconds"] / few["cpu_seconds"], 2),
    }


def _asked(setting: str, count: int, names: Sequence[str]) -> list[records.TriggerRegistration]:
    return [records.TriggerControl.FromString(control).register for control in registrations(setting, count, names)]


def _over_all(setting: str, names: Sequence[str]) -> list[records.TriggerRegistration]:
    """One trigger for each kind of text, over the tickers that have that kind if each has one trigger."""
    found = _asked(setting, KINDS if setting == "distinct" else 1, names)
    for place, registration in enumerate(found):
        registration.tickers[:] = names[place :: len(found)]
    return found


def _cost(
    session: SparkSession, folder: Path, asked: Sequence[records.TriggerRegistration], rows: int, symbols: int,
    rounds: int, *, has_floor: bool,
) -> dict[str, Any]:  # fmt: skip
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        bus = RedisBus(redis.url, max_bytes=MAX_BYTES)
        stack.callback(bus.close)
        prepare_topics(bus)
        settings = settings_of(folder, redis.url)
        triggers = start_triggers(session, settings, bus, checkpoint=f"file://{folder}/checkpoints/triggers")
        stack.callback(triggers.stop)
        ticks = Ticks(symbols)
        register(bus, asked)
        queries = [triggers]
        if has_floor:
            floor = start_floor(session, settings, bus, checkpoint=f"file://{folder}/checkpoints/floor")
            stack.callback(floor.stop)
            queries.append(floor)
        publish(bus, ticks, min(rows, WINDOW))
        floors, times, found = [], [], 0
        for _ in range(rounds):
            for query in queries:
                query.read_all(bus)
                query.hold()
            publish(bus, ticks, rows)
            if has_floor:
                floors.append(queries[1].timed(bus))
                queries[1].hold()
            before = events_on_topic(bus)
            times.append(_timed(triggers, bus))
            found = events_on_topic(bus) - before
    seconds = min(time for time, _ in times)
    cost = {
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds),
        "cpu_seconds": round(min(cpu for _, cpu in times), 2),
        "result_rows": found,
    }
    return cost | ({"floor_rows_per_second": round(rows / min(floors))} if floors else {})


def publish(bus: Bus, ticks: Ticks, rows: int) -> None:
    """The next `rows` ticks, followed by a clock of the exchange for each symbol, so that no tick waits for another."""
    for done in range(0, rows, WINDOW):
        values = ticks.batch(min(WINDOW, rows - done))
        bus.publish(bus_topics.TICKS, [Record(value, key=(ticker_of(value) or "").encode()) for value in values])
    end = (ticks.now_ms + 1) * 1_000_000
    marks = [
        records.TickMark(ticker=name, clock=records.Clock(exchange_time=end, sequence=count))
        for name, count in zip(ticks.names, ticks.counts.tolist(), strict=True)
        if count
    ]
    bus.publish(bus_topics.TICK_MARKS, [Record(m.SerializeToString(), key=m.ticker.encode()) for m in marks])


def _timed(triggers: HeldQuery, bus: Bus) -> tuple[float, float]:
    """Seconds, and seconds of CPU time."""
    with ProcessTree() as tree:
        seconds = triggers.timed(bus)
    return seconds, sum(tree.cpu_seconds.values())


def _pair(costs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    by_count = {cost["triggers"]: cost for cost in costs}
    if _FEW in by_count and _MANY in by_count:
        return by_count[_FEW], by_count[_MANY]
    return by_count[min(by_count)], by_count[max(by_count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--setting", choices=["shared", "distinct"], default="distinct")
    parser.add_argument("--rounds", type=int, default=1)
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    configure_logging("bench", "warning")
    print(
        json.dumps(
            run(
                asked.rows, asked.symbols, asked.counts, setting=asked.setting, rounds=asked.rounds, master=asked.master
            )
        )
    )


if __name__ == "__main__":
    main()
