"""`doctor` lists every door, who may use it, and which are open."""

import re
from pathlib import Path
from typing import Any

import pytest

from candlewright_platform.cli.machine.doors import Door, doors_of
from core.doors import KeyFolder, Role
from core.settings import Settings
from tests.conftest import ROOT


def doors(where: Path, **groups: Any) -> dict[str, Door]:
    return {door.name: door for door in doors_of(Settings.model_validate({"data_dir": where, **groups}))}


def test_by_default_every_door_is_on_loopback(tmp_path: Path) -> None:
    found = doors(tmp_path)
    assert list(found) == [
        "relay requests",
        "relay notifications",
        "broker",
        "bus",
        "Spark Connect",
        "status pages",
        "HTTP API and console",
    ]
    assert not [door for door in found.values() if door.remedy]


def test_a_door_that_others_reach_names_its_remedy(tmp_path: Path) -> None:
    found = doors(
        tmp_path,
        relay={"requests_bind": "tcp://0.0.0.0:1"},
        broker={"bind": "tcp://*:2"},
        spark={"connect_bind": "0.0.0.0:3"},
        http={"bind": "0.0.0.0:4"},
        gateways={
            "kafka_pixy": {"enabled": True, "bind": "0.0.0.0:5"},
            "rocketmq": {"enabled": True, "bind": "[::]:6"},
        },
    )
    remedies = {name: door.remedy for name, door in found.items() if door.remedy}
    assert {name: remedy.split(",")[0] for name, remedy in remedies.items()} == {
        "relay requests": "turn on security.curve",
        "broker": "turn on security.curve",
        "Spark Connect": "set spark.connect_token",
        "status pages": "change http.bind",
        "kafka_pixy": "change gateways.kafka_pixy.bind",
        "rocketmq": "set gateways.rocketmq.access_keys",
    }


def test_the_console_of_another_address_takes_tokens_alone(tmp_path: Path) -> None:
    KeyFolder(tmp_path).new_token("desk", Role.viewer)
    door = doors(tmp_path, console={"bind": "0.0.0.0:8090"})["HTTP API and console"]
    assert door.who.startswith("tokens (viewer: 1, operator: 0); ")


def test_keys_and_a_token_close_their_doors(tmp_path: Path) -> None:
    KeyFolder(tmp_path).new("worker", tmp_path / "worker.key", Role.ingestor)
    found = doors(
        tmp_path,
        security={"curve": True},
        broker={"bind": "tcp://0.0.0.0:2"},
        spark={"connect_bind": "0.0.0.0:3", "connect_token": "t"},
    )
    assert (found["broker"].who, found["broker"].remedy) == ("keys of the role ingestor: 1; encrypted", "")
    assert found["Spark Connect"].remedy == ""


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("rediss://candlewright:p@redis.internal:6379/0", ""),
        ("redis://candlewright:p@redis.internal:6379/0", "give bus.url TLS (rediss://)"),
        ("redis://redis.internal", "give bus.url a user and password and TLS (rediss://)"),
        ("redis://:p@127.0.0.1:6379/0", ""),
    ],
)
def test_the_bus_door_names_missing_password_and_tls(tmp_path: Path, url: str, remedy: str) -> None:
    door = doors(tmp_path, bus={"url": url})["bus"]
    assert door.remedy == remedy
    assert ":p@" not in door.address + door.who


def test_a_cluster_has_its_own_doors(tmp_path: Path) -> None:
    properties = {"s3.endpoint": "http://s3.internal:9000", "s3.access-key-id": "K", "s3.secret-access-key": "S"}
    iceberg = {"catalog": "rest", "uri": "http://catalog.internal:8181", "warehouse": "s3://lake/"}
    spark = {"master": "spark://10.0.0.1:7077", "conf": {"spark.driver.host": "10.0.0.1"}}
    found = doors(tmp_path, spark=spark, iceberg={**iceberg, "properties": properties})
    private = "keep it in a private network"
    assert found["Spark master"] == Door("Spark master", "10.0.0.1:7077", "everyone who reaches it runs code", private)
    assert found["Spark driver"] == Door(
        "Spark driver", "10.0.0.1, free ports", "everyone who reaches it runs code", private
    )
    assert (found["catalog"].address, found["catalog"].who, found["catalog"].remedy) == (
        "http://catalog.internal:8181",
        "everyone who reaches it changes tables",
        "give iceberg.properties a credential or token, or keep it in a private network",
    )
    assert found["object store"] == Door("object store", "http://s3.internal:9000", "holders of the access key K")

    locked = {**iceberg, "properties": {"token": "t"}}
    near = {"master": "spark://127.0.0.1:7077", "conf": {"spark.driver.host": "127.0.0.1"}}
    found = doors(tmp_path, spark=near, iceberg=locked)
    assert (found["catalog"].who, found["catalog"].remedy) == ("holders of its credential or token", "")
    assert found["Spark master"].who == found["Spark driver"].who == "every user of this machine"
    assert found["object store"].who == "clients that the store of s3://lake/ accepts"


def test_the_tests_that_the_page_of_threats_names_exist() -> None:
    text = (ROOT / "docs" / "threats.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`((?:, `test_\w+`)*)", text)
    assert len(named) > 10
    for file, first, others in named:
        source = (ROOT / file).read_text()
        for test in filter(None, [first, *re.findall(r"test_\w+", others)]):
            assert f"def {test}(" in source, (file, test)
