"""A client with a key: its ids, and its sockets, against a relay with keys on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import candlewright as cw
from candlewright.wire.errors import ConfigurationError
from core.doors import KeyFolder
from core.settings import Settings
from relay.server import Relay
from tests.fresh_bus import FreshBus
from tests.relay.harness import config, finish, no_rows

TICKER = "BTC/USDT.BINANCE"
DAY = {"start": "2024-01-01", "end": "2024-01-02"}


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    relay = Relay(config(keys_in=tmp_path / "data"), FreshBus(), no_rows, read_stored=no_rows)
    relay.start()
    yield relay
    relay.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    KeyFolder(tmp_path / "data").new("alice", tmp_path / "alice.key")
    return tmp_path / "alice.key"


def test_ids_of_a_client_begin_with_the_name_of_its_key(relay: Relay, key: Path) -> None:
    with cw.connect(relay.requests_address, relay.notifications_address, 10.0, key=key) as client:
        assert client.client_id.startswith("alice-")
        submission = client.submit(TICKER, **DAY)
        assert submission.request_id.startswith("alice-request-")
        assert submission.topic == f"RESPONSE:{client.client_id}"


def test_the_asyncio_twin_shows_the_key_of_the_settings(relay: Relay, key: Path, tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "client": {"key": str(key)}})

    async def run() -> int:
        addresses = (relay.requests_address, relay.notifications_address)
        async with cw.aconnect(*addresses, 10.0, client_id="alice-desk", settings=settings) as client:
            submission = await client.submit(TICKER, **DAY)
            finish(relay._bus, submission.request_id, row_count=3)
            return (await client.wait(submission.request_id, timeout=10)).row_count

    assert asyncio.run(run()) == 3


def test_a_client_id_of_another_name_is_refused_at_once(relay: Relay, key: Path) -> None:
    with pytest.raises(ValueError, match="alice"):
        cw.connect(relay.requests_address, relay.notifications_address, client_id="bob", key=key)


def test_a_key_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing"):
        cw.connect(key=tmp_path / "missing.key")


def test_without_a_key_the_error_asks_for_one(relay: Relay) -> None:
    connection = cw.connect(relay.requests_address, relay.notifications_address, 0.3)
    with connection as client, pytest.raises(cw.PlatformUnreachable, match="keys on"):
        client.venues()
