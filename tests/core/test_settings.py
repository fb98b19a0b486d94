from pathlib import Path

import pytest

from core.errors import ConfigurationError
from core.settings import load_settings


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CANDLEWRIGHT_CONFIG", raising=False)


def test_defaults_listen_on_loopback_only() -> None:
    settings = load_settings()
    for bind in (settings.broker.bind, settings.relay.requests_bind, settings.relay.notifications_bind):
        assert bind.startswith("tcp://127.0.0.1:")
    assert settings.spark.connect_bind == "127.0.0.1:15002"
    assert settings.http.bind == "127.0.0.1:8080"


def test_command_line_beats_environment_beats_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "candlewright.toml").write_text(
        "[broker]\nlease_seconds = 1\nmax_attempts = 7\nheartbeat_seconds = 1\n"
    )
    monkeypatch.setenv("CANDLEWRIGHT_BROKER__LEASE_SECONDS", "2")
    monkeypatch.setenv("CANDLEWRIGHT_BROKER__HEARTBEAT_SECONDS", "2")
    settings = load_settings(overrides={"broker": {"heartbeat_seconds": 3}})
    assert settings.broker.max_attempts == 7
    assert settings.broker.lease_seconds == 2
    assert settings.broker.heartbeat_seconds == 3


def test_lists_and_venues_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_INGESTOR__VENUES", '["binance", "KRAKEN"]')
    monkeypatch.setenv("CANDLEWRIGHT_EXCHANGE__BINANCE__URL", "http://127.0.0.1:9001")
    settings = load_settings()
    assert settings.ingestor.venues == ("BINANCE", "KRAKEN")
    assert settings.exchange_url("BINANCE") == "http://127.0.0.1:9001"
    assert settings.exchange_url("KRAKEN") == ""


@pytest.mark.parametrize(
    ("text", "named"),
    [("[broker]\nlease_second = 1\n", "lease_second"), ("[broker]\nlease_seconds = 0\n", "lease_seconds"),
     ("[nothing]\n", "nothing"), ("[broker\n", "settings")],
)  # fmt: skip
def test_a_wrong_file_is_an_error_that_names_the_key(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "candlewright.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        load_settings()


def test_a_missing_file_that_was_asked_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such settings file"):
        load_settings(tmp_path / "absent.toml")
