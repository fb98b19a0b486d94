"""The code of the product as an archive: executors of a cluster run what the driver runs, wherever they are.

What the product needs (PySpark, pyarrow, redis and so on) must be installed for the Python of the workers; that part
changes rarely. Executors unpack the archive beside them, so that Python reads plain files. The command that starts the
workers' Python is in it too.
"""

import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from core.settings import Settings
from flink_replacement_spark.engine.worker_python import FOLDER, ON_CLUSTER, script_for

#: Top-level packages that run, or are loaded, in executors.
PACKAGES = (
    "bars",
    "bus",
    "candlewright",
    "candlewright_cep",
    "core",
    "flink_replacement_spark",
    "gateways",
    "iceberg",
    "protobuf",
    "triggers",
    "venues",
)
#: So that the same code makes the same archive.
_DATE = (2020, 1, 1, 0, 0, 0)


def shipped(settings: Settings) -> dict[str, str]:
    """Write the archive; the entries of Spark's configuration that send it, and put it on the executors' path."""
    archive = code_archive(settings.data_dir / "run", settings.spark.conf.get("spark.pyspark.python", sys.executable))
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def code_archive(folder: Path, python: str) -> Path:
    """Written to `folder`, with a script that starts `python`; the same name and content for the same code."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "code.zip"
    fresh = archive.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as sink:
        for package in PACKAGES:
            for name, file in _files(package):
                sink.writestr(zipfile.ZipInfo(name, _DATE), file.read_bytes(), zipfile.ZIP_DEFLATED)
        script = zipfile.ZipInfo(Path(ON_CLUSTER).name, _DATE)
        script.external_attr = (stat.S_IFREG | 0o755) << 16
        sink.writestr(script, script_for(python))
    fresh.replace(archive)
    return archive


def _files(package: str) -> Iterator[tuple[str, Path]]:
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations)))
    for file in sorted(root.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield str(Path(package) / file.relative_to(root)), file
