"""A data directory, a bus and a catalog hold data of real exchanges or of the sandbox, never of both."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bus.connect import connect
from bus.origin import announce_origin, settle_origin
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire.errors import ConfigurationError
from candlewright_platform.cli.machine import demo
from candlewright_platform.supervisor.origin import FILE, origin_of, settle
from candlewright_platform.supervisor.parts import Choice, specs_of
from candlewright_platform.supervisor.ports import free_port
from core.origin import Origin
from core.settings import BusSettings, Settings

pytestmark = pytest.mark.processes

SANDBOX, EXCHANGES = Origin.SANDBOX, Origin.EXCHANGES


def up(data_dir: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A start that must be refused before any part runs."""
    return subprocess.run(
        [sys.executable, "-m", "candlewright", "up", "--data-dir", str(data_dir), *arguments],
        cwd=data_dir,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_first_start_writes_the_origin(tmp_path: Path) -> None:
    settle(tmp_path, SANDBOX)
    assert json.loads((tmp_path / FILE).read_text())["origin"] == "sandbox"
    settle(tmp_path, SANDBOX)


@pytest.mark.parametrize(("first", "arguments"), [(EXCHANGES, ["--sandbox"]), (SANDBOX, [])])
def test_a_start_of_the_other_kind_is_refused_with_one_sentence(
    tmp_path: Path, first: Origin, arguments: list[str]
) -> None:
    settle(tmp_path, first)
    before = (tmp_path / FILE).read_bytes()
    refused = up(tmp_path, *arguments)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert len(refused.stderr.splitlines()) == 1
    assert "--data-dir" in refused.stderr
    assert (tmp_path / FILE).read_bytes() == before
    assert not (tmp_path / "logs").exists()


def test_the_demo_refuses_a_directory_of_real_exchanges(tmp_path: Path) -> None:
    settle(tmp_path, EXCHANGES)
    with pytest.raises(ConfigurationError, match="real exchanges"):
        demo.run(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"origin": "else"}'])
def test_an_unreadable_origin_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ConfigurationError, match="--data-dir"):
        settle(tmp_path, EXCHANGES)


def test_a_bus_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as redis:
        with closing(connect(BusSettings(url=redis.url))) as bus:
            settle_origin(bus, EXCHANGES)
        free = {
            "CANDLEWRIGHT_BROKER__BIND": f"tcp://127.0.0.1:{free_port()}",
            "CANDLEWRIGHT_HTTP__BIND": f"127.0.0.1:{free_port()}",
        }
        refused = up(tmp_path, "--sandbox", "--parts", "broker", CANDLEWRIGHT_BUS__URL=redis.url, **free)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "bus.url" in refused.stderr
        ingestor = subprocess.run(
            [sys.executable, "-m", "ingestor"],
            env={**os.environ, "CANDLEWRIGHT_BUS__URL": redis.url, "CANDLEWRIGHT_ORIGIN": "sandbox"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ingestor.returncode == 1
        assert "real exchanges" in ingestor.stdout + ingestor.stderr


def test_the_data_directory_decides_about_an_embedded_bus(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as redis, closing(connect(BusSettings(url=redis.url))) as bus:
        settle_origin(bus, SANDBOX)
        announce_origin(bus, EXCHANGES)
        settle_origin(bus, EXCHANGES)


def test_a_server_that_the_user_names_counts_as_an_exchange_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    exchange = {"BINANCE": {"url": "http://127.0.0.1:9001"}}
    settings = Settings.model_validate({"data_dir": tmp_path, "exchange": exchange})
    names = Choice().names(settings)
    assert origin_of(settings, names) is EXCHANGES
    assert origin_of(settings.model_copy(update={"origin": SANDBOX}), names) is SANDBOX
    assert origin_of(settings, Choice(sandbox=True).names(settings)) is SANDBOX
    with pytest.raises(ConfigurationError, match="origin"):
        origin_of(settings.model_copy(update={"origin": EXCHANGES}), Choice(sandbox=True).names(settings))


def test_parts_get_the_origin(tmp_path: Path) -> None:
    _, *parts = specs_of(Settings(data_dir=tmp_path), Choice(sandbox=True), SANDBOX)
    assert {part.environment["CANDLEWRIGHT_ORIGIN"] for part in parts} == {"sandbox"}
