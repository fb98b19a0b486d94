"""Checkpoints whose records the bus has lost are removed before their queries start.

Redis may lose what it acknowledged: a deleted folder, a restored copy, a power loss with another `bus.fsync` than
`always`. The offsets of a checkpoint are then those of records that are not there, or of others, which the histories in
it tell (bus.lives), and a query that went on from it would wait for ever or pass over what was accepted since. A query
without a checkpoint begins at what it holds on the bus.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from bus import Bus
from bus.lost import report
from candlewright.wire.errors import RecordsLost
from core.log import get_logger
from flink_replacement_spark.engine.bus_source import TABLE_PLANNED, lives_of, positions_of, remembered_plan

log = get_logger()


def forget_lost(session: SparkSession, bus: Bus, checkpoint: str, reader: str, topic: str = "") -> bool:
    """Whether the checkpoint at this URL was removed; `reader` then holds what it has not read of what the bus has now.

    `topic`: of a source that reads one alone. Raises BusError and Py4JError.
    """
    folder = _Folder(session, checkpoint)
    offsets = folder.newest_offsets()
    if offsets is None:
        return False
    of_topics = {topic: positions_of(offsets)} if topic else _by_topic(positions_of(offsets))
    lives = lives_of(offsets)
    kept: dict[str, dict[int, int]] = {}
    lost = 0
    for name, positions in of_topics.items():
        kept[name] = {}
        for partition, state in enumerate(bus.state(name)):
            if (offset := positions.get(str(partition))) is not None:
                end = kept[name][partition] = lives.rewound((name, partition), offset, state.lives, state.end)
                if offset > end:
                    lost += offset - end
                    report(bus, RecordsLost(name, partition, offset, end))
    # Each plan is on the bus before its micro-batch runs, so that a bus which has none is another one.
    if not lost and remembered_plan(bus, reader) is not None:
        return False
    # The source would go on from it. First, so that a checkpoint which is left behind by a kill is seen as lost again.
    bus.delete(TABLE_PLANNED, [reader])
    for name, ends in kept.items():
        held = bus.holds(name, reader)
        bus.hold(name, reader, {p: min(held[p], end) for p, end in ends.items() if p in held})
    folder.remove()
    log.error(
        "checkpoint_removed",
        checkpoint=checkpoint,
        reason="the bus has lost records that were read before",
        lost_records=lost,
    )
    return True


def _by_topic(offsets: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    return {topic: positions for topic, positions in offsets.items() if isinstance(positions, dict)}


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
