"""An archive of Spark's and Iceberg's classes in the JVM's memory format, which halves the processor time of a start.

It is a dynamic CDS archive (JEP 350), which is valid for one Java and one class path, and is created by `python -m
flink_replacement_spark.rehearsal`. Without a matching archive, Spark starts in the usual way.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flink_replacement_spark.spark.hadoop_defaults import defaults_jar
from flink_replacement_spark.spark.java import java_home, spark_home

#: A JVM that finds an archive for another class path would warn and continue without it.
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
#: At the address for which it was written, if that is free: most pages then stay clean, and JVMs share them. By default
#: it is another address each time, for which the JVM patches the whole archive.
AS_WRITTEN = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"


def class_path(jars: Sequence[Path]) -> list[Path]:
    """What comes before Spark's own jars: `jars`, and Hadoop's defaults if `rehearsal` has prepared them."""
    defaults = defaults_jar()
    return [*jars] if defaults is None or not defaults.exists() else [defaults, *jars]


def archive_of(jars: Sequence[Path]) -> Path:
    """The path of the archive for this Java, this Spark and `jars` (in this order), whether it exists or not."""
    java, spark_jars = java_home(os.environ), sorted((spark_home(os.environ) / "jars").glob("*.jar"))
    files = [(file, file.stat()) for file in (java / "release", *jars, *spark_jars) if file.exists()]
    parts = [f"{file} {found.st_size} {found.st_mtime_ns}" for file, found in files]
    name = hashlib.sha256("\n".join([str(java), *parts]).encode()).hexdigest()[:16]
    return Path(sys.prefix) / "share" / "candlewright" / f"{name}.jsa"


def java_options(jars: Sequence[Path]) -> str:
    """The JVM options that use the archive; empty if there is none."""
    archive = archive_of(jars)
    return f"{AS_WRITTEN} -XX:SharedArchiveFile={archive} {QUIET}" if archive.exists() else ""
