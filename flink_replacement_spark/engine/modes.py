"""Switches a query between micro-batches and tasks that serve; it continues from where it was.

The last plan is carried out under its own number, and numbering continues from there, so nothing is published twice.
While the bus lists the query as one that serves, its steps are authoritative, whatever else a killed driver left.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from bus import Bus
from core.log import get_logger
from flink_replacement_spark.engine.bus_source import TABLE_PLANNED, Positions, remember_plan
from flink_replacement_spark.engine.checkpoints import CheckpointFolder, SharedCheckpoint
from flink_replacement_spark.engine.serving_query import TABLE_SERVING
from flink_replacement_spark.engine.steps import Owner, Step, Steps

__all__ = ["begin_anew", "finish", "merged", "to_batches", "to_serving"]

Offsets = Mapping[str, Any]
log = get_logger()


def begin_anew(session: SparkSession, bus: Bus, name: str, *, checkpoint: str, reader: str) -> None:
    """If an operator put a file `forget` into the checkpoint's folder, drop the checkpoint; the query then starts from
    its hold on the bus.
    """
    folder = CheckpointFolder(session, checkpoint)
    if not folder.has("forget"):
        return
    for query_id in filter(None, bus.get(TABLE_SERVING, [name])):
        Steps(bus, query_id.decode()).forget()
    bus.delete(TABLE_SERVING, [name])
    bus.delete(TABLE_PLANNED, [reader])
    SharedCheckpoint(bus, checkpoint).forget()
    folder.remove()
    log.warning("query_reset", query=name, checkpoint=checkpoint)


def to_serving(
    session: SparkSession,
    bus: Bus,
    name: str,
    *,
    checkpoint: str,
    reader: str,
    split: Callable[[int, Offsets | None, Offsets], Mapping[str, Step]],
) -> None:
    """`split` returns the steps of all owners that correspond to a micro-batch, given its number, start (None for the
    first one) and end.
    """
    folder = CheckpointFolder(session, checkpoint)
    newest, query_id = folder.newest_batch(), folder.query_id()
    if bus.get(TABLE_SERVING, [name]) == [None] and newest is not None and query_id is not None:
        end = folder.offsets(newest)
        if end is not None:
            steps = Steps(bus, query_id)
            for owner, step in split(newest, folder.offsets(newest - 1), end).items():
                steps.put(owner, step)
            bus.put_new(TABLE_SERVING, name, query_id.encode())
            log.info("mode_changed", query=name, mode="continuous", batch=newest)
    folder.remove()
    SharedCheckpoint(bus, checkpoint).forget()
    bus.delete(TABLE_PLANNED, [reader])


def to_batches(
    session: SparkSession,
    bus: Bus,
    name: str,
    *,
    checkpoint: str,
    reader: str,
    complete: Callable[[str, Steps], tuple[int, Offsets] | None],
) -> None:
    """`complete` carries out what was planned, brings all owners to the same position, and returns the number of the
    last step and the offsets; None if nothing was ever planned.
    """
    (found,) = bus.get(TABLE_SERVING, [name])
    if found is None:
        return
    query_id = found.decode()
    steps = Steps(bus, query_id)
    CheckpointFolder(session, checkpoint).remove()
    if (completed := complete(query_id, steps)) is not None:
        number, offsets = completed
        CheckpointFolder(session, checkpoint).write(query_id, max(1, number), offsets)
        remember_plan(bus, reader, offsets)
        log.info("mode_changed", query=name, mode="batch", batch=number)
    bus.delete(TABLE_SERVING, [name])
    steps.forget()


def finish(owner: Owner, steps: Steps, ends: Callable[[Step], Step | None] = lambda _: None) -> Step:
    """Carry out the owner's newest step, and return it. `ends` returns the step that must follow it, if any."""
    step = steps.newest(owner.name)
    if step.number >= 0 and not owner.is_done(step):
        owner.run(step)
    while (planned := ends(step)) is not None:
        step = steps.advance(owner.name, step, planned)
        owner.run(step)
    return step


def merged(steps: Sequence[Step]) -> dict[str, Positions]:
    """The combined positions of owners of different partitions."""
    found: dict[str, Positions] = {}
    for step in steps:
        for topic, positions in step.end.items():
            found.setdefault(topic, {}).update(positions)
    return found
