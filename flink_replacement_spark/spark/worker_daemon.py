"""Spark's Python worker daemon, which loads PySpark from the environment instead of from archives, and ahead of time.

Spark puts `pyspark.zip`, `py4j-*.zip` and its core jar on the workers' path, and a worker drops its import caches
before each task; Python then reads the directories of these archives again, which takes hundreds of milliseconds per
task. If PySpark is installed as a package, the archives are not needed.

Spark ends workers that were idle for a minute, which no setting changes, but not the daemon. A new worker need not load
what the daemon has loaded, so the first batch after a quiet time is as fast as any.
"""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

_ARCHIVES = (".zip", ".jar")
_SOURCES = tuple(
    f"flink_replacement_spark.{source}" for source in ("engine.bus_source", "live.source", "triggers.source")
)
#: Modules to load ahead, by the module that the daemon's workers run.
_NEEDED = {
    "pyspark.worker": ("flink_replacement_spark.live.served", "flink_replacement_spark.triggers.served", *_SOURCES),
    "pyspark.sql.worker.create_data_source": _SOURCES,
    "pyspark.sql.worker.plan_data_source_read": _SOURCES,
}


#: How long (s) a daemon of planning workers stays without any. Spark starts another one when it needs it.
IDLE_SECONDS = 60.0


def end_when_idle(daemon_arguments: Sequence[str], seconds: float = IDLE_SECONDS) -> None:
    """Let a daemon end that only plans, and has no workers: a source is planned when its query starts, and rarely
    later, but the daemon keeps 45 MB.
    """
    if daemon_arguments[:1] in ([], ["pyspark.worker"]):
        return

    def look(*_: object) -> None:
        if not Path(f"/proc/self/task/{os.getpid()}/children").read_text():
            sys.exit(0)

    signal.signal(signal.SIGALRM, look)
    # Workers do not inherit the timer.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)


def leave_archives() -> None:
    """Remove archives from the import path, unless PySpark is only there."""
    folders = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    if PathFinder.find_spec("pyspark", folders) is None:
        return
    sys.path[:] = folders
    for entry in list(sys.path_importer_cache):
        if any(kind in entry for kind in _ARCHIVES):
            del sys.path_importer_cache[entry]


def load_ahead(daemon_arguments: Sequence[str]) -> None:
    """Import what the workers of a daemon with these arguments need; nothing if Spark uses another worker module.

    Workers collect garbage after each task, but not what was loaded here.
    """
    from core.background import loading

    with loading():
        for worker in daemon_arguments[:1] or ("pyspark.worker",):
            for module in _NEEDED.get(worker, ()):
                import_module(module)


if __name__ == "__main__":
    leave_archives()
    from pyspark.daemon import manager

    load_ahead(sys.argv[1:])
    end_when_idle(sys.argv[1:])
    manager()  # type: ignore[no-untyped-call]
