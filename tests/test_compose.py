"""compose.yaml is sound: known parts, real settings, loopback ports, health checks."""

import importlib.util
import re
import shutil
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from bus.api import Record
from bus.connect import connect
from bus.redis.embedded import find_redis_server
from bus.roles import BROKER, Roles
from candlewright.cli.output import Output
from candlewright.settings import PREFIX
from candlewright.wire.errors import BusError, RoleLost
from candlewright.wire.keys import ClientKey
from candlewright_platform.cli.machine import secrets
from candlewright_platform.supervisor.ports import free_port
from core.doors import KeyFolder, Role
from core.settings import BusSettings, load_settings
from flink_replacement_spark.jars import ICEBERG_AWS
from flink_replacement_spark.spark import conf as spark
from gateways.enabled import enabled_gateways
from tests.conftest import ROOT
from tests.fresh_bus import FreshBus

_COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_PARTS = {name: service for name, service in _SERVICES.items() if service.get("command", [""])[:2] == ["python", "-m"]}


def _filled(text: str) -> str:
    return re.sub(r"\$\{\w+:\?[^}]*\}", "secret", text)


def test_nothing_starts_without_secrets_and_the_command_makes_all_of_them(tmp_path: Path) -> None:
    text = (ROOT / "compose.yaml").read_text()
    named = re.findall(r"\$\{(\w+)(:\?[^}]+)?\}", text)
    assert {name for name, refusal in named if not refusal} == set()
    assert {name for name, _ in named} == set(secrets.NAMES)
    secrets.make(tmp_path, Output.json)
    environment = tmp_path / ".env"
    lines = dict(line.split("=", 1) for line in environment.read_text().splitlines())
    assert lines.keys() == set(secrets.NAMES) and min(map(len, lines.values())) > 40
    assert len(set(lines.values())) == len(lines)
    mounted = [v.partition(":")[0] for each in _SERVICES.values() for v in each.get("volumes", []) if v[0] == "."]
    assert mounted and all((tmp_path / path).exists() for path in mounted)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (environment, tmp_path / "secrets")] == [0o600, 0o700]
    ingestor = ClientKey.read(tmp_path / "secrets" / "keys" / "own" / "ingestors.key")
    folder = KeyFolder(tmp_path / "secrets")
    assert folder.names(Role.ingestor) == {ingestor.public: "ingestors"}
    # The console finds its key, since its folder is read-only.
    before = {file: file.read_text() for file in folder.path.rglob("*") if file.is_file()}
    console = ClientKey.read(folder.own(secrets.CONSOLE, Role.client))
    assert folder.names() == {console.public: secrets.CONSOLE}
    assert {file: file.read_text() for file in folder.path.rglob("*") if file.is_file()} == before


def test_secrets_that_are_there_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("REDIS_PASSWORD=mine\nOTHER=1")
    secrets.make(tmp_path, Output.json)
    first = (tmp_path / ".env").read_text()
    assert first.startswith("REDIS_PASSWORD=mine\nOTHER=1\n") and first.count("REDIS_PASSWORD") == 1
    key = (tmp_path / "secrets" / "keys" / "platform.key").read_text()
    secrets.make(tmp_path, Output.json)
    assert (tmp_path / ".env").read_text() == first
    assert (tmp_path / "secrets" / "keys" / "platform.key").read_text() == key


def test_the_user_of_the_store_has_exactly_the_rights_that_the_platform_needs(tmp_path: Path) -> None:
    """Starts a real server with the arguments of compose.yaml."""
    words = [_filled(str(word)) for word in _SERVICES["redis"]["command"]]
    port = free_port()
    command = [str(find_redis_server()), *words[1:], "--port", str(port)]
    command[command.index("/data")] = str(tmp_path)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            with closing(connect(BusSettings(url=f"redis://candlewright:secret@127.0.0.1:{port}/0"))) as bus:
                bus.create_topic("ticks", 1)
                bus.publish("ticks", [Record(b"value", key=b"key")])
                assert [record.value for record in bus.read("ticks", 0, 0)] == [b"value"]
                bus.put("venues", {"a": b"1"})
                assert bus.get("venues", ["a"]) == [b"1"]
                bus.hold("ticks", "reader", {0: 0})
                assert bus.refusal() == ""
                with closing(Roles(bus.url)) as roles:
                    term = roles.acquire(BROKER, "one", 60)
                    assert term is not None
                    with closing(connect(BusSettings(url=term.address(bus.url)))) as fenced:
                        fenced.put("venues", {"a": b"2"})
                        assert roles.acquire(BROKER, "one", 60) is not None
                        with pytest.raises(RoleLost):
                            fenced.put("venues", {"a": b"3"})
                # A bus would wait for the missing right.
                with redis.Redis.from_url(bus.url) as plain:
                    for forbidden in (("CONFIG", "GET", "dir"), ("FLUSHALL",), ("SET", "other", "1"), ("ACL", "LIST")):
                        with pytest.raises(redis.exceptions.NoPermissionError):
                            plain.execute_command(*forbidden)
            for url in (f"redis://127.0.0.1:{port}/0", f"redis://candlewright:wrong@127.0.0.1:{port}/0"):
                with closing(connect(BusSettings(url=url))) as stranger, pytest.raises(BusError):
                    stranger.topics()
        finally:
            server.kill()


def test_all_parts_of_the_platform_are_services() -> None:
    assert {service["command"][2] for service in _PARTS.values()} == {
        "broker",
        "relay",
        "ingestor",
        "flink_replacement_spark",
        "gateways",
        "console",
    }
    assert {"redis", "catalog", "s3", "spark-master", "spark-worker"} <= _SERVICES.keys()


