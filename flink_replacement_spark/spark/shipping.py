"""Packs the product's code into an archive, so that executors of a cluster run the same code as the driver.

The product's dependencies (PySpark, pyarrow, redis and so on) must be installed for the workers' Python; they change
rarely. Executors unpack the archive into their directory, so that Python reads plain files. It also contains the
command that starts the workers' Python.
"""

import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from core.settings import Settings
from flink_replacement_spark.spark.worker_python import FOLDER, ON_CLUSTER, script_for

#: Top-level packages that executors run or load.
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
#: A fixed time, so that the same code gives the same archive.
_DATE = (2020, 1, 1, 0, 0, 0)


def shipped(settings: Settings) -> dict[str, str]:
    """Write the archive; returns the entries of Spark's configuration that send it to executors and put it on their
    path.
    """
    archive = code_archive(settings.data_dir / "run", settings.spark.conf.get("spark.pyspark.python", sys.executable))
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def code_archive(folder: Path, python: str) -> Path:
    """Write the archive to `folder`, with a script that starts `python`; the same code gives the same name and
    content.
    """
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
