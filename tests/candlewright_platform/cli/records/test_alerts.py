"""`candlewright alerts silence` over a real bus."""

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bus import topics
from candlewright.cli.app import app
from tests.fresh_bus import FreshBus


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[FreshBus]:
    bus = FreshBus()
    monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", bus.url)
    yield bus
    bus.close()


def silence(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["alerts", "silence", *arguments])


def test_a_silence_ends_with_another_triggers_event_or_its_time(bus: FreshBus) -> None:
    assert "no trigger nowhere is registered" in str(silence("dip", "--until", "nowhere").exception)
    bus.put(topics.TABLE_TRIGGERS, {"back": b"x"})
    assert "no alerts of dip until back fires, at most until 20" in silence("dip", "--until", "back").stderr
    assert silence("rise", "--for", "2h").exit_code == 0
    rows = [json.loads(line) for line in silence("--output", "json").stdout.splitlines()]
    assert {(row["trigger"], row["until_trigger"]) for row in rows} == {("dip", "back"), ("rise", "")}
    assert silence("dip", "--end").exit_code == 0
    assert len(silence("--output", "json").stdout.splitlines()) == 1


def test_usage(bus: FreshBus) -> None:
    assert "say for how long" in silence("dip").stderr
    assert silence("--until", "back").exit_code == 2
