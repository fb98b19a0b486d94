"""Checkpoints of records that the bus has lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from bus import topics as bus_topics
from bus.api import Record
from flink_replacement_spark.engine.bus_source import LIVES, remember_plan, remembered_plan
from flink_replacement_spark.engine.checkpoints import CheckpointFolder, PlannedBatches, forget_lost
from flink_replacement_spark.engine.serving_query import TABLE_SERVING
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(300)
TOPIC = "kept-or-lost"


def checkpoint_with(folder: Path, *batches: str) -> Path:
    (folder / "offsets").mkdir(parents=True)
    for number, text in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{text}')
    return folder


@pytest.mark.parametrize(
    ("last", "is_planned", "is_lost"),
    [
        (json.dumps({"0": 3, "1": 0}), True, False),
        (json.dumps({"0": 4, "1": 0}), True, True),
        (json.dumps({"0": 0, "1": 0}), False, True),
        (json.dumps({TOPIC: {"0": 3, "1": 0}, "now_ns": 9}), True, False),
        (json.dumps({TOPIC: {"0": 3, "1": 1}, "now_ns": 9}), True, True),
        ("{", True, False),
    ],
)
def test_a_checkpoint_is_kept_only_if_the_bus_has_the_records_it_read(
    platform: Platform, tmp_path: Path, last: str, is_planned: bool, is_lost: bool
) -> None:
    if not platform.bus.partitions(TOPIC):
        platform.bus.create_topic(TOPIC, 2)
        platform.bus.publish(TOPIC, [Record(b"", partition=0)] * 3)
    reader = f"reader-{tmp_path.name}"
    if is_planned:
        remember_plan(platform.bus, reader, {})
    # Batch 10 follows batch 9: they are ordered by number, not by name.
    folder = checkpoint_with(tmp_path / "query", *[json.dumps({"0": 9})] * 10, last)
    topic = "" if TOPIC in last else TOPIC
    assert forget_lost(platform.driver.session, platform.bus, f"file://{folder}", reader=reader, topic=topic) is is_lost
    assert folder.exists() is not is_lost
    if is_lost:
        assert remembered_plan(platform.bus, reader) is None, "the source would go on from it"


def test_the_log_of_offsets_says_which_records_a_batch_has(platform: Platform, tmp_path: Path) -> None:
    ends: list[dict[str, Any]] = [{"0": 3, "1": 0}, {"0": 5, "1": 2, LIVES: {}}, {"0": 5, "1": 4}]
    folder = checkpoint_with(tmp_path / "query", *map(json.dumps, ends), "{")
    batches = PlannedBatches(CheckpointFolder(platform.driver.session, f"file://{folder}"))
    assert batches.bounds(0) is None, "its start is not in the log"
    assert batches.bounds(1) == ({"0": 3, "1": 0}, {"0": 5, "1": 2})
    assert batches.bounds(2) == ({"0": 5, "1": 2}, {"0": 5, "1": 4})
    assert batches.bounds(1) == ({"0": 3, "1": 0}, {"0": 5, "1": 2}), "a repeated batch"
    assert batches.bounds(3) is None, "its entry is truncated"
    assert batches.bounds(9) is None


@pytest.mark.parametrize("shape", ["one topic", "topics"])
@pytest.mark.parametrize(
    ("history", "is_lost"), [("", False), ("gone@1 {}", True), ("gone@3 {}", False), ("{}", False)]
)
def test_a_checkpoint_whose_records_were_replaced_is_dropped_and_its_holds_go_back(
    platform: Platform, tmp_path: Path, shape: str, history: str, is_lost: bool
) -> None:
    bus, topic, reader = platform.bus, "replaced", f"reader-{tmp_path.name}"
    if not bus.partitions(topic):
        bus.create_topic(topic, 1)
        bus.publish(topic, [Record(b"", partition=0)] * 5)
    own = bus.state(topic)[0].lives
    remember_plan(bus, reader, {})
    bus.hold(topic, reader, {0: 3})
    lives = {LIVES: {f"{topic}:0": history.format(own)}} if history else {}
    offsets = {"0": 3} if shape == "one topic" else {topic: {"0": 3}, "now_ns": 9}
    folder = checkpoint_with(tmp_path / "query", json.dumps(offsets | lives))
    named = topic if shape == "one topic" else ""
    assert forget_lost(platform.driver.session, bus, f"file://{folder}", reader=reader, topic=named) is is_lost
    assert folder.exists() is not is_lost
    assert bus.holds(topic, reader) == {0: 1 if is_lost else 3}


def test_an_old_checkpoint_of_a_query_that_another_driver_continued_in_tasks_is_no_loss(
    platform: Platform, tmp_path: Path
) -> None:
    """It used to be reported as lost records, and the query's hold went back to it."""
    bus, topic, reader = platform.bus, "continued", f"reader-{tmp_path.name}"
    bus.create_topic(topic, 1)
    bus.publish(topic, [Record(b"", partition=0)] * 5)
    bus.hold(topic, reader, {0: 4})
    bus.put_new(TABLE_SERVING, tmp_path.name, b"id")
    folder = checkpoint_with(tmp_path, json.dumps({topic: {"0": 3}, "now_ns": 9}))
    assert not forget_lost(platform.driver.session, bus, f"file://{folder}", reader=reader)
    assert bus.holds(topic, reader) == {0: 4}


def test_a_query_without_a_checkpoint_has_none_to_lose(platform: Platform, tmp_path: Path) -> None:
    session, bus = platform.driver.session, platform.bus
    for folder in (tmp_path / "absent", checkpoint_with(tmp_path / "empty")):
        assert not forget_lost(session, bus, f"file://{folder}", reader="nobody", topic=bus_topics.HISTORY_OUTCOMES)
