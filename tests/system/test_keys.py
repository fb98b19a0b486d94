"""Keys end to end: the command line makes them, a relay process lets their clients in, and keeps them apart."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import candlewright as cw
from candlewright.wire.keys import ClientKey
from tests.relay import pipeline
from tests.relay.harness import finish
from tests.system.test_relay_process import ROOT, Installation, installation

__all__ = ["installation"]

DAY = {"start": "2024-01-01", "end": "2024-01-02"}
TICKER = "BTC/USDT.BINANCE"


@pytest.fixture
def guarded(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.setenv("CANDLEWRIGHT_SECURITY__CURVE", "true")
    return installation


def keys(guarded: Installation, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "candlewright", "keys", *arguments, "--data-dir", str(guarded.folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def new_key(guarded: Installation, name: str) -> Path:
    file = guarded.folder / f"{name}.key"
    made = keys(guarded, "new", name, "--file", str(file), "--output", "json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["public"] == ClientKey.read(file).public
    return file


def connect(guarded: Installation, key: Path | None, timeout: float = 20.0) -> cw.Client:
    return cw.connect(guarded.requests, guarded.notifications, timeout, key=key)


def test_clients_with_keys_are_served_and_kept_apart(guarded: Installation) -> None:
    alice_key = new_key(guarded, "alice")
    assert keys(guarded, "new", "al", "--file", str(guarded.folder / "al.key")).returncode == 1
    with guarded.relay(), connect(guarded, alice_key) as alice:
        submission = alice.submit(TICKER, **DAY, request_id="r1")
        assert submission.topic.startswith("RESPONSE:alice-")
        # Made while the relay runs.
        with connect(guarded, new_key(guarded, "bob")) as bob:
            assert bob.state("r1").state == "unknown"
            with pytest.raises(cw.RequestNotFound):
                bob.cancel("r1")
            with pytest.raises(cw.InvalidRequest):
                bob.submit(TICKER, **DAY, request_id="r1")
            assert alice.state("r1").state == "queued"
            finish(guarded.bus, "r1", row_count=1_440)
            assert alice.wait("r1", timeout=20).row_count == 1_440
            with pipeline.running(guarded.bus):
                trigger = alice.triggers.add("price > 1", tickers=[TICKER])
                assert trigger.id.startswith("alice-")
                assert bob.triggers.list() == []
                with pytest.raises(cw.PlatformRefused, match="alice"):
                    alice.triggers.add("price > 1", trigger_id="breakout")
                with pytest.raises(cw.TriggerNotFound):
                    bob.triggers.remove(trigger.id)
                events = trigger.events(timeout=20)
                pipeline.fire(guarded.bus, trigger.id, 1)
                assert next(iter(events)).trigger_id == trigger.id
                assert [each.trigger_id for each in alice.triggers.list()] == [trigger.id]


def test_clients_come_back_after_a_kill_of_the_relay(guarded: Installation) -> None:
    key = new_key(guarded, "alice")
    with guarded.relay() as relay, connect(guarded, key) as alice:
        alice.submit(TICKER, **DAY, request_id="r1")
        relay.kill()
        relay.wait()
        with guarded.relay():
            finish(guarded.bus, "r1", row_count=7)
            assert alice.wait("r1", timeout=20).row_count == 7


def test_without_a_known_key_the_client_reports_it_in_time(guarded: Installation) -> None:
    removed = new_key(guarded, "carol")
    assert keys(guarded, "remove", "carol").returncode == 0
    with guarded.relay():
        for key, hint in ((None, "this client's key"), (removed, "the key of carol")):
            started = time.monotonic()
            with connect(guarded, key, timeout=1.0) as client, pytest.raises(cw.PlatformUnreachable, match=hint):
                client.venues()
            assert time.monotonic() - started < 10
