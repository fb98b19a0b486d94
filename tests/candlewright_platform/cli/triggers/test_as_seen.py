"""`--as-seen` finds the events that the running engine found in the same published bars, through the real table."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from bus import StoredRecord
from candlewright_platform.cli.triggers import backtest
from core.settings import Settings
from flink_replacement_spark.tables.published_bars import published_bars
from iceberg import OHLC_REVISIONS, append, create_tables, load_table, new_revisions, open_catalog, scan_revisions
from tests.triggers.test_revised_batching import TEXTS
from tests.triggers.trigger_records import T0, TICKER, bar, register, rows
from triggers.partition import TriggerPartition

BARS = 120
KINDS = {
    "first": {"period_seconds": "60"},
    "revised": {"period_seconds": "60", "revisions": "true"},
    "cool": {"revisions": "true", "cooldown_seconds": "180"},
}


def bars_with_late_ones() -> list[bytes]:
    """Corrections by late trades, and bars of repaired gaps that arrive after newer ones."""
    choice = random.Random(3)
    newest, revisions, found = -1, Counter[int](), []
    for _ in range(BARS):
        minute = max(0, newest + choice.choice((-3, -1, 0, 1, 1, 1, 1, 4)))
        found.append(bar(minute, choice.randrange(1, 9), revision=revisions[minute]))
        revisions[minute] += 1
        newest = max(newest, minute)
    return found


@pytest.fixture(scope="module")
def bars() -> list[bytes]:
    return bars_with_late_ones()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, bars: Sequence[bytes]) -> Settings:
    settings = Settings(data_dir=tmp_path_factory.mktemp("seen"))
    catalog = open_catalog(settings)
    create_tables(catalog)
    start_ms = T0 // 1_000_000
    records = [
        StoredRecord(
            topic="ohlc",
            partition=0,
            offset=offset,
            timestamp_ms=start_ms + offset // 2 * 1_000,
            key=TICKER.encode(),
            value=value,
            headers={},
        )
        for offset, value in enumerate(bars)
    ]
    for first in range(0, BARS, 40):
        published = published_bars(records[first : first + 40])
        table = load_table(catalog, OHLC_REVISIONS)
        append(table, new_revisions(published, scan_revisions(table, published)), {})
    return settings


def pairs() -> list[Any]:
    """Each text once, with the kinds in turn; with `--long` every one with every kind."""
    names = [name for name in TEXTS if not name.endswith("2")]
    return [
        pytest.param(name, kind, marks=() if place % len(KINDS) == turn else pytest.mark.long)
        for place, name in enumerate(names)
        for turn, kind in enumerate(KINDS)
    ]


@pytest.mark.parametrize(("name", "kind"), pairs())
def test_the_rows_are_those_of_the_events_of_then(settings: Settings, bars: list[bytes], name: str, kind: str) -> None:
    """The events came in batches, with a restart after each."""
    live = TriggerPartition()
    live.process([], controls=[register("t", TEXTS[name], TICKER, **KINDS[kind])])
    told: Counter[str] = Counter()
    for first in range(0, BARS, 7):
        events = live.process([], bars=bars[first : first + 7]).events
        told.update(repr(row) for event in events for row in rows(event))
        live = TriggerPartition.load(live.save())
    found = backtest.run(
        settings, TEXTS[name], KINDS[kind], ticker=TICKER, since=0, table=None, progress=lambda *_: None, as_seen=True
    ).table
    for place, part in enumerate(found.schema):
        if pa.types.is_timestamp(part.type):
            found = found.set_column(place, part.name, found[part.name].cast(pa.int64()))
    assert Counter(map(repr, found.to_pylist())) == told
    assert told
