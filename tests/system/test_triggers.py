"""Triggers through every process: client and command line, relay, Spark, tables; also when the relay is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import candlewright as cw
from iceberg import TRIGGER_EVENTS, load_table, open_catalog
from tests.system.conftest import System
from tests.system.test_live import PATIENCE_SECONDS, SPEED, part, until

pytestmark = pytest.mark.timeout(600)

TICKER = "BTC/USDT.BINANCE"
V_SHAPE = """
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts
  MEASURES S.price AS top, LAST(D.price) AS bottom, LAST(U.price) AS back, LAST(U.ts) AS at
  PATTERN (S D+ U+)
  DEFINE D AS price < PREV(price), U AS price > PREV(price)
) AS v"""


@pytest.fixture(autouse=True)
def fast(system: System) -> Iterator[None]:
    system.exchange.call(lambda sandbox: sandbox.clock.set(speed=SPEED))
    yield
    system.exchange.call(lambda sandbox: sandbox.clock.set(speed=1.0))


def command(system: System, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`candlewright trigger …` as a user of this platform runs it."""
    relay = system.platform.settings.relay
    environment = {
        **os.environ,
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": relay.requests_bind,
        "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": relay.notifications_bind,
    }
    return subprocess.run(
        [sys.executable, "-m", "candlewright", "trigger", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def stored(system: System, trigger_id: str) -> list[dict[str, object]]:
    """Rows of `lake.market.trigger_events`."""
    table = load_table(open_catalog(system.platform.settings), TRIGGER_EVENTS)
    found: list[dict[str, object]] = table.scan(row_filter=f"trigger_id = '{trigger_id}'").to_arrow().to_pylist()
    return found


def stored_ids(system: System, trigger_id: str) -> list[object]:
    return [row["event_id"] for row in stored(system, trigger_id)]


def test_a_trigger_fires_and_every_reader_sees_its_event_once(system: System, client: cw.Client) -> None:
    with client.triggers.add(V_SHAPE, tickers=[TICKER], trigger_id="v-shape") as trigger:
        assert trigger.is_new
        events = [trigger.events().next(timeout=PATIENCE_SECONDS) for _ in range(3)]
    first = events[0]
    assert [(each.sequence, each.match_number) for each in events] == [(1, 1), (2, 2), (3, 3)]
    assert len({each.event_id for each in events}) == 3
    assert (first.trigger_id, first.ticker, first.row["ticker"]) == ("v-shape", TICKER, TICKER)
    top, bottom, back = (first.row[name] for name in ("top", "bottom", "back"))
    assert isinstance(top, float)
    assert isinstance(bottom, float)
    assert isinstance(back, float)
    assert bottom < min(top, back)
    assert first.row["at"] == first.time

    (info,) = client.triggers.list()
    assert (info.trigger_id, info.sql, info.tickers, info.state) == ("v-shape", V_SHAPE, (TICKER,), "active")
    until(lambda: trigger.info().events >= 3, "the number of events in the list")

    done = command(system, "events", "v-shape", "--count", "1", "--output", "json")
    assert (done.returncode, done.stderr) == (0, "")
    row = json.loads(done.stdout)
    assert (row["event_id"], row["time"], row["rows"]) == (first.event_id, first.time, list(first.rows))

    until(lambda: {each.event_id for each in events} <= set(stored_ids(system, "v-shape")), "events in the table")
    ids = stored_ids(system, "v-shape")
    assert [ids.count(each.event_id) for each in events] == [1, 1, 1]
    (kept,) = [each for each in stored(system, "v-shape") if each["event_id"] == first.event_id]
    assert (kept["ticker"], json.loads(str(kept["columns"]))["bottom"]) == (TICKER, bottom)

    again = client.triggers.add(V_SHAPE, tickers=[TICKER], trigger_id="v-shape")
    assert not again.is_new
    replaced = client.triggers.add(V_SHAPE.replace("U+)", "U)"), tickers=[TICKER], trigger_id="v-shape")
    assert replaced.is_new
    fresh = replaced.events().next(timeout=PATIENCE_SECONDS)
    while fresh.match_number != 1:
        # Events of the old text while it was being replaced.
        fresh = replaced.events().next(timeout=PATIENCE_SECONDS)
    assert fresh.event_id not in {each.event_id for each in events}

    assert command(system, "remove", "v-shape").stdout == "REMOVED v-shape\n"
    assert client.triggers.list() == []
    with pytest.raises(cw.TriggerNotFound):
        client.triggers.remove("v-shape")


def functions(system: System) -> list[int]:
    """The processes of the function `sums`, of this platform."""
    command = f"udf/function.py\0\0{system.platform.data_dir}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if command in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def function_counts(system: System) -> dict[str, int]:
    status = part(system, "flink_replacement_spark")["status"]
    assert isinstance(status, dict)
    found: dict[str, int] = status["triggers"]["functions"]
    return found


def test_rows_go_through_a_triggers_function_which_continues_after_a_kill(system: System, client: cw.Client) -> None:
    sql = "SELECT ticker, 1 AS x FROM ticks"
    for parameters, told in (
        ({"udf": "missing"}, "no function 'missing'"),
        ({"udf": "sums", "udf.times": "1.0"}, "DOUBLE, expected INT"),
    ):
        with pytest.raises(cw.PlatformRefused, match=told):
            client.triggers.add(sql, tickers=[TICKER], parameters=parameters)
    named = {"udf": "sums", "udf.times": "1"}
    with client.triggers.add(sql, tickers=[TICKER], parameters=named, trigger_id="sums") as trigger:
        stream = trigger.events()
        sums = [stream.next(timeout=PATIENCE_SECONDS).row["sum"] for _ in range(3)]
        (process,) = functions(system)
        os.kill(process, signal.SIGKILL)
        until(lambda: functions(system) not in ([], [process]), "a new process of the function")
        sums += [stream.next(timeout=PATIENCE_SECONDS).row["sum"] for _ in range(3)]
    # Each trade is counted once, although the function that knew of the first ones is gone.
    assert sums == list(range(1, 7))
    until(lambda: function_counts(system).get("restarts") == 1, "the restart in the status")
    client.triggers.remove("sums")
    until(lambda: functions(system) == [], "the end of the function")


async def test_the_async_twin_registers_and_gets_events(system: System) -> None:
    async with system.aconnect() as c:
        trigger = await c.triggers.add("price > :least", tickers=[TICKER], parameters={"least": 0})
        async for event in trigger.events(timeout=PATIENCE_SECONDS):
            assert event.row["price"] > 0  # type: ignore[operator]
            assert event.sequence == 1
            break
        await trigger.close()
        await trigger.remove()
        assert await c.triggers.list() == []


def test_a_chain_over_a_view_sees_each_event_of_the_trigger_that_it_names(system: System, client: cw.Client) -> None:
    client.views.add("falls", "SELECT event_id, ticker, fired_at FROM trigger_events WHERE trigger_id = 'chain-source'")
    with (
        client.triggers.add("SELECT * FROM falls", trigger_id="chain") as chain,
        client.triggers.add(V_SHAPE, tickers=[TICKER], trigger_id="chain-source") as source,
    ):
        wanted = [source.events().next(timeout=PATIENCE_SECONDS) for _ in range(3)]
        found = [chain.events().next(timeout=PATIENCE_SECONDS) for _ in range(3)]
        assert [each.row["event_id"] for each in found] == [each.event_id for each in wanted]
        assert [each.sequence for each in found] == [1, 2, 3]
        assert [each.time for each in found] == [each.time for each in wanted]
        assert {each.ticker for each in found} == {TICKER}
        source.remove()
        chain.remove()
    client.views.remove("falls")


def test_a_refused_text_is_reported_with_its_position(system: System, client: cw.Client) -> None:
    done = command(system, "add", "--sql", "SELECT price FROM ticks\nWHERE pric > 1", "--ticker", TICKER)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("INVALID_SQL 2:7: ")
    assert "price" in line
    with pytest.raises(cw.InvalidTrigger) as caught:
        client.triggers.add("SELECT price FROM ticks\nWHERE pric > 1")
    assert (caught.value.line, caught.value.column) == (2, 7)
    assert caught.value.excerpt.splitlines() == ["WHERE pric > 1", "      ^"]
    assert caught.value.one_line == line
    assert client.triggers.list() == []


def test_a_killed_relay_neither_loses_nor_repeats_an_event(system: System, client: cw.Client) -> None:
    # A bar of five seconds closes four times a second here: some do while there is no relay.
    with client.triggers.add("close > 0", tickers=[TICKER], parameters={"period_seconds": 5}) as trigger:
        killed = part(system, "relay")["pid"]
        assert isinstance(killed, int)
        os.kill(killed, signal.SIGKILL)
        until(lambda: part(system, "relay")["pid"] not in (killed, None), "a new relay")
        events = [trigger.events().next(timeout=PATIENCE_SECONDS) for _ in range(20)]
        assert [each.sequence for each in events] == list(range(1, 21))
        assert len({each.event_id for each in events}) == 20
        times = [each.time for each in events]
        assert times == sorted(set(times))
        assert trigger.info().state == "active"
        trigger.remove()
    wanted = [each.event_id for each in events]
    until(lambda: set(wanted) <= set(stored_ids(system, trigger.id)), "events in the table")
    ids = stored_ids(system, trigger.id)
    assert [ids.count(each) for each in wanted] == [1] * 20
