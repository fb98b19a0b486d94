"""`candlewright dead-letters` over a real bus."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bus import dead_letters, topics
from bus.api import Bus, Record
from bus.dead_letters import Letter, put_aside
from candlewright.cli.app import app
from candlewright.wire import candlewright_pb2 as cw
from core.http import Status, StatusServer
from tests.fresh_bus import FreshBus

NOON = 1_704_110_400 * 10**9
GOOD = cw.TickBatch(ticker="BTC/USDT.BINANCE", first_sequence=7)
GOOD.trade_id.append("1")
GOOD.timestamp.append(NOON)
GOOD.price.append(1.5)
GOOD.size.append(2.0)
GOOD.side.append(1)
GOOD.received_at.append(NOON)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    bus = FreshBus()
    monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", bus.url)
    bus.create_topic(topics.TICKS)
    bus.create_topic(topics.REQUESTS, 1)
    put_aside(bus, "spark", [Letter(topics.TICKS, GOOD.SerializeToString(), "too far ahead", key=b"BTC/USDT.BINANCE")])
    put_aside(bus, "broker", [Letter(topics.REQUESTS, b"\xff\x00", "not a Request", b"r1", 0, 5)])
    yield bus
    bus.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["dead-letters", *arguments])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def records(bus: Bus, topic: str) -> list[tuple[int, bytes]]:
    found = (bus.read(topic, partition, 0) for partition in range(bus.partitions(topic)))
    return [(record.partition, record.value) for each in found for record in each]


def test_the_list_names_place_and_reason_of_each(bus: Bus) -> None:
    tick, request = rows(run("list", "--output", "json"))
    assert (tick["number"], tick["part"], tick["topic"], tick["reason"]) == (0, "spark", "ticks", "too far ahead")
    assert (tick["partition"], tick["offset"]) == (None, None)
    assert (request["number"], request["partition"], request["offset"], request["bytes"]) == (1, 0, 5, 2)
    assert [row["number"] for row in rows(run("list", "--part", "broker", "--output", "json"))] == [1]
    assert [row["number"] for row in rows(run("list", "--topic", "ticks", "--output", "json"))] == [0]
    limited = run("list", "--limit", "1")
    assert "not a Request" in limited.stdout and "too far ahead" not in limited.stdout
    assert "the newest 1 of 2" in limited.stderr


def test_a_letter_is_shown_with_its_bytes_and_as_a_message_where_it_is_one(bus: Bus) -> None:
    (tick,) = rows(run("show", "0", "--output", "json"))
    assert tick["key"] == "BTC/USDT.BINANCE" and 'trade_id: "1"' in tick["message"]
    assert tick["record"] == GOOD.SerializeToString().hex()
    shown = run("show", "1").stdout
    assert "not a Request" in shown and "ff 00" in shown
    missing = CliRunner().invoke(app, ["dead-letters", "show", "9"])
    assert missing.exit_code == 1 and "dead letter 9 was not found" in str(missing.exception)


def test_a_replayed_record_is_on_its_topic_once_with_its_own_number(bus: Bus) -> None:
    assert run("replay", "0").exit_code == 0
    again = run("replay", "0", "--output", "json")
    assert [row["outcome"] for row in rows(again)] == ["was replayed before"]
    ((partition, value),) = records(bus, topics.TICKS)
    batch = cw.TickBatch.FromString(value)
    assert list(batch.trade_id) == ["1"] and batch.first_sequence == 1
    assert bus.publish(topics.TICKS, [Record(b"", key=b"BTC/USDT.BINANCE")])[0].partition == partition


def test_an_internal_record_returns_to_its_partition_unchanged(bus: Bus) -> None:
    assert run("replay", "--all", "--topic", "requests").exit_code == 0
    assert records(bus, topics.REQUESTS) == [(0, b"\xff\x00")]
    assert records(bus, topics.TICKS) == []


def test_records_that_cannot_be_replayed_are_reported_with_exit_code_1(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_RECORD_BYTES", 10)
    monkeypatch.setattr(dead_letters, "HEAD_BYTES", 4)
    put_aside(bus, "spark", [Letter(topics.TICKS, b"\xff\x01", "bad"), Letter(topics.REQUESTS, b"0123456789a", "long")])
    result = run("replay", "2", "3", "0", "--output", "json")
    assert result.exit_code == 1
    bad, cut, good = (row["outcome"] for row in rows(result))
    assert "still not a record of ticks" in bad
    assert cut == "only its first 4 of 11 bytes are kept"
    assert good == "replayed"


def test_usage(bus: Bus) -> None:
    assert run("replay").exit_code == 2
    assert run("replay", "0", "--all").exit_code == 2
    assert run("replay", "0", "--part", "x").exit_code == 2


def test_without_a_platform_one_sentence_reports_it(tmp_path: Path) -> None:
    result = run("list", "--data-dir", str(tmp_path))
    assert result.exit_code == 1 and "no platform runs on" in str(result.exception)


def test_without_a_platform_on_this_folder_the_running_ones_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(
        StatusServer("127.0.0.1:0", lambda: Status(part="up", is_ready=True, details={"data_dir": "/elsewhere"}))
    ) as page:
        monkeypatch.setenv("CANDLEWRIGHT_HTTP__BIND", f"127.0.0.1:{page.port}")
        result = run("list", "--data-dir", str(tmp_path))
    assert "add --data-dir /elsewhere" in str(result.exception)


def test_a_foreign_record_in_dead_letters_hides_no_other(bus: Bus) -> None:
    bus.publish(topics.DEAD_LETTERS, [Record(b"\xff", partition=0)])
    bus.put(topics.TABLE_DEAD_LETTERS, {"x": b"\xff"})
    assert [row["number"] for row in rows(run("list", "--output", "json"))] == [0, 1, 2]
    assert [tally.newest.part for tally in dead_letters.tallies(bus)] == ["broker", "spark"]
