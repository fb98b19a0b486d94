"""`candlewright alerts` over a real bus."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from alerts.alert import Outcome
from alerts.alert import Status as End
from alerts.store import AlertStore
from bus import topics
from candlewright.cli.app import app
from core.http import SUPERVISOR_PORT_FILE, Status, StatusServer
from tests.alerts.deliveries import delivery
from tests.alerts.receiver import Receiver
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
    assert "no trigger bakc is registered now; did you mean back?" in silence("bakc", "--for", "2h").stderr
    assert silence("bakc", "--end").exit_code == 0
    assert not [each for each in ("back", "b*", "stale") if "is registered" in silence(each, "--for", "1m").stderr]
    assert not [each for each in ("back", "b*", "stale") if silence(each, "--end").exit_code]
    rows = [json.loads(line) for line in silence("--output", "json").stdout.splitlines()]
    assert {(row["trigger"], row["until_trigger"]) for row in rows} == {("dip", "back"), ("rise", "")}
    assert silence("dip", "--end").exit_code == 0
    assert len(silence("--output", "json").stdout.splitlines()) == 1


def test_usage(bus: FreshBus) -> None:
    assert "say for how long" in silence("dip").stderr
    assert silence("--until", "back").exit_code == 2


def test_the_list_counts_each_kind_of_failure(bus: FreshBus, tmp_path: Path) -> None:
    config = tmp_path / "candlewright.toml"
    config.write_text('[alerts.bot]\nurl = "https://bot.example/?token=s3cret"\n[alerts.phone]\nurl = "ntfy://mine"\n')
    listed = ["alerts", "list", "--config", str(config), "--data-dir", str(tmp_path)]
    # Nothing runs here.
    assert "bot" in CliRunner().invoke(app, listed).stdout
    own = {"delivered": 7, "failures": {"slow": 2, "cut": 1}, "recovered": 3}
    server = StatusServer(
        "127.0.0.1:0",
        lambda: Status(
            part="supervisor",
            is_ready=True,
            details={"parts": {"alerts": {"status": {"destinations": {"bot": own}}}}},
        ),
        port_file=tmp_path / "run" / SUPERVISOR_PORT_FILE,
    )
    try:
        bot, phone = map(json.loads, CliRunner().invoke(app, [*listed, "--output", "json"]).stdout.splitlines())
        table = CliRunner().invoke(app, listed).stdout
    finally:
        server.close()
    assert own.items() <= bot.items() and phone["failures"] is None
    assert "cut 1, slow 2" in " ".join(table.split()) and "s3cret" not in table


async def test_a_test_alert_succeeds_only_if_the_destination_accepts_it(tmp_path: Path) -> None:
    config = tmp_path / "candlewright.toml"

    async def tried(name: str) -> Result:
        arguments = ["alerts", "test", name, "--config", str(config), "--data-dir", str(tmp_path)]
        return await asyncio.to_thread(CliRunner().invoke, app, arguments)

    async with Receiver(["", "500"]).serve() as receiver:
        config.write_text(
            f'[alerts.bot]\nurl = "{receiver.url}"\nallow_private = true\n'
            f'[alerts.shut]\nurl = "{receiver.url.replace("http:", "https:")}"\n'
        )
        assert (await tried("bot")).exit_code == 0
        [body] = receiver.bodies
        assert body["type"] == "test"
        assert receiver.taken[0].startswith("test-")
        for name, reason in (("bot", "500"), ("shut", "private"), ("bto", "no destination bto in the settings")):
            found = await tried(name)
            assert found.exit_code == 1
            assert reason in str(found.exception)
            assert "s3cret" not in str(found.exception)
    assert len(receiver.requests) == 2


def test_abandoned_deliveries_are_listed_and_sent_again(bus: FreshBus) -> None:
    store = AlertStore(bus)
    store.open()
    kept = delivery(destination="bot", attempts=40, error="it answered with 503")
    store.keep([kept])
    store.finish([Outcome(delivery=kept, status=End.ABANDONED, at=2.0)])

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["alerts", "dead-letters", *arguments])

    row = json.loads(run("--output", "json").stdout)
    assert (row["trigger"], row["attempts"], row["error"]) == ("dip", 40, "it answered with 503")
    assert "not an abandoned delivery: nothing" in str(run("--send", "nothing").exception)
    assert run("--send", row["key"]).exit_code == 0
    assert [each.alert_id for each in store.asked_again(3.0)] == ["dip-1"]
