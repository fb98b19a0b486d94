"""Fetches the jars that Spark needs besides its own: resolved once with PySpark's Ivy, then read from disk.

`python -m flink_replacement_spark.jars` fetches them ahead of time. A list that was fetched before is only checked on
disk.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Timer
from xml.sax.saxutils import quoteattr

from candlewright.wire.errors import ConfigurationError
from core.catalog_conf import is_object_store
from core.settings import Settings, load_settings
from flink_replacement_spark.spark.java import java_home, spark_home

ICEBERG_VERSION = "1.12.0"
ICEBERG_RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}"
ICEBERG_AWS = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}"
SQLITE = "org.xerial:sqlite-jdbc:3.54.1.0"

CACHE = Path.home() / ".cache" / "candlewright" / "jars"
#: Packages that Spark's own class path already has.
_PROVIDED = ("org.apache.spark", "org.scala-lang", "org.slf4j", "org.apache.logging.log4j")
_TIMEOUT_SECONDS = 1_800


def packages_of(settings: Settings) -> tuple[str, ...]:
    """Maven coordinates `group:artifact:version[:classifier]` that these settings need."""
    needed = [ICEBERG_RUNTIME, SQLITE]
    if is_object_store(settings):
        needed.append(ICEBERG_AWS)
    return (*needed, *settings.spark.packages)


def known_jars(packages: Sequence[str]) -> list[Path] | None:
    """The local jars of `packages` and their dependencies; None if they were not fetched yet."""
    return _read_manifest(_manifest(packages, CACHE))


def fetch_jars(packages: Sequence[str], cache_dir: Path | None = None) -> list[Path]:
    """The local jars of `packages` and their dependencies; downloads missing ones, with progress on stderr.

    Raises ConfigurationError if a package cannot be fetched.
    """
    cache = cache_dir or CACHE
    manifest = _manifest(packages, cache)
    if (known := _read_manifest(manifest)) is not None:
        return known
    cache.mkdir(parents=True, exist_ok=True)
    target = manifest.with_suffix("")
    _resolve(packages, cache, target)
    jars = sorted(target.glob("*.jar"))
    fresh = manifest.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({str(jar): jar.stat().st_size for jar in jars}))
    fresh.replace(manifest)
    return jars


def _manifest(packages: Sequence[str], cache: Path) -> Path:
    name = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:16]
    return cache / f"{name}.json"


def _read_manifest(manifest: Path) -> list[Path] | None:
    """The jars of a finished download; None if one is missing or truncated."""
    try:
        sizes: dict[str, int] = json.loads(manifest.read_text())
        if sizes and all(Path(jar).stat().st_size == size for jar, size in sizes.items()):
            return [Path(jar) for jar in sizes]
    except (OSError, ValueError):
        return None
    return None


def _resolve(packages: Sequence[str], cache: Path, target: Path) -> None:
    ivy = next(spark_home(os.environ).glob("jars/ivy-*.jar"))
    wish = cache / f"{target.name}.{os.getpid()}.xml"
    wish.write_text(_ivy_file(packages))
    command: list[str | Path] = [java_home(os.environ) / "bin" / "java", "-jar", ivy, "-ivy", wish, "-confs", "default"]
    command += ["-cache", cache / "ivy", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{target}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as resolution:
            limit = Timer(_TIMEOUT_SECONDS, resolution.kill)
            limit.start()
            said = list(_forward_progress(resolution))
            limit.cancel()
    finally:
        wish.unlink()
    if resolution.returncode != 0:
        reason = "; ".join(line.strip(" :") for line in said if "not found" in line.lower() or "FAILED" in line)
        raise ConfigurationError(f"the jars {', '.join(packages)} could not be fetched: {reason or said[-1:]}")


def _forward_progress(resolution: "subprocess.Popen[str]") -> Iterator[str]:
    """Every line of Ivy's output; those about downloads also go to stderr."""
    for line in resolution.stdout or ():
        if line.startswith("downloading ") or "[SUCCESSFUL" in line:
            sys.stderr.write(f"{line.strip()}\n")
            sys.stderr.flush()
        yield line.strip()


def _ivy_file(packages: Sequence[str]) -> str:
    wanted = []
    for (group, artifact, version), classifiers in _modules(packages).items():
        name = quoteattr(artifact)
        files = [f"<artifact name={name} type='jar' m:classifier={quoteattr(each)}/>" for each in classifiers if each]
        if files and "" in classifiers:
            files.append(f"<artifact name={name} type='jar'/>")
        wanted.append(
            f'<dependency org={quoteattr(group)} name={name} rev={quoteattr(version)} conf="default->default">'
            f"{''.join(files)}</dependency>"
        )
    wanted += [f"<exclude org={quoteattr(group)}/>" for group in _PROVIDED]
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="candlewright" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(wanted)}</dependencies></ivy-module>"
    )


def _modules(packages: Sequence[str]) -> dict[tuple[str, str, str], list[str]]:
    """The classifiers of each group, artifact and version, in the order of the packages; "" is the jar without a
    classifier.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for package in packages:
        parts = package.split(":")
        if len(parts) not in (3, 4) or not all(parts):
            raise ConfigurationError(f"spark.packages: {package!r} is not group:artifact:version[:classifier]")
        group, artifact, version = parts[:3]
        found.setdefault((group, artifact, version), []).append("".join(parts[3:]))
    return found


def main() -> int:
    try:
        jars = fetch_jars(packages_of(load_settings()))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for jar in jars:
        sys.stdout.write(f"{jar}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
