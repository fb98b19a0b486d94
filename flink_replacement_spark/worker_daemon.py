"""Spark's Python worker daemon, with PySpark taken from the environment instead of from archives.

Spark puts `pyspark.zip`, `py4j-*.zip` and its core jar on the workers' path, and a worker drops its import caches
before each task; Python then reads the directories of these archives again, for hundreds of milliseconds a task. Where
PySpark is installed as a package the archives are not needed.
"""

import sys
from importlib.machinery import PathFinder

_ARCHIVES = (".zip", ".jar")


def leave_archives() -> None:
    """Take archives off the import path, unless PySpark is nowhere else."""
    folders = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    if PathFinder.find_spec("pyspark", folders) is None:
        return
    sys.path[:] = folders
    for entry in list(sys.path_importer_cache):
        if any(kind in entry for kind in _ARCHIVES):
            del sys.path_importer_cache[entry]


if __name__ == "__main__":
    leave_archives()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
