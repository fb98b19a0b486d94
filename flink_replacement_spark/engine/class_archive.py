"""Spark's and Iceberg's classes as the JVM keeps them in memory: a start from it takes half of the processor time.

It is a dynamic archive of class data sharing (JEP 350), which holds for one Java and for one class path, and is made by
`python -m flink_replacement_spark.rehearsal`. Without one that fits, Spark starts as it always did.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from flink_replacement_spark.engine.java import java_home

#: A JVM that finds an archive of another class path would say so and go on without.
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_of(jars: Sequence[Path]) -> Path:
    """Where the archive for this Java, this PySpark and `jars`, in that order, is or would be."""
    java, spark_jars = java_home(os.environ), sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    files = [(file, file.stat()) for file in (java / "release", *jars, *spark_jars) if file.exists()]
    parts = [f"{file} {found.st_size} {found.st_mtime_ns}" for file, found in files]
    name = hashlib.sha256("\n".join([str(java), *parts]).encode()).hexdigest()[:16]
    return Path(sys.prefix) / "share" / "candlewright" / f"{name}.jsa"


def java_options(jars: Sequence[Path]) -> str:
    """By which the JVM uses the archive; empty where there is none."""
    archive = archive_of(jars)
    return f"-XX:SharedArchiveFile={archive} {QUIET}" if archive.exists() else ""
