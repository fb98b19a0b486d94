"""The cost of many different texts over one registered view compared with that of one: no bus, no Spark, one core.

    ./run bench views [--rows 100000] [--symbols 10] [--count 100]

The view computes eleven indicators; each text compares two others of its columns. `ratio` is the CPU time of `count`
texts over that of one, without registration. `written` are the same texts with the view written out in each.
"""

import argparse
import json

from benchmarks.triggers.thresholds import compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--symbols", type=int, default=10)
    parser.add_argument("--count", type=int, default=100, help="at most 110")
    parser.add_argument("--batch-rows", type=int, default=10_000)
    parser.add_argument("--output", default="json", choices=["json"])
    options = parser.parse_args(namespace=argparse.Namespace(batches=0))
    for setting in ("views", "written"):
        print(json.dumps(compared(setting, options.count, options)), flush=True)


if __name__ == "__main__":
    main()
