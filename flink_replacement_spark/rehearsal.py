"""`python -m flink_replacement_spark.rehearsal`: starts the driver once to create its class archive.

This takes half a minute, once per installation, and saves a dozen seconds of each later start. It does nothing if the
archive exists; if the archive cannot be created, the driver works without it.
"""

import contextlib
import os
import socket
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from bus.redis.embedded import EmbeddedRedis
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.spark_connect import connect_session
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.jars import fetch_jars, packages_of
from flink_replacement_spark.server import PART, Driver
from flink_replacement_spark.spark.class_archive import QUIET, archive_of, class_path
from flink_replacement_spark.spark.conf import JAVA_OPTIONS
from flink_replacement_spark.spark.hadoop_defaults import write_defaults

_EXIT_SECONDS = 300
_MERGE = """
MERGE INTO lake.market.ohlc AS kept USING (SELECT * FROM lake.market.ohlc) AS fresh
ON kept.ticker = fresh.ticker AND kept.period_seconds = fresh.period_seconds AND kept.open_time = fresh.open_time
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


def main() -> int:
    configure_logging(PART, "error")
    with tempfile.TemporaryDirectory() as name:
        settings = _settings(Path(name))
        try:
            write_defaults()
        except OSError as error:
            sys.stderr.write(f"Hadoop's defaults cannot be prepared: {error}\n")
        archive = archive_of(class_path(fetch_jars(packages_of(settings))))
        if archive.exists():
            return 0
        fresh = archive.with_suffix(f".{os.getpid()}")
        try:
            archive.parent.mkdir(parents=True, exist_ok=True)
            _rehearse(settings, fresh)
            with fresh.open("rb") as written:
                os.fsync(written.fileno())
            fresh.replace(archive)
        except (CandlewrightError, OSError) as error:
            sys.stderr.write(f"no class archive, Spark will start without: {error}\n")
            return 1
        finally:
            fresh.unlink(missing_ok=True)
    for other in archive.parent.glob("*.jsa"):
        if other != archive:
            other.unlink()
    return 0


def _settings(folder: Path) -> Settings:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Settings.model_validate({"data_dir": folder, "spark": {"connect_bind": f"127.0.0.1:{port}"}})


def _rehearse(settings: Settings, archive: Path) -> None:
    """A start, a merge, and a query through Spark Connect; the JVM writes `archive` when it ends."""
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} {QUIET}"
    with EmbeddedRedis(settings.data_dir / "redis", fsync="no") as redis:
        settings = settings.model_copy(
            update={
                "bus": settings.bus.model_copy(update={"url": redis.url}),
                "spark": settings.spark.model_copy(update={"conf": {"spark.driver.extraJavaOptions": options}}),
            }
        )
        driver = Driver(settings)
        try:
            driver.start()
            driver.session.sql(_MERGE)
            with connect_session(settings.spark.connect_url) as remote:
                remote.sql("SELECT ticker, count(*), max(close) FROM lake.market.ohlc GROUP BY ticker").toArrow()
        finally:
            driver.close()
    gateway = SparkContext._gateway
    assert gateway is not None
    with contextlib.suppress(OSError):
        gateway.shutdown()
        gateway.proc.stdin.close()
    gateway.proc.wait(_EXIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
