"""What `up` starts, with which environment, on which ports."""

import socket
from pathlib import Path

import pytest

from candlewright.wire.errors import ConfigurationError
from candlewright.wire.keys import ClientKey
from candlewright_platform.supervisor.parts import Choice, merged, specs_of
from candlewright_platform.supervisor.ports import Bind, answers, binds_of, check, free_port
from core.doors import KeyFolder, Role
from core.settings import SecuritySettings, Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path, "exchange": {"kraken": {"url": "http://k"}}})


def with_bus(settings: Settings) -> Settings:
    return settings.model_copy(update={"bus": settings.bus.model_copy(update={"url": "redis://elsewhere"})})


def test_everything_is_started_by_default(settings: Settings) -> None:
    names = [spec.name for spec in specs_of(settings, Choice(ingestors=2))]
    assert names == ["redis", "broker", "relay", "flink_replacement_spark", "ingestor-1", "ingestor-2", "console"]


def test_only_spark_starts_before_the_bus(settings: Settings) -> None:
    first = [spec.name for spec in specs_of(settings, Choice(sandbox=True)) if spec.plan.starts_first]
    assert first == ["flink_replacement_spark"]


def test_each_command_line_names_its_folder(settings: Settings) -> None:
    for spec in specs_of(settings, Choice()):
        assert any(spec.name.removesuffix("-1") in word for word in spec.command)


def test_a_given_bus_is_used_instead_of_a_new_one(settings: Settings) -> None:
    specs = specs_of(with_bus(settings), Choice())
    assert "redis" not in [spec.name for spec in specs]
    assert {spec.environment["CANDLEWRIGHT_BUS__URL"] for spec in specs} == {"redis://elsewhere"}


def test_parts_get_the_embedded_bus(settings: Settings) -> None:
    redis, *others = specs_of(settings, Choice())
    assert Path(redis.command[0]).name == "redis-server"
    assert all(spec.environment["CANDLEWRIGHT_BUS__URL"].startswith("redis://") for spec in others)


def test_no_ingestor_when_none_is_wanted(settings: Settings) -> None:
    assert not [spec for spec in specs_of(settings, Choice(ingestors=0)) if "ingestor" in spec.name]


def test_named_parts_only(settings: Settings) -> None:
    specs = specs_of(with_bus(settings), Choice(parts=("relay", "spark")))
    assert [spec.name for spec in specs] == ["relay", "flink_replacement_spark"]


def test_named_parts_need_a_bus(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"bus\.url"):
        specs_of(settings, Choice(parts=("relay",)))


def test_an_unknown_part_is_named(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="no such part: brokr; did you mean broker"):
        specs_of(settings, Choice(parts=("brokr",)))


def test_the_sandbox_replaces_only_binance(settings: Settings) -> None:
    specs = {spec.name: spec for spec in specs_of(settings, Choice(sandbox=True))}
    port = specs["sandbox"].command[specs["sandbox"].command.index("--port") + 1]
    ingestor = specs["ingestor-1"].environment
    assert ingestor["CANDLEWRIGHT_EXCHANGE__BINANCE__URL"] == f"http://127.0.0.1:{port}"
    assert ingestor["CANDLEWRIGHT_EXCHANGE__KRAKEN__URL"] == "http://k"
    assert ingestor["CANDLEWRIGHT_INGESTOR__VENUES"] == '["BINANCE"]'


def test_venues_that_were_configured_stay(settings: Settings) -> None:
    configured = settings.model_copy(update={"ingestor": settings.ingestor.model_copy(update={"venues": ("OKX",)})})
    specs = {spec.name: spec for spec in specs_of(configured, Choice(sandbox=True))}
    assert "CANDLEWRIGHT_INGESTOR__VENUES" not in specs["ingestor-1"].environment


def test_own_ingestors_get_a_key_if_keys_are_on(settings: Settings) -> None:
    guarded = settings.model_copy(update={"security": SecuritySettings(curve=True)})
    ingestor = {spec.name: spec for spec in specs_of(guarded, Choice())}["ingestor-1"]
    file = Path(ingestor.environment["CANDLEWRIGHT_INGESTOR__KEY"])
    assert KeyFolder(settings.data_dir).names(Role.ingestor) == {ClientKey.read(file).public: "own-ingestors"}
    assert specs_of(guarded, Choice())[-1].environment["CANDLEWRIGHT_INGESTOR__KEY"] == str(file)


def test_own_variables_replace_inherited_ones_of_any_case() -> None:
    got = merged({"candlewright_data_dir": "old", "PATH": "/bin"}, {"DATA_DIR": "new"})
    assert got == {"PATH": "/bin", "CANDLEWRIGHT_DATA_DIR": "new"}


def test_a_spark_of_the_caller_is_not_mistaken_for_ours() -> None:
    assert merged({"SPARK_REMOTE": "sc://elsewhere", "SPARK_CONNECT_MODE_ENABLED": "1"}, {}) == {}


def test_a_taken_port_is_named_with_its_setting(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            check([Bind("relay.requests_bind", f"tcp://127.0.0.1:{port}")], 0.0)
    assert f"port {port} is taken" in str(caught.value)
    assert "CANDLEWRIGHT_RELAY__REQUESTS_BIND" in str(caught.value)


def test_free_and_random_ports_pass() -> None:
    check([Bind("http.bind", f"127.0.0.1:{free_port()}"), Bind("http.bind", "127.0.0.1:0")], 0.0)


def test_only_ports_of_started_parts_are_checked(settings: Settings) -> None:
    assert [bind.setting for bind in binds_of(settings, ["relay"])] == [
        "http.bind",
        "relay.requests_bind",
        "relay.notifications_bind",
    ]


def test_a_bus_that_is_not_there_yet_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert answers(f"redis://:secret@127.0.0.1:{server.getsockname()[1]}/0")
    assert not answers(f"redis://127.0.0.1:{free_port()}/0")
    assert answers("unix:///run/redis.sock")


def test_a_free_port_is_below_the_ephemeral_range() -> None:
    given = {free_port() for _ in range(20)}
    assert len(given) > 10
    for port in given:
        assert port < 32_768
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
