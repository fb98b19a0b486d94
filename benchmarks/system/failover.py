"""Take-over by a standby: seconds from the fault until the standby of a role is ready, with real processes.

Two processes of each part run over one Redis. The holder is killed (kill -9), or stopped (SIGSTOP) and resumed after
the other one serves; it must end then. The driver has a further line without a standby: the killed one is restarted
immediately, as by `up`. One line for each load, role and fault; `floor_seconds` is the lease of a stopped holder, which
has to expire, and 0 for a killed one, whose role is free.
`detection_seconds` is the longest time until the role was taken, `after_detection_seconds` the longest from then until
its holder was ready, and `cpu_seconds` the CPU time of that. With live data, a client that checks every number reports
the longest silence of trades, one-second bars and events; `after_detection_seconds` then ends when all of them have
resumed.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measuring.spark_master import TWO_CORES, add_master
from benchmarks.system import failover_load
from benchmarks.system.failover_pair import PARTS, Pair, on_cluster
from bus.redis.embedded import EmbeddedRedis
from core.log import configure_logging


def run(roles: list[str], rounds: int, lease_seconds: float, *, master: str = TWO_CORES) -> Iterator[dict[str, Any]]:
    for role in roles:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
            settings = {"ROLES__LEASE_SECONDS": str(lease_seconds), **on_cluster(master)}
            pair = Pair(role, stack, folder, bus_url=redis.url, **settings)
            for row in pair.rows(rounds, lease_seconds):
                yield row | {"load": "none"}


LOADS = {"none": run, "live": failover_load.run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roles", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--rows", type=int, default=3, help="take-overs of each role and fault")
    parser.add_argument("--lease-seconds", type=float, default=5.0)
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    configure_logging("bench", "warning")
    for load in asked.loads:
        for line in LOADS[load](asked.roles, asked.rows, asked.lease_seconds, master=asked.master):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
