"""The command by which Spark starts Python: this interpreter, without the archives that Spark puts on its path.

Reading PySpark from `pyspark.zip` takes three times as long as from its installation, and a starting platform has a
dozen Python processes. This command also replaces PySpark's modules with `source_runner` and `worker_daemon`; Spark has
a setting for that only for some of them.

Spark starts the same command in the driver and in executors. On a cluster it is therefore a path relative to the
directory in which Spark runs: executors unpack the script there (`shipping`), and the driver has its own.
"""

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

#: The directory in which executors of a cluster unpack the product, and the command in it.
FOLDER = "candlewright-code"
ON_CLUSTER = f"{FOLDER}/python"
_SCRIPT = """#!/bin/sh
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) kept=${{kept:+$kept:}}$entry ;;
  esac
done
export PYTHONPATH="$kept"
case $2 in
  pyspark.sql.streaming.python_streaming_source_runner) set -- -m flink_replacement_spark.spark.source_runner ;;
  pyspark.daemon) shift 2; set -- -m flink_replacement_spark.spark.worker_daemon "$@" ;;
esac
exec {python} "$@"
"""


def script_for(python: str) -> str:
    return _SCRIPT.format(python=shlex.quote(python))


def worker_python(run_dir: Path, master: str) -> str:
    """The command for PYSPARK_PYTHON; writes the script that starts this interpreter to `run_dir`.

    On a cluster it is relative to `run_dir`, where the driver's JVM must run, and to an executor's directory. On one
    machine it is this interpreter itself if PySpark is only in archives, or if scripts cannot run in `run_dir`.
    """
    if not master.startswith("local"):
        _write(run_dir / ON_CLUSTER)
        return f"./{ON_CLUSTER}"
    if not all(map(_is_installed, ("pyspark", "py4j"))):
        return sys.executable
    script = run_dir / "python"
    _write(script)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _write(script: Path) -> None:
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_suffix(f".{os.getpid()}")
    fresh.write_text(script_for(sys.executable))
    fresh.chmod(0o755)
    fresh.replace(script)


def _is_installed(package: str) -> bool:
    found = find_spec(package)
    return found is not None and found.origin is not None and Path(found.origin).is_file()
