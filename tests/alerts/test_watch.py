"""Problems of the platform itself, each reported once."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alerts.pages import Pages
from alerts.watch import Snapshot, Watch
from core.http import SUPERVISOR_PORT_FILE, Status, StatusServer
from tests.alerts.receiver import Receiver

READY = {"ready": True, "problems": []}
DOWN = {"ready": False, "problems": ["no answer"]}
GIB = 1 << 30


def at(seconds: float, free: int = 100 * GIB, **pages: Mapping[str, Any]) -> Snapshot:
    return Snapshot({name.replace("_", "-"): page for name, page in pages.items()}, free, 200 * GIB, seconds)


def test_a_part_that_stays_down_is_reported_once_until_it_is_back() -> None:
    seen = Watch()
    assert seen.look(at(0, relay=READY, broker=READY)) == []
    assert seen.is_well
    assert seen.look(at(5, relay=READY, broker=DOWN)) == []
    assert not seen.is_well
    (alert,) = seen.look(at(36, relay=READY, broker=DOWN))
    assert (alert.kind, alert.alert_id) == ("part_down", "part_down:broker:5")
    assert alert.text == "broker has not been ready for 31 s: no answer"
    assert seen.look(at(41, relay=READY, broker=DOWN)) == []
    (over,) = seen.look(at(46, relay=READY, broker=READY))
    assert (over.kind, over.resolves, over.title) == ("part_down", alert.alert_id, "resolved: broker is down")
    assert over.text == "broker is ready again"
    assert seen.is_well
    failing = {"ready": False, "problems": ["the bus does not answer"]}
    seen.look(at(50, relay=failing, broker={"ready": False, "standby": True}))
    (alert,) = seen.look(at(80, relay=failing, broker={"ready": False, "standby": True}))
    assert alert.text == "relay has not been ready for 30 s: the bus does not answer"


def test_a_ticker_is_stale_after_more_than_its_usual_pause() -> None:
    seen = Watch()

    def look(seconds: float, **ages: float) -> list[str]:
        page = {**READY, "status": {"last_frame_seconds_ago": {f"{name}/X.Y": age for name, age in ages.items()}}}
        return [alert.resolves or alert.ticker for alert in seen.look(at(seconds, ingestor_1=page))]

    for second in range(0, 600, 50):
        # One trades every second, the other pauses for 40 s.
        assert look(second, BUSY=1.0, CALM=second % 100 * 0.8) == []
    assert look(700, BUSY=61.0, CALM=61.0) == ["BUSY/X.Y"]
    assert look(705, BUSY=66.0, CALM=66.0) == []
    assert look(800, BUSY=1.0, CALM=121.0) == ["stale:BUSY/X.Y:639", "CALM/X.Y"]
    assert look(900, CALM=1.0) == ["stale:CALM/X.Y:679"]
    assert look(1_000, BUSY=5.0) == []


def test_a_ticker_without_bars_is_reported_once_until_it_has_one() -> None:
    seen = Watch()

    def look(seconds: float, *tickers: str, age: float = 160.0) -> list[str]:
        status = {"newest_bar_seconds_ago": dict.fromkeys(tickers, age), "tickers_without_bars": list(tickers)}
        return [alert.text for alert in seen.look(at(seconds, driver={**READY, "status": status}))]

    assert look(0) == []
    assert look(160, "BTC/X.Y") == ["BTC/X.Y has had no bar for 160 s although its trades arrive"]
    assert look(165, "BTC/X.Y", "ETH/X.Y") == ["ETH/X.Y has had no bar for 160 s although its trades arrive"]
    assert look(170, "ETH/X.Y") == ["BTC/X.Y has bars again, or is not followed now"]
    assert len(look(900, "BTC/X.Y", "ETH/X.Y")) == 1


def test_a_low_disk_is_reported_once_until_there_is_room() -> None:
    seen = Watch()
    assert seen.look(at(0, free=5 * GIB)) == []
    (alert,) = seen.look(at(1, free=GIB))
    assert (alert.kind, alert.title) == ("disk_low", "only 1.0 GiB are free")
    assert seen.look(at(2, free=GIB)) == []
    assert seen.look(at(3, free=5 * GIB)) == []
    assert seen.look(at(4, free=GIB)) == []
    assert [alert.text for alert in seen.look(at(5, free=50 * GIB))] == ["50.0 GiB are free again"]
    assert len(seen.look(at(6, free=GIB))) == 1


async def test_pages_are_read_from_the_parts_and_a_heartbeat_is_sent(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    pages, receiver = Pages(tmp_path), Receiver()
    assert (await pages.look()).parts == {}
    server = StatusServer(
        "127.0.0.1:0",
        lambda: Status(part="supervisor", is_ready=True, details={"parts": {"relay": READY}}),
        lambda: b"",
        port_file=tmp_path / "run" / SUPERVISOR_PORT_FILE,
    )
    try:
        seen = await pages.look()
        assert seen.parts == {"relay": READY}
        assert seen.free_bytes > 0
        async with receiver.serve():
            await pages.beat(receiver.url)
        await pages.beat(receiver.url)  # Nothing listens: only logged.
    finally:
        await pages.close()
        await asyncio.to_thread(server.close)
    assert [path for path, _, _ in receiver.requests] == ["/hook"]
