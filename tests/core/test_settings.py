from pathlib import Path

import pytest

from candlewright.settings.environment import names_of, problems
from candlewright.wire.errors import ConfigurationError
from core.settings import Settings, load_settings


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
    assert settings.console.bind == "127.0.0.1:8090"


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


def test_a_list_in_the_environment_that_is_not_json_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_INGESTOR__VENUES", "BINANCE")
    with pytest.raises(ConfigurationError, match=r'_INGESTOR__VENUES: not JSON; write a list as \["A", "B"\]'):
        load_settings()


@pytest.mark.parametrize(
    ("text", "named"),
    [("[broker]\nlease_second = 1\n", "lease_second: no such setting; did you mean broker.lease_seconds"),
     ("[broker]\nlease_seconds = 0\n", "broker.lease_seconds: Input"),
     ("[brokr]\nbind = 'x'\n", "brokr: no such setting; did you mean broker"),
     ("[exchange.BINANCE]\nur = 'x'\n", "exchange.BINANCE.ur: no such setting; did you mean exchange.BINANCE.url"),
     ("[alerts.phone]\nurl = 'ntfy://x'\nrate_per_minut = 1\n", "did you mean alerts.phone.rate_per_minute"),
     ("[[alerts.route]]\nto = 'x'\ntrigger = 'a'\n", "did you mean alerts.route.0.triggers"),
     ("[nothing]\n", "nothing: no such setting, and none"),
     ("[broker\n", "candlewright.toml is not valid TOML: Expected")],
)  # fmt: skip
def test_a_wrong_file_is_an_error_that_names_the_key(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "candlewright.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        load_settings()


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("BROKR__BIND", "BROKER__BIND"),
        ("BROKER_LEASE_SECONDS", "BROKER__LEASE_SECONDS"),
        ("broker_bind", "BROKER__BIND"),
        ("DATADIR", "DATA_DIR"),
        ("TRIGGER__MAX_TRIGGERS", "TRIGGERS__MAX_TRIGGERS"),
        ("EXCHANGES__BINANCE__URL", "EXCHANGE__BINANCE__URL"),
        ("SOMETHING__ELSE", "none with a similar name"),
    ],
)
def test_a_variable_that_is_not_a_setting_is_an_error_that_names_the_closest(
    monkeypatch: pytest.MonkeyPatch, variable: str, meant: str
) -> None:
    monkeypatch.setenv(f"CANDLEWRIGHT_{variable}", "1")
    with pytest.raises(ConfigurationError, match=f"CANDLEWRIGHT_{variable}: .*{meant}"):
        load_settings()


def test_a_variable_of_a_known_group_that_is_not_a_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_BROKER__LEASE_SECOND", "1")
    with pytest.raises(ConfigurationError, match="lease_second"):
        load_settings()


@pytest.mark.parametrize(
    ("variable", "said"),
    [("CHECKOUT", "is not a setting")],
)
def test_a_variable_of_another_program_gives_a_warning(
    monkeypatch: pytest.MonkeyPatch, variable: str, said: str
) -> None:
    monkeypatch.setenv(f"CANDLEWRIGHT_{variable}", "1")
    with pytest.warns(UserWarning, match=f"CANDLEWRIGHT_{variable} {said}|CANDLEWRIGHT_{variable} is {said}"):
        load_settings()


def test_variables_of_the_platform_that_are_not_settings_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").touch()
    monkeypatch.setenv("CANDLEWRIGHT_CONFIG", str(tmp_path / "own.toml"))
    for name in ("HTTP_PORT_FILE", "SUPERVISED", "SANDBOX__SEED"):
        monkeypatch.setenv(f"CANDLEWRIGHT_{name}", "1")
    load_settings()


def test_every_setting_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(names_of(Settings))
    assert {"DATA_DIR", "BROKER__BIND", "EXCHANGE", "SPARK__CONF", "TRIGGERS__MAX_ROWS_PER_KEY"} <= set(names)
    assert problems([f"CANDLEWRIGHT_{name}" for name in names], "CANDLEWRIGHT_", Settings) == ([], [])
    assert problems(["candlewright_data_dir", "PATH"], "CANDLEWRIGHT_", Settings) == ([], [])


def test_a_missing_file_that_was_requested_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such settings file"):
        load_settings(tmp_path / "absent.toml")


@pytest.mark.parametrize("text", ["8080", ":8080", "tcp://127.0.0.1:8080", "127.0.0.1:99999", "127.0.0.1:http"])
def test_an_invalid_address_is_reported_and_never_means_every_interface(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_HTTP__BIND", text)
    with pytest.raises(
        ConfigurationError, match=r"^settings: http\.bind: .* is not an address: write host:port, such as"
    ):
        load_settings()


@pytest.mark.parametrize("text", ["5567", "127.0.0.1:5567", "tcp://:5567", "tcp://127.0.0.1:99999", "udp://h:1"])
def test_an_address_of_zeromq_names_its_transport(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_BROKER__BIND", text)
    with pytest.raises(ConfigurationError, match=r"^settings: broker\.bind: .* write tcp://host:port, such as"):
        load_settings()


def test_addresses_of_other_interfaces_and_any_free_port_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("tcp://*:5567", "tcp://[::1]:0", "tcp://127.0.0.1:*", "ipc:///tmp/broker"):
        monkeypatch.setenv("CANDLEWRIGHT_BROKER__BIND", text)
        assert load_settings().broker.bind == text
    monkeypatch.setenv("CANDLEWRIGHT_SPARK__CONNECT_BIND", "[::1]:15002")
    assert load_settings().spark.connect_bind == "[::1]:15002"


def test_relay_curve_is_the_old_name_of_security_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[relay]\ncurve = true\nkeep_notifications_hours = 2\n")
    with pytest.warns(UserWarning, match="security.curve"):
        settings = load_settings(file)
    assert settings.security.curve
    assert settings.relay.keep_notifications_hours == 2
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__CURVE", "true")
    with pytest.warns(UserWarning, match="security.curve"):
        assert load_settings().security.curve
    monkeypatch.setenv("CANDLEWRIGHT_SECURITY__CURVE", "false")
    with pytest.warns(UserWarning, match="security.curve"):
        assert not load_settings().security.curve
