"""The option `--master` of the benchmarks that run Spark."""

import argparse

from candlewright_platform.supervisor.ports import free_port

__all__ = ["ALL_CORES", "TWO_CORES", "add_master", "spark_of"]

TWO_CORES = "local[2]"
#: The platform's default.
ALL_CORES = "local[*]"


def add_master(parser: argparse.ArgumentParser, default: str = TWO_CORES) -> None:
    parser.add_argument(
        "--master",
        default=default,
        help=f"spark://host:port, or local[N] (default: {default}); its processes on this machine are counted",
    )


def spark_of(master: str) -> dict[str, str]:
    """The group `spark` of the settings."""
    return {"connect_bind": f"127.0.0.1:{free_port()}", "master": master}