@pytest.mark.parametrize("name", _SERVICES)
def test_each_service_has_a_health_check_and_publishes_on_loopback_only(name: str) -> None:
    service = _SERVICES[name]
    assert service["healthcheck"]["test"]
    assert service["restart"] == "unless-stopped"
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", _SERVICES)
def test_dependencies_and_volumes_are_declared(name: str) -> None:
    service = _SERVICES[name]
    for needed, condition in service.get("depends_on", {}).items():
        assert needed in _SERVICES
        assert condition == {"condition": "service_healthy"}
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        assert source in _COMPOSE["volumes"] or (source.startswith("./secrets/") and volume.endswith(":ro"))


def test_a_spark_master_that_comes_back_knows_its_workers_and_applications() -> None:
    options = _SERVICES["spark-master"]["environment"]["SPARK_DAEMON_JAVA_OPTS"].split()
    given = dict(option.removeprefix("-D").split("=") for option in options)
    assert given["spark.deploy.recoveryMode"] == "FILESYSTEM"
    folders = [volume.partition(":")[2] for volume in _SERVICES["spark-master"]["volumes"]]
    assert any(Path(given["spark.deploy.recoveryDirectory"]).is_relative_to(folder) for folder in folders)


def test_workers_roll_the_logs_of_executors_and_remove_those_of_ended_applications() -> None:
    """A standalone worker reads this from its own options, not from the application's."""
    options = _SERVICES["spark-worker"]["environment"]["SPARK_WORKER_OPTS"].split()
    given = dict(option.removeprefix("-D").split("=") for option in options)
    assert given.pop("spark.worker.cleanup.enabled") == "true"
    assert given == {name: value for name, value in spark._CLUSTER.items() if ".logs.rolling." in name}


@pytest.mark.parametrize("name", _PARTS)
def test_each_part_runs_a_module_with_settings_that_it_understands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = _PARTS[name]
    assert importlib.util.find_spec(f"{service['command'][2]}.__main__") is not None
    for key, value in service["environment"].items():
        if key.startswith(PREFIX):
            monkeypatch.setenv(key, _filled(value))
    settings = load_settings()
    assert settings.bus.url == "redis://candlewright:secret@redis:6379/0"
    assert settings.security.curve
    assert ("/data/keys" in str(service.get("volumes"))) == (name in ("broker", "relay", "console"))
    assert bool(settings.ingestor.key) == (name == "ingestor")
    assert settings.iceberg.properties["s3.secret-access-key"] == "secret"


def test_the_pipeline_starts_with_its_settings_and_keeps_its_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _PARTS["pipeline"]
    for key, value in service["environment"].items():
        if key.startswith(PREFIX):
            monkeypatch.setenv(key, _filled(value))
    monkeypatch.setattr(spark, "fetch_jars", lambda packages: [Path(packages[-1])])
    conf = spark.spark_conf(load_settings())
    assert conf["spark.connect.grpc.binding.address"] == "0.0.0.0"
    assert conf["spark.connect.authenticate.token"]
    assert conf["spark.jars"] == ICEBERG_AWS
    volumes = [volume.partition(":")[2] for volume in service["volumes"]]
    assert any(spark.checkpoint_of(load_settings(), "live").startswith(f"file://{path}/") for path in volumes)


def test_the_gateways_service_serves_the_enabled_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _PARTS["gateways"]
    for key, value in service["environment"].items():
        if key.startswith(PREFIX):
            monkeypatch.setenv(key, _filled(value))
    settings = load_settings()
    names = [gateway.name for gateway in enabled_gateways(settings, FreshBus())]
    assert names == ["kafka_pixy", "rocketmq"]
    for bind in (settings.gateways.kafka_pixy.bind, settings.gateways.rocketmq.bind):
        host, _, port = bind.rpartition(":")
        assert host == "0.0.0.0"
        assert f"127.0.0.1:{port}:{port}" in service["ports"]
    assert settings.gateways.rocketmq.advertise in [each.rpartition(":")[0] for each in service["ports"]]
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert settings.gateways.kafka_pixy.flush_seconds < grace


@pytest.mark.skipif(
    shutil.which("docker") is None or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode,
    reason="docker compose is not installed",
)
def test_docker_compose_accepts_the_file() -> None:
    subprocess.run(["docker", "compose", "-f", str(ROOT / "compose.yaml"), "config", "-q"], check=True)


def test_the_image_has_the_wheels_and_runs_as_an_ordinary_user() -> None:
    build, image = (ROOT / "Dockerfile").read_text().split("\nFROM ")[-2:]
    assert "pip wheel" in build and "/wheels/*.whl" in build
    for project in ("./distributions/candlewright", "./distributions/candlewright-cep"):
        assert project in build and (ROOT / project / "pyproject.toml").is_file()
    copied = [line for line in image.splitlines() if line.startswith("COPY")]
    assert copied == [
        "COPY --from=build /opt/candlewright /opt/candlewright",
        "COPY LICENSE NOTICE /usr/share/doc/candlewright/",
    ]
    assert re.findall(r"^USER (\S+)", image, re.M) == ["candlewright"]
    assert image.index("\nUSER ") < image.index("\nCMD ")
    assert all("user" not in service or name == "catalog" for name, service in _SERVICES.items())


def test_files_that_git_ignores_are_not_in_the_image() -> None:
    """Above all Node packages of another system, since the build would not replace them."""
    ignored = (ROOT / ".gitignore").read_text().split()
    paths = {line.strip("/") if "/" in line.rstrip("/") else f"**/{line.rstrip('/')}" for line in ignored}
    assert set((ROOT / ".dockerignore").read_text().split()) == {".git", *paths}
