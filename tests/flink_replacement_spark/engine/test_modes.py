"""From micro-batches to serving tasks and back, at any moment."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from bus import topics as bus_topics
from bus.api import partition_of
from bus.lives import Lives
from core.settings import Settings
from flink_replacement_spark.cep import evaluate
from flink_replacement_spark.engine.checkpoints import CheckpointFolder
from flink_replacement_spark.engine.serving import serve
from flink_replacement_spark.engine.serving_query import TABLE_SERVING
from flink_replacement_spark.engine.steps import Done, Steps, look
from flink_replacement_spark.live.query import settle_live_mode
from flink_replacement_spark.triggers import rows as trigger_rows
from flink_replacement_spark.triggers import served as trigger_served
from flink_replacement_spark.triggers.query import settle_trigger_mode
from flink_replacement_spark.triggers.served import TriggerOwner
from flink_replacement_spark.triggers.source import TriggerStreamReader
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.running import Platform
from tests.flink_replacement_spark.trigger_batches import ONE, OTHER, PARTITIONS, Query, bus_for_triggers, register
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.fresh_bus import FreshBus
from tests.triggers.trigger_records import V_SHAPE, rows
from triggers.texts.check import TriggerRules

pytestmark = pytest.mark.timeout(300)


def settings_of(platform: Platform, url: str, mode: str) -> Settings:
    own = platform.settings
    return own.model_copy(
        update={
            "bus": own.bus.model_copy(update={"url": url}),
            "spark": own.spark.model_copy(update={"mode": mode}),
        }
    )


def write_checkpoint(folder: Path, query_id: str, offsets: dict[int, Any]) -> None:
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query_id}))
    for number, end in offsets.items():
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(end)}')


def test_triggers_continue_in_the_other_mode_and_back(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = FreshBus().url, tmp_path / "triggers"
    checkpoint, prices = f"file://{folder}", walk(6, 300)
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.1)
    with bus_for_triggers(url) as bus:

        def settle(mode: str) -> None:
            settle_trigger_mode(
                platform.driver.session, settings_of(platform, url, mode), checkpoint, partitions=PARTITIONS
            )
            trigger_rows._CACHE.clear()

        def trades(first: int, end: int) -> None:
            for at in range(first, end, 20):
                feed.trades(bus, ONE, 1 + at, prices=prices[at : at + 20])
                feed.trades(bus, OTHER, 1 + at, prices=prices[at : at + 20])

        batches = Query(url)
        register(bus, "v", V_SHAPE, ONE)
        spread = f"SELECT a.price - b.price AS d FROM ticks a JOIN ticks b ON a.ts = b.ts AND a.ticker = '{ONE}'"
        register(bus, "spread", f"{spread} AND b.ticker = '{OTHER}'", ONE, OTHER)
        batches.run()
        trades(0, 60)
        batches.run()
        trades(60, 100)
        # This step was planned, and then its driver was killed.
        batches.plan()
        write_checkpoint(folder, "q", {batches.number - 1: batches.start, batches.number: batches.end})
        batches.reader.stop()

        settle("continuous")
        assert not folder.exists()
        settle("continuous")
        offset = register(bus, "later", "price > 0", OTHER)
        stopping, steps = threading.Event(), Steps(bus, "q")
        rules, settings = TriggerRules(partitions=PARTITIONS), settings_of(platform, url, "continuous")
        owners = [
            TriggerOwner(url=url, query_id="q", owner=number, rules=rules, settings=settings)
            for number in range(PARTITIONS + 1)
        ]
        tasks = [
            threading.Thread(target=serve, args=([each], {"triggers": steps}, stopping), kwargs={"on_done": ignore})
            for each in owners
        ]
        for each in tasks:
            each.start()
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        trades(100, 180)
        feed.wait_for_events(bus, 60, "later", timeout=60)
        stopping.set()
        for each in tasks:
            each.join()
        trades(180, 240)
        # The task planned the step, and was then killed.
        one = owners[partition_of(ONE.encode(), PARTITIONS)]
        newest = steps.newest(one.name)
        planned = one.take(newest, look(bus, [one.awaits(newest)], Lives()))
        assert planned is not None
        steps.advance(one.name, newest, planned)

        settle("batch")
        newest_batch = CheckpointFolder(platform.driver.session, checkpoint).newest_batch()
        assert newest_batch is not None and newest_batch >= planned.number
        offsets = CheckpointFolder(platform.driver.session, checkpoint).offsets(newest_batch)
        assert offsets is not None and (folder / "commits" / str(newest_batch)).exists()
        settle("batch")
        batches = Query.__new__(Query)
        batches.url, batches.query_id, batches.number = url, "q", newest_batch
        batches.reader = TriggerStreamReader({"url": url, "reader": bus_topics.READER_TRIGGERS, "tasks": "2"})
        batches.start = batches.end = dict(offsets)
        trades(240, 300)
        feed.clock(bus, ONE, 10_000, sequence=300)
        feed.clock(bus, OTHER, 10_000, sequence=300)
        for _ in range(2):
            batches.run()
        batches.reader.stop()
        expected = evaluate(V_SHAPE, table_of(ONE, 1, prices)).to_pylist()
        found = feed.wait_for_events(bus, len(expected), "v")
        assert [row for event in found for row in rows(event)] == expected
        for trigger_id, count in (("v", len(expected)), ("spread", 300)):
            told = feed.wait_for_events(bus, count, trigger_id)
            assert [int(event.context["sequence"]) for event in told] == list(range(1, count + 1))
        later = [row["price"] for event in feed.events(bus, "later") for row in rows(event)]
        assert later == prices[300 - len(later) :] and len(later) >= 180


def ignore(query: str, done: Done) -> None:
    pass


def test_live_data_continues_in_the_other_mode_and_back(platform: Platform, tmp_path: Path) -> None:
    bus, folder = FreshBus(2), tmp_path / "live"
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TICK_ROWS):
        bus.create_topic(topic)
    feed.trades(bus, ONE, 1, prices=[1.0, 2.0])
    (place,) = (p for p, state in enumerate(bus.state(bus_topics.TICKS)) if state.end)
    nothing, end = {"0": 0, "1": 0}, {"0": 0, "1": 0, str(place): 1}
    marks = {bus_topics.TICK_MARKS: nothing}
    write_checkpoint(folder, "q", {4: {bus_topics.TICKS: nothing, **marks}, 5: {bus_topics.TICKS: end, **marks}})

    def settle(mode: str) -> None:
        settle_live_mode(
            platform.driver.session, settings_of(platform, bus.url, mode), f"file://{folder}", partitions=2
        )

    settle("continuous")
    step = Steps(bus, "q").newest(str(place))
    assert (step.number, step.end[bus_topics.TICKS]) == (5, {str(place): 1})
    settle("batch")
    checkpoint = CheckpointFolder(platform.driver.session, f"file://{folder}")
    offsets = checkpoint.offsets(5)
    assert checkpoint.query_id() == "q" and offsets is not None
    assert (offsets[bus_topics.TICKS], offsets[bus_topics.TICK_MARKS]) == (end, nothing)
    assert f"{place}/5" in bus.items("live_state:q"), "what was planned was carried out"
    assert not Steps(bus, "q").all()
    settle("continuous")
    folder.mkdir()
    (folder / "forget").touch()
    settle("continuous")
    assert bus.get(TABLE_SERVING, ["live"]) == [None] and not folder.exists() and not Steps(bus, "q").all()
