"""Ticks of a foreign Numaflow source to bars and tables; the bars to a client that reads the platform as a source."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from candlewright.wire.candlewright_pb2 import OHLCV
from iceberg.read import read_ohlc, read_ticks
from protobuf import source_superset_pb2 as source
from tests.gateways.numaflow.peer import Peer
from tests.gateways.numaflow_sources.source_server import SourceServer, result
from tests.system.conftest import SECOND, System
from tests.system.test_live import PATIENCE_SECONDS, part, until

pytestmark = pytest.mark.timeout(300)

MINUTE = 60 * SECOND
TICKER = "FLOW/USDT.NOWHERE"


def tick(number: int, at: int) -> source.ReadResponse.Result:
    fields = {"s": "NOWHERE:FLOW/USDT", "p": 100.0 + number, "q": "2", "t": at, "n": number + 1}
    return result(b"%d" % number, json.dumps(fields).encode())


def test_ticks_of_a_foreign_source_become_bars_that_a_numaflow_client_reads(system: System) -> None:
    start = time.time_ns() // MINUTE * MINUTE - 5 * MINUTE
    status = part(system, "gateways")["status"]
    assert isinstance(status, dict)
    other = SourceServer(Path(status["numaflow_sources"]["sources"]["foreign"]["socket"]).parent)
    # One tick each twenty seconds, and one that is none; the last one closes the third minute.
    other.add([tick(number, start + number * 20 * SECOND) for number in range(10)])
    other.add([result(b"junk", b"junk")])

    async def bars() -> list[OHLCV]:
        peer = Peer(Path(status["numaflow"]["socket"]))
        found: list[OHLCV] = []
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(found) < 3:
                    batch = await peer.read(100, timeout_ms=1_000)
                    await peer.ack(*(each.offset for each in batch))
                    # Other tests' bars are on this topic as well.
                    found += [
                        OHLCV.FromString(each.payload)
                        for each in batch
                        if each.headers["ticker"] == TICKER and each.headers["period"] == "60"
                    ]
            return found
        finally:
            await peer.close()

    async def scenario() -> list[OHLCV]:
        await other.start()
        try:
            found = await bars()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(other.acknowledged) < 11:
                    await asyncio.sleep(0.05)
            return found
        finally:
            await other.stop()

    found = asyncio.run(scenario())
    assert [(bar.open_time, bar.open, bar.high, bar.low, bar.close, bar.volume, bar.trade_count) for bar in found] == [
        (start + minute * MINUTE, first, first + 2, first, first + 2, 6.0, 3)
        for minute, first in enumerate((100.0, 103.0, 106.0))
    ]

    def stored() -> tuple[list[float], list[str]]:
        settings = system.platform.settings
        rows = read_ohlc(settings, TICKER, 60, start_ns=start, end_ns=start + 3 * MINUTE)
        ticks = read_ticks(settings, TICKER, start_ns=start, end_ns=start + 4 * MINUTE)
        return rows.column("close").to_pylist(), sorted(ticks.column("trade_id").to_pylist(), key=int)

    until(
        lambda: stored() == ([102.0, 105.0, 108.0], [str(number) for number in range(1, 11)]), "bars and ticks stored"
    )
