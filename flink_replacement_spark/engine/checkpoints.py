"""Removes checkpoints whose records the bus has lost, before their queries start.

Redis may lose acknowledged records: by a deleted folder, a restored copy, or a power loss with a `bus.fsync` other than
`always`. Then the offsets of a checkpoint refer to lost or replaced records, as the histories in it show (bus.lives),
and a query that continued from it would wait forever or skip records accepted since. A query without a checkpoint
begins at its hold on the bus.

A checkpoint on a driver's own disk is copied to the bus, so that a driver elsewhere can take over from it.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from bus import Bus, KeyedTables
from bus.lost import report
from candlewright.wire.errors import RecordsLost
from core.log import get_logger
from flink_replacement_spark.engine.bus_source import TABLE_PLANNED, Positions, lives_of, positions_of, remembered_plan
from flink_replacement_spark.engine.serving_query import TABLE_SERVING

#: Query -> its newest batch, and the files that a driver needs to continue from it, by name.
TABLE_CHECKPOINTS = "checkpoints"

log = get_logger()


def forget_lost(session: SparkSession, bus: Bus, checkpoint: str, *, reader: str, topic: str = "") -> bool:
    """Remove the checkpoint at this URL if its records are lost, and return whether it was; `reader` then holds the
    unread records that the bus has now.

    `topic`: the topic of a source that reads only one. Raises BusError and Py4JError.
    """
    folder = CheckpointFolder(session, checkpoint)
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
                end = kept[name][partition] = lives.rewound((name, partition), offset, state.lives, end=state.end)
                if offset > end:
                    lost += offset - end
                    report(bus, RecordsLost(name, partition, offset, kept=end))
    # Each plan is on the bus before its micro-batch runs, so a bus without a plan is a new one, unless another driver
    # continued the query in tasks that serve, whose steps are authoritative.
    (serves,) = bus.get(TABLE_SERVING, [checkpoint.rpartition("/")[2]])
    if not lost and (serves or remembered_plan(bus, reader) is not None):
        return False
    # The source would continue from the stored plan. It is removed first, so that a checkpoint left behind by a kill is
    # found lost again.
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


class SharedCheckpoint:
    """The copy on the bus of a checkpoint on this machine's disk; a checkpoint in a shared store needs none.

    A query continues from its last two planned batches: the newest one runs again, from the end of the previous one.
    `keep` is called before the newest batch has any effect, so no driver starts from before an effect that it does not
    know of.
    """

    def __init__(self, bus: KeyedTables, checkpoint: str) -> None:
        self._bus = bus
        self._name = checkpoint.rpartition("/")[2]
        self._folder = Path(urlsplit(checkpoint).path) if checkpoint.startswith("file:") else None
        self._before: tuple[int, dict[str, str]] = -1, {}

    def keep(self, batch_id: int) -> None:
        if self._folder is None:
            return
        last, files = self._before
        before = {} if last != batch_id - 1 else files
        names = ["metadata", f"offsets/{batch_id}", f"offsets/{batch_id - 1}", f"commits/{batch_id - 1}"]
        found = {name: before.get(name) or _text(self._folder / name) for name in names}
        kept = {name: text for name, text in found.items() if text is not None}
        self._before = batch_id, {name: kept[name] for name in names[:2] if name in kept}
        self._bus.put(TABLE_CHECKPOINTS, {self._name: json.dumps([batch_id, kept]).encode()})

    def restore(self) -> bool:
        """Replace the local checkpoint if another driver has advanced further; returns whether it did."""
        (content,) = self._bus.get(TABLE_CHECKPOINTS, [self._name])
        if self._folder is None or content is None:
            return False
        batch_id, kept = json.loads(content)
        newest = f"offsets/{batch_id}"
        if all(_text(self._folder / name) == kept.get(name) for name in ("metadata", newest)):
            return False
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, text in kept.items():
            file = self._folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        log.info("checkpoint_restored", checkpoint=str(self._folder), batch=batch_id)
        return True

    def forget(self) -> None:
        """Delete the copy; call when the checkpoint itself is deleted."""
        self._bus.delete(TABLE_CHECKPOINTS, [self._name])


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None


def _by_topic(offsets: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    return {topic: positions for topic, positions in offsets.items() if isinstance(positions, dict)}


class CheckpointFolder:
    """A checkpoint, read through the JVM, which supports every file system that Spark writes to."""

    def __init__(self, session: SparkSession, url: str) -> None:
        context: Any = session.sparkContext
        self._path_of = context._jvm.org.apache.hadoop.fs.Path
        self._path = self._path_of(url)
        self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())

    def newest_offsets(self) -> Mapping[str, Any] | None:
        """The end of the newest planned micro-batch; None if there is none."""
        newest = self.newest_batch()
        return None if newest is None else self.offsets(newest)

    def newest_batch(self) -> int | None:
        folder = self._path_of(self._path, "offsets")
        if not self._files.exists(folder):
            return None
        names = [status.getPath().getName() for status in self._files.listStatus(folder)]
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def offsets(self, batch: int) -> Mapping[str, Any] | None:
        """The end of a micro-batch; None if it is missing."""
        return self._object(f"offsets/{batch}")

    def has(self, name: str) -> bool:
        return bool(self._files.exists(self._path_of(self._path, name)))

    def query_id(self) -> str | None:
        found = self._object("metadata")
        return None if found is None else str(found["id"])

    def write(self, query_id: str, batch: int, offsets: Mapping[str, Any]) -> None:
        """Write a checkpoint that says that the micro-batches up to number `batch` did everything up to `offsets`."""
        self._put("metadata", json.dumps({"id": query_id}))
        for number in (batch - 1, batch):
            planned = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
            self._put(f"offsets/{number}", f"v1\n{json.dumps(planned)}\n{json.dumps(offsets)}")
            self._put(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _object(self, name: str) -> Mapping[str, Any] | None:
        """The JSON object in the last line of a file; None if it is missing or truncated."""
        if not self.has(name):
            return None
        stream = self._files.open(self._path_of(self._path, name))
        try:
            text = bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
        try:
            found = json.loads(text.splitlines()[-1])
        except (IndexError, ValueError):
            # Truncated when its writer was killed; Spark itself does not continue from it either.
            return None
        return found if isinstance(found, dict) else None

    def _put(self, name: str, text: str) -> None:
        stream = self._files.create(self._path_of(self._path, name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def remove(self) -> None:
        self._files.delete(self._path, True)


class PlannedBatches:
    """Which records a micro-batch has, from Spark's log of offsets, which it writes before the batch runs."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder
        self._newest: tuple[int, Positions] = -1, {}

    def bounds(self, batch_id: int) -> tuple[Positions, Positions] | None:
        """By partition, the first offset and the one after the last; None if the log does not say."""
        end = self._folder.offsets(batch_id)
        before, start = self._newest
        if before != batch_id - 1:
            found = self._folder.offsets(batch_id - 1) if batch_id else None
            start = positions_of(found or {})
        if not start or end is None:
            return None
        self._newest = batch_id, positions_of(end)
        return start, self._newest[1]
