"""Ticks through the Kafka-Pixy gateway to bars, tables and triggers; and the gateway killed between two calls."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import candlewright as cw
from candlewright.wire.candlewright_pb2 import BUY, OHLCV, Tick, TickBatch
from iceberg.read import read_ohlc, read_ticks
from protobuf import generate
from tests.system.conftest import SECOND, System
from tests.system.test_live import PATIENCE_SECONDS, part, until

pytestmark = pytest.mark.timeout(600)

MINUTE = 60 * SECOND
CLIENT = Path(__file__).parent / "kafka_pixy_client.py"


class Caller:
    """The client process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, method: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}
        self._process.stdin.write(json.dumps([method, given]) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def produce(self, topic: str, message: bytes, **fields: Any) -> dict[str, Any]:
        return self("Produce", topic=topic, message=message, **fields)

    def consume(self, topic: str, group: str, **fields: Any) -> dict[str, Any]:
        """Consume a message, over as many long polls as it takes."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while "error" in (found := self("ConsumeNAck", topic=topic, group=group, **fields)):
            assert found["error"] == ["NOT_FOUND", "long polling timeout"]
            assert time.monotonic() < give_up, f"no message of {topic} within {PATIENCE_SECONDS:g} s"
        return found


@pytest.fixture
def pixy(system: System, tmp_path: Path) -> Iterator[Caller]:
    status = part(system, "gateways")["status"]
    assert isinstance(status, dict)
    address = status["kafka_pixy"]["address"]
    command = [sys.executable, str(CLIENT), str(generate.ROOT / "protobuf" / "kafkapixy.proto"), str(tmp_path), address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Caller(process)
        assert process.stdin is not None
        process.stdin.close()


def tick(ticker: str, number: int, timestamp: int, *, price: float) -> bytes:
    return Tick(
        ticker=ticker, trade_id=str(number), timestamp=timestamp, price=price, size=2.0, side=BUY
    ).SerializeToString()


#: Of an unknown venue, and of one whose exchange does not have the pair.
@pytest.mark.parametrize("ticker", ["GATE/USDT.NOWHERE", "GATE/USDT.BINANCE"])
def test_ticks_of_a_gateway_become_bars_rows_and_events(
    system: System, client: cw.Client, pixy: Caller, ticker: str
) -> None:
    # The group begins here; other tests' bars may be on this topic as well.
    pixy("ConsumeNAck", topic="ohlc", group="own", auto_ack=True)
    trigger = client.triggers.add("price > 104", tickers=[ticker], trigger_id=f"gate-{ticker[-3:]}")
    start = time.time_ns() // MINUTE * MINUTE - 5 * MINUTE
    # One tick each twenty seconds, single ones and then a batch; the last one closes the third minute.
    times = [start + number * 20 * SECOND for number in range(10)]
    places = {
        (answer["partition"], answer["offset"])
        for number, at in enumerate(times[:6])
        if (answer := pixy.produce("ticks", tick(ticker, number + 1, at, price=100.0 + number), key_value=b"other"))
    }
    assert len(places) == 6
    assert len({partition for partition, _ in places}) == 1
    batch = TickBatch(
        ticker=ticker, timestamp=times[6:], price=[106.0, 107.0, 108.0, 109.0], size=[2.0] * 4, side=[BUY] * 4,
        trade_id=[str(number) for number in range(7, 11)], received_at=[0] * 4,
    )  # fmt: skip
    assert pixy.produce("ticks", batch.SerializeToString())["partition"] in {partition for partition, _ in places}
    refused = pixy.produce("ticks", b"no tick")
    assert refused["error"][0] == "INVALID_ARGUMENT"

    bars: list[OHLCV] = []
    while len(bars) < 3:
        bar = OHLCV.FromString(bytes.fromhex(pixy.consume("ohlc", "own", auto_ack=True)["message"]))
        bars += [bar] if bar.ticker == ticker and bar.period_seconds == 60 else []
    assert [(bar.open_time, bar.open, bar.high, bar.low, bar.close, bar.volume, bar.trade_count) for bar in bars] == [
        (start + minute * MINUTE, first, first + 2, first, first + 2, 6.0, 3)
        for minute, first in enumerate((100.0, 103.0, 106.0))
    ]

    found = [trigger.events().next(timeout=PATIENCE_SECONDS) for _ in range(5)]
    assert [event.row["price"] for event in found] == [105.0, 106.0, 107.0, 108.0, 109.0]
    trigger.remove()

    def rows() -> list[float]:
        table = read_ohlc(system.platform.settings, ticker, 60, start_ns=start, end_ns=start + 3 * MINUTE)
        closes: list[float] = table.column("close").to_pylist()
        return closes

    until(lambda: rows() == [102.0, 105.0, 108.0], "the bars in the table")

    def ids() -> list[str]:
        table = read_ticks(system.platform.settings, ticker, start_ns=start, end_ns=start + 4 * MINUTE)
        # The times at which they were received are unknown.
        assert table.column("received_at").null_count == table.num_rows
        found: list[str] = table.column("trade_id").to_pylist()
        return sorted(found, key=int)

    until(lambda: ids() == [str(number) for number in range(1, 11)], "the ticks in the table")


def test_a_killed_gateway_loses_and_invents_nothing(system: System, pixy: Caller) -> None:
    assert pixy("ConsumeNAck", topic="orders", group="own", no_ack=True)["error"][0] == "NOT_FOUND"
    for number in range(6):
        assert pixy.produce("orders", b"%d" % number, key_value=b"bar") == {"partition": 2, "offset": number}
    answers = [pixy("ConsumeNAck", topic="orders", group="own", no_ack=True) for _ in range(3)]
    assert [answer["offset"] for answer in answers] == [0, 1, 2]
    assert pixy("Ack", topic="orders", group="own", partition=2, offset=1) == {}
    pid = part(system, "gateways")["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    until(lambda: part(system, "gateways")["pid"] not in (pid, None), "another gateway")
    began = time.monotonic()
    again = [pixy.consume("orders", "own", auto_ack=True) for _ in range(5)]
    assert [answer["offset"] for answer in again] == [0, 2, 3, 4, 5]
    assert time.monotonic() - began < 60
    assert pixy.produce("orders", b"6", key_value=b"bar") == {"partition": 2, "offset": 6}
