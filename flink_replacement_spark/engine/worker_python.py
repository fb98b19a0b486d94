"""The command by which Spark starts Python: this interpreter, without the archives that Spark puts on its path.

Reading PySpark from `pyspark.zip` takes three times as long as from where it is installed, and a platform that starts
has a dozen Python processes. This command also puts `source_runner` and `worker_daemon` in the place of PySpark's
modules; Spark has a setting for that for some of them only.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

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
  pyspark.sql.streaming.python_streaming_source_runner) set -- -m flink_replacement_spark.engine.source_runner ;;
  pyspark.daemon) shift 2; set -- -m flink_replacement_spark.engine.worker_daemon "$@" ;;
esac
exec {python} "$@"
"""


def worker_python(run_dir: Path, master: str, conf: Mapping[str, str] | None = None) -> str:
    """A path for PYSPARK_PYTHON; the script there is written to `run_dir`.

    Where other machines start Python as well, it is `spark.pyspark.python` of `conf`, by default this interpreter's
    path; this interpreter also where PySpark comes from archives alone, or where `run_dir` allows no scripts.
    """
    if not master.startswith("local"):
        return (conf or {}).get("spark.pyspark.python", sys.executable)
    if not all(map(_is_installed, ("pyspark", "py4j"))):
        return sys.executable
    run_dir.mkdir(parents=True, exist_ok=True)
    script = run_dir / "python"
    fresh = script.with_suffix(f".{os.getpid()}")
    fresh.write_text(_SCRIPT.format(python=shlex.quote(sys.executable)))
    fresh.chmod(0o755)
    fresh.replace(script)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _is_installed(package: str) -> bool:
    found = find_spec(package)
    return found is not None and found.origin is not None and Path(found.origin).is_file()
