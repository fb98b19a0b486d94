"""Warms up a standby while it waits: runs a streaming query over its own source, so that the first real one starts
fast.

For its first streaming query, the JVM loads a thousand classes and compiles hot code, and Python starts a process for
the source and one for a task. A standby that has done this takes over in less than half the time.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from core.log import get_logger
from flink_replacement_spark.engine.bus_source import pass_on

log = get_logger()

#: The number of batches that the query runs, and the time (s) that it may take for them.
BATCHES = 3
SECONDS = 120.0


class NumberSource(DataSource):
    """A source of one row per batch, without any service."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "id bigint"

    def streamReader(self, schema: StructType) -> "NumberReader":  # noqa: N802
        return NumberReader()


class NumberReader(DataSourceStreamReader):
    def __init__(self) -> None:
        self._at = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        self._at += 1
        return {"at": self._at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["at"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (int(partition.value),)


def warm_streaming(session: SparkSession, folder: Path, is_over: Callable[[], bool]) -> None:
    """Run the warm-up until the query has run its batches, or `is_over`. A failure is logged and has no other
    effect.
    """
    checkpoint = Path(tempfile.mkdtemp(prefix="warm-", dir=folder))
    done = threading.Event()

    def write(frame: DataFrame, batch: int) -> None:
        frame.toArrow()
        if batch + 1 >= BATCHES:
            done.set()

    try:
        session.dataSource.register(NumberSource)
        query = (
            session.readStream.format(NumberSource.name())
            .load()
            .mapInArrow(pass_on, "id bigint")
            .writeStream.queryName("warm-up")
            .foreachBatch(write)
            .option("checkpointLocation", checkpoint.as_uri())
            .start()
        )
        for _ in range(int(SECONDS / 0.2)):
            if done.wait(0.2) or is_over() or not query.isActive:
                break
        query.stop()
    except (PySparkException, Py4JError) as error:
        log.warning("warm_up_failed", error=str(error)[:300])
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
