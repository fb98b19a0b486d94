"""compose.yaml is sound: known parts, real settings, loopback ports, health checks."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from candlewright.settings import PREFIX
from core.settings import load_settings
from flink_replacement_spark.engine import session
from flink_replacement_spark.jars import ICEBERG_AWS
from gateways.enabled import enabled_gateways
from tests.conftest import ROOT
from tests.fresh_bus import FreshBus

_COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_PARTS = {name: service for name, service in _SERVICES.items() if service.get("command", [""])[:2] == ["python", "-m"]}


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
        assert volume.partition(":")[0] in _COMPOSE["volumes"]


@pytest.mark.parametrize("name", _PARTS)
def test_each_part_runs_a_module_with_settings_that_it_understands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = _PARTS[name]
    assert importlib.util.find_spec(f"{service['command'][2]}.__main__") is not None
    for key, value in service["environment"].items():
        if key.startswith(PREFIX):
            monkeypatch.setenv(key, value.replace("${S3_SECRET_KEY:-candlewright-local}", "secret"))
    settings = load_settings()
    assert settings.bus.url.startswith("redis://redis:")
    assert settings.iceberg.properties["s3.secret-access-key"] == "secret"


def test_the_pipeline_starts_with_its_settings_and_keeps_its_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _PARTS["pipeline"]
    for key, value in service["environment"].items():
        if key.startswith(PREFIX):
            monkeypatch.setenv(key, re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value))
    monkeypatch.setattr(session, "fetch_jars", lambda packages: [Path(packages[-1])])
    conf = session.spark_conf(load_settings())
    assert conf["spark.connect.grpc.binding.address"] == "0.0.0.0"
    assert conf["spark.connect.authenticate.token"]
    assert conf["spark.jars"] == ICEBERG_AWS
    volumes = [volume.partition(":")[2] for volume in service["volumes"]]
    assert any(session.checkpoint_of(load_settings(), "live").startswith(f"file://{path}/") for path in volumes)


def test_the_gateways_serve_what_their_settings_enable(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _PARTS["gateways"]
    for key, value in service["environment"].items():
        if key.startswith(PREFIX):
            monkeypatch.setenv(key, value)
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
