"""Checkpoints whose records the bus has lost are removed before their queries start.

Redis may lose what it acknowledged: a deleted folder, a power loss with another `bus.fsync` than `always`. The offsets
of a checkpoint are then those of records that are not there, or of others, and a query that went on from it would wait
for ever or pass over what was accepted since. A query without a checkpoint begins at what it holds on the bus.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from bus import Bus
from core.log import get_logger
from flink_replacement_spark.bus_source import TABLE_PLANNED, remembered_plan

log = get_logger()


def forget_lost(session: SparkSession, bus: Bus, checkpoint: str, reader: str, topic: str = "") -> bool:
    """Whether the checkpoint at this URL was removed. `topic`: of a source that reads one alone.

    Raises BusError and Py4JError.
    """
    folder = _Folder(session, checkpoint)
    planned = folder.newest_offsets()
    if planned is None or not _is_lost(bus, reader, {topic: planned} if topic else planned):
        return False
    # The source would go on from it. First, so that a checkpoint which is left behind by a kill is seen as lost again.
    bus.delete(TABLE_PLANNED, [reader])
    folder.remove()
    log.error("checkpoint_removed", checkpoint=checkpoint, reason="the bus has lost records that were read before")
    return True


def _is_lost(bus: Bus, reader: str, planned: Mapping[str, Any]) -> bool:
    # Each plan is on the bus before its micro-batch runs, so that a bus which has none is another one.
    if remembered_plan(bus, reader) is None:
        return True
    of_topics = {topic: offsets for topic, offsets in planned.items() if isinstance(offsets, dict)}
    ends = {topic: [state.end for state in bus.state(topic)] for topic in of_topics}
    return any(
        offset > ends[topic][int(partition)]
        for topic, offsets in of_topics.items()
        for partition, offset in offsets.items()
        if int(partition) < len(ends[topic])
    )


class _Folder:
    """A checkpoint, read through the JVM, which knows every kind of file system that Spark writes to."""

    def __init__(self, session: SparkSession, url: str) -> None:
        context: Any = session.sparkContext
        self._path_of = context._jvm.org.apache.hadoop.fs.Path
        self._path = self._path_of(url)
        self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())

    def newest_offsets(self) -> Mapping[str, Any] | None:
        """The end of the newest micro-batch that was planned; None where there is none."""
        folder = self._path_of(self._path, "offsets")
        if not self._files.exists(folder):
            return None
        names = [status.getPath().getName() for status in self._files.listStatus(folder)]
        newest = max((name for name in names if name.isdecimal()), key=int, default=None)
        if newest is None:
            return None
        stream = self._files.open(self._path_of(folder, newest))
        try:
            text = bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
        try:
            found = json.loads(text.splitlines()[-1])
        except (IndexError, ValueError):
            # Cut off when its writer was killed: Spark itself does not go on from it either.
            return None
        return found if isinstance(found, dict) else None

    def remove(self) -> None:
        self._files.delete(self._path, True)
