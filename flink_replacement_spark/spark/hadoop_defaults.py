"""A jar with Hadoop's default configuration, without its descriptions.

Hadoop parses `core-default.xml` anew for each `Configuration`, ten times while Spark starts. Most of the file describes
its properties, and the parser becomes hot enough to be compiled at the highest level. The jar goes before Hadoop's own
in the class path, where the first file of that name counts.
"""

import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from flink_replacement_spark.spark.java import spark_home

__all__ = ["defaults_jar", "write_defaults"]

_FILE = "core-default.xml"


def defaults_jar() -> Path | None:
    """Where the jar for this Spark's Hadoop is, whether it exists or not; None if this Spark has no such Hadoop."""
    source = _source()
    return None if source is None else Path(sys.prefix) / "share" / "candlewright" / f"{source.stem}-defaults.jar"


def write_defaults() -> None:
    """Write the jar, unless it exists."""
    source, target = _source(), defaults_jar()
    if source is None or target is None or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    with ZipFile(source) as own, ZipFile(fresh, "w") as jar:
        jar.writestr(ZipInfo(_FILE), without_descriptions(own.read(_FILE)))
    fresh.replace(target)


def without_descriptions(xml: bytes) -> bytes:
    root = ElementTree.fromstring(xml)
    root.text = None
    for prop in root:
        prop.text = prop.tail = None
        for described in prop.findall("description"):
            prop.remove(described)
        for part in prop:
            part.tail = None
    stripped: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return stripped


def _source() -> Path | None:
    return next(iter((spark_home(os.environ) / "jars").glob("hadoop-client-api-*.jar")), None)
