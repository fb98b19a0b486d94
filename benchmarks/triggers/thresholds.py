"""The cost of many price alerts compared with that of one: 10,000 on 100 tickers, no bus, no Spark, one core.

    ./run bench thresholds [--rows 200000] [--symbols 100] [--count 10000] [--crossings 10000]
        [--filtered 10000] [--turns 10000] [--drops 10000] [--runs 10000]

Levels are above the price, so that few alerts fire. `ratio` is the CPU time of `count` alerts over that of one, without
registration. `thresholds` are conditions, `turns` conditions with LAG, `crossings` and `drops` patterns with PREV,
`filtered` the pattern of `crossings` over trades of a minimum size, `runs` the pattern of `drops` with levels below the
price: all have begun, and wait with an open match.
"""

import argparse
import json
from typing import Any

from benchmarks.triggers.trigger_engine import run

_SHOWN = ("triggers", "seconds", "rows_per_cpu_second", "result_rows", "shards")


def compared(setting: str, count: int, options: argparse.Namespace) -> dict[str, Any]:
    one, many = (
        run(setting, setting, each, options=options, batch_rows=options.batch_rows, rows=options.rows)
        for each in (1, count)
    )
    return {
        "name": setting,
        "rows": many["rows"],
        "rows_per_second": many["rows_per_second"],
        **{name: many[name] for name in _SHOWN},
        "one_rows_per_cpu_second": one["rows_per_cpu_second"],
        "ratio": round(one["rows_per_cpu_second"] / many["rows_per_cpu_second"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--symbols", type=int, default=100)
    parser.add_argument("--count", type=int, default=10_000, help="alerts `price > level`; 0: none, as below")
    parser.add_argument("--crossings", type=int, default=10_000, help="alerts `price > level AND PREV(price) < price`")
    parser.add_argument("--filtered", type=int, default=10_000, help="the same over trades WHERE size > 1")
    parser.add_argument(
        "--turns", type=int, default=10_000, help="alerts `price > level AND LAG(price) OVER (...) < price`"
    )
    parser.add_argument("--drops", type=int, default=10_000, help="a drop of 1 %% after prices above a level")
    parser.add_argument("--runs", type=int, default=10_000, help="the same above a level that the price stays above")
    parser.add_argument("--batch-rows", type=int, default=20_000)
    parser.add_argument("--output", default="json", choices=["json"])
    options = parser.parse_args(namespace=argparse.Namespace(batches=0))
    counts = {
        "thresholds": options.count,
        "crossings": options.crossings,
        "filtered": options.filtered,
        "turns": options.turns,
        "drops": options.drops,
        "runs": options.runs,
    }
    for setting, count in counts.items():
        if count:
            print(json.dumps(compared(setting, count, options)), flush=True)


if __name__ == "__main__":
    main()
