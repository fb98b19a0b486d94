"""Live topics over real sockets: a relay over a bus, this server in front of it, readers that come and go."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import websockets

from console import server as console_server
from console.live import sending
from console.routes.live import EVENTS
from console.server import Console
from core import metrics
from core.settings import Settings
from tests.relay.conftest import Start, start_relay  # noqa: F401
from tests.relay.harness import Platform, finish
from tests.relay.test_live import put_bar, put_ticks

BTC, ETH = "BTC/USDT.BINANCE", "ETH/USDT.BINANCE"
TICKS, BARS, OTHER = f"TICKS:{BTC}", f"OHLC:{BTC}:60", f"OHLC:{ETH}:60"


@dataclass
class Server:
    """The console in this loop, on a separate port, which is kept over restarts."""

    settings: Settings
    _console: Console | None = None
    _serving: "asyncio.Task[None] | None" = None

    async def start(self) -> None:
        self._console = Console(self.settings)
        port = self._console.port
        self.settings = self.settings.model_copy(
            update={"console": self.settings.console.model_copy(update={"bind": f"127.0.0.1:{port}"})}
        )
        self._serving = asyncio.create_task(self._console.serve())

    async def stop(self) -> None:
        assert self._console is not None and self._serving is not None
        self._console.stop()
        await self._serving

    @property
    def place(self) -> str:
        return f"{self.settings.console.bind}/api/v1"


@asynccontextmanager
async def serving(platform: Platform, folder: Path, **console: Any) -> AsyncIterator[Server]:
    relay = {
        "requests_bind": platform.relay.requests_address,
        "notifications_bind": platform.relay.notifications_address,
    }
    settings = Settings.model_validate(
        {"data_dir": folder, "relay": relay, "console": {"bind": "127.0.0.1:0", **console}}
    )
    server = Server(settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_a_stopping_server_accepts_no_client_while_its_streams_end(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    async with serving(start_relay(), tmp_path) as server:
        host, _, port = server.settings.console.bind.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        assert server._console is not None
        server._console.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))


async def test_a_server_that_waits_for_its_next_date_stops_at_once(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console_server, "_DATE_SECONDS", 600.0)
    async with asyncio.timeout(60), serving(start_relay(), tmp_path) as server:
        _, writer = await asyncio.open_connection(*server.settings.console.bind.split(":"))
        writer.close()


@dataclass
class Sse:
    """A reader that behaves like a browser's EventSource: fields, and the last id even of a block without data."""

    lines: AsyncIterator[str]
    last_id: str = ""
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def until(self, is_enough: Callable[[list[tuple[str, dict[str, Any]]]], bool]) -> list[dict[str, Any]]:
        block: dict[str, str] = {}
        async with asyncio.timeout(20):
            while not is_enough(self.events):
                line = await anext(self.lines)
                if line:
                    name, _, value = line.partition(": ")
                    block[name] = value
                    continue
                self.last_id = block.get("id", self.last_id)
                if "data" in block:
                    kind, data = block["event"], json.loads(block["data"])
                    EVENTS[kind].model_validate(data)
                    self.events.append((kind, data))
                block = {}
        return [data for _, data in self.events]


@asynccontextmanager
async def reading(server: Server, *topics: str, last_id: str = "", **query: Any) -> AsyncIterator[Sse]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream(
            "GET", f"http://{server.place}/stream", params={"topic": list(topics), **query}, headers=headers
        ) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        sse = Sse(answer.aiter_lines())
        await sse.until(lambda _: bool(sse.last_id)) if not last_id else None
        yield sse


def numbers(found: list[dict[str, Any]], topic: str) -> list[int]:
    return [each["sequence"] for each in found if each["topic"] == topic]


def count(wanted: int) -> Callable[[list[Any]], bool]:
    return lambda events: len(events) >= wanted


async def put(call: Callable[..., None], *arguments: Any, **named: Any) -> None:
    await asyncio.to_thread(call, *arguments, **named)


async def test_every_message_of_several_topics_is_one_event(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    platform = start_relay()
    async with serving(platform, tmp_path) as server, reading(server, TICKS, BARS) as sse:
        await put(put_ticks, platform.bus, BTC, "a", "b")
        await put(put_bar, platform.bus, BTC, 60, close=5.0)
        found = await sse.until(count(2))
        kinds = dict(sse.events)
        assert [tick["sequence"] for tick in kinds["ticks"]["ticks"]] == [1, 2]
        assert kinds["ticks"]["topic"] == TICKS and kinds["ticks"]["sequence"] == 1
        assert (kinds["bar"]["sequence"], kinds["bar"]["close"]) == (1, 5.0)
        assert kinds["bar"]["open_time"].endswith("Z") and len(found) == 2


async def test_a_reader_continues_over_a_server_restart_without_gaps_or_duplicates(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    platform = start_relay()
    async with serving(platform, tmp_path) as server:
        async with reading(server, BARS, OTHER) as sse:
            for close in (1.0, 2.0):
                await put(put_bar, platform.bus, BTC, 60, close=close)
            await put(put_bar, platform.bus, ETH, 60, close=1.0)
            before = await sse.until(count(3))
        await server.stop()
        for close in (3.0, 4.0):
            await put(put_bar, platform.bus, BTC, 60, close=close)
            await put(put_bar, platform.bus, ETH, 60, close=close)
        await server.start()
        async with reading(server, BARS, OTHER, last_id=sse.last_id) as again:
            await again.until(count(4))
            await put(put_bar, platform.bus, BTC, 60, close=5.0)
            after = await again.until(count(5))
        assert numbers(before + after, BARS) == [1, 2, 3, 4, 5]
        assert numbers(before + after, OTHER) == [1, 2, 3]


async def test_the_place_is_known_before_the_first_event(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    platform = start_relay()
    await put(put_bar, platform.bus, BTC, 60, close=1.0)
    async with serving(platform, tmp_path) as server:
        async with reading(server, BARS) as sse:
            assert sse.events == []
        await server.stop()
        await put(put_bar, platform.bus, BTC, 60, close=2.0)
        await server.start()
        async with reading(server, BARS, last_id=sse.last_id) as again:
            assert numbers(await again.until(count(1)), BARS) == [2]


async def test_from_a_number_on_in_the_middle_of_a_batch(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    platform = start_relay()
    await put(put_ticks, platform.bus, BTC, "a", "b", "c")
    async with serving(platform, tmp_path) as server:
        async with reading(server, TICKS, from_sequence=2) as sse:
            (first,) = await sse.until(count(1))
            assert (first["sequence"], [tick["trade_id"] for tick in first["ticks"]]) == (2, ["b", "c"])
        async with reading(server, TICKS, last_id=sse.last_id) as again:
            await put(put_ticks, platform.bus, BTC, "d")
            assert numbers(await again.until(count(1)), TICKS) == [4]


async def test_finals_are_repeated_to_clients_that_missed_them(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    platform = start_relay()
    topics = [f"HISTORY_READY:{name}" for name in ("one", "two")]
    await put(finish, platform.bus, "one")
    async with serving(platform, tmp_path) as server:
        async with reading(server, *topics) as sse:
            assert [each["request_id"] for each in await sse.until(count(1))] == ["one"]
        async with reading(server, *topics) as fresh:
            assert [each["request_id"] for each in await fresh.until(count(1))] == ["one"]
        await server.stop()
        await put(finish, platform.bus, "two")
        await server.start()
        async with reading(server, *topics, last_id=sse.last_id) as again:
            assert [each["request_id"] for each in await again.until(count(1))] == ["two"]


async def test_a_stopping_server_reports_it(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    async with serving(start_relay(), tmp_path) as server:
        async with reading(server, BARS) as sse:
            await server.stop()
            (told,) = await sse.until(count(1))
            assert sse.events[0][0] == "closed" and told["code"] == "stopping"
        await server.start()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "topic"),
        ({"topic": "TICKS:BTC"}, "BTC"),
        ({"topic": "NOTHING:x"}, "topic"),
        ({"topic": [BARS, OTHER], "from_sequence": 1}, "from_sequence"),
        ({"topic": "RESPONSE:x", "from_sequence": 1}, "from_sequence"),
        ({"topic": BARS, "from_sequence": 0}, "from_sequence"),
        ({"topic": BARS, "cursor": "no"}, "cursor"),
    ],
)
async def test_an_invalid_stream_is_a_problem(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    query: dict[str, Any],
    said: str,
) -> None:
    async with serving(start_relay(), tmp_path) as server, httpx.AsyncClient() as client:
        answer = await client.get(f"http://{server.place}/stream", params=query)
        assert answer.status_code == 400 and said in answer.json()["detail"]
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_reader_that_reads_nothing_is_disconnected_and_resumes_later(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "_SEND_SECONDS", 0.3)
    monkeypatch.setattr("console.live.ring.MAX_BYTES", 1 << 16)
    platform = start_relay()
    async with serving(platform, tmp_path) as server:
        host, _, port = server.settings.console.bind.rpartition(":")
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        raw.connect((host, int(port)))
        reader, writer = await asyncio.open_connection(sock=raw, limit=1_024)
        writer.write(f"GET /api/v1/stream?topic={TICKS} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        text = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in text
        cut = b""
        slow = metrics.REGISTRY.get_sample_value("candlewright_console_slow_readers_total") or 0.0
        for number in range(20):
            await put(put_ticks, platform.bus, BTC, *(f"{number}-{each}" * 20 for each in range(1_000)))
        async with asyncio.timeout(60):
            while (metrics.REGISTRY.get_sample_value("candlewright_console_slow_readers_total") or 0.0) == slow:
                await asyncio.sleep(0.05)
            while part := await reader.read(1 << 20):
                cut += part
        writer.close()
        assert cut.count(b'"sequence"') < 20_000
        monkeypatch.setattr(sending, "_SEND_SECONDS", 20.0)
        async with reading(server, TICKS, from_sequence=1) as other:
            found = await other.until(lambda events: bool(events) and events[-1][1]["ticks"][-1]["sequence"] == 20_000)
        assert [tick["sequence"] for each in found for tick in each["ticks"]] == [*range(1, 20_001)]


async def test_a_message_is_encoded_once_for_all_readers_that_wait_for_it(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    platform = start_relay()
    async with (
        serving(platform, tmp_path) as server,
        reading(server, BARS) as first,
        reading(server, BARS) as second,
        reading(server, BARS, OTHER) as third,
    ):
        sending._kept.cache_clear()
        for close in (1.0, 2.0):
            await put(put_bar, platform.bus, BTC, 60, close=close)
        for reader in (first, second, third):
            assert numbers(await reader.until(count(2)), BARS) == [1, 2]
        encoded = sending._kept.cache_info()
    # The first two readers share what they get. The third one has another cursor, for two topics.
    assert (encoded.misses, encoded.hits) == (4, 0)


async def test_streams_are_counted_and_bounded(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    async with serving(start_relay(), tmp_path, max_streams=2) as server, reading(server, BARS):
        async with httpx.AsyncClient() as client:
            refused = await client.get(f"http://{server.place}/stream", params={"topic": BARS})
        assert refused.status_code == 503 and refused.headers["retry-after"]


async def test_a_websocket_has_the_same_events_and_takes_new_topics(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    platform = start_relay()
    async with serving(platform, tmp_path) as server:
        async with websockets.connect(f"ws://{server.place}/ws?topic={BARS}") as ws:
            told = json.loads(await ws.recv())
            assert (told["event"], told["topics"]) == ("subscribed", [BARS])
            await put(put_bar, platform.bus, BTC, 60, close=1.0)
            event = json.loads(await ws.recv())
            assert (event["event"], event["data"]["sequence"], event["data"]["topic"]) == ("bar", 1, BARS)
            await ws.send(json.dumps({"subscribe": [BARS, OTHER]}))
            assert json.loads(await ws.recv())["topics"] == [BARS, OTHER]
            await put(put_bar, platform.bus, ETH, 60, close=2.0)
            last = json.loads(await ws.recv())
            assert last["data"]["topic"] == OTHER
        await put(put_bar, platform.bus, ETH, 60, close=3.0)
        async with websockets.connect(f"ws://{server.place}/ws") as ws:
            await ws.send(json.dumps({"subscribe": [BARS, OTHER], "cursor": last["id"]}))
            assert json.loads(await ws.recv())["event"] == "subscribed"
            assert json.loads(await ws.recv())["data"]["sequence"] == 2
            await ws.send("nonsense")
            assert "subscribe" in json.loads(await ws.recv())["detail"]
            with pytest.raises(websockets.ConnectionClosed):
                await ws.recv()


async def test_bad_frames_of_one_socket_are_answered_and_harm_no_other(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    platform = start_relay()
    frames: tuple[bytes | str, ...] = (
        b"\x00\xff",
        b"",
        "",
        "[" * 5_000,
        "null",
        '{"subscribe": "x"}',
        '{"subscribe": [1]}',
        '{"subscribe": ["NOTHING:x"]}',
        '{"subscribe": ["TICKS:BTC"]}',
        json.dumps({"subscribe": [BARS], "from_sequence": 1 << 63}),
        json.dumps({"subscribe": [BARS], "cursor": "no"}),
        json.dumps({"subscribe": [f"OHLC:{BTC}:{number}" for number in range(1, 1_500)]}),
    )
    async with serving(platform, tmp_path) as server, websockets.connect(f"ws://{server.place}/ws?topic={BARS}") as ws:
        assert json.loads(await ws.recv())["event"] == "subscribed"
        for frame in frames:
            async with websockets.connect(f"ws://{server.place}/ws") as bad:
                await bad.send(frame)
                told = json.loads(await bad.recv())
                assert (told["event"], 400 <= told["status"] < 500) == ("problem", True), (frame, told)
                with pytest.raises(websockets.ConnectionClosed):
                    await bad.recv()
        async with websockets.connect(f"ws://{server.place}/ws") as bad:
            await bad.send("x" * (65 << 10))
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await bad.recv()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
        await put(put_bar, platform.bus, BTC, 60, close=1.0)
        assert json.loads(await ws.recv())["data"]["sequence"] == 1


async def test_a_socket_without_a_topic_is_closed_with_the_reason(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "_IDLE_SECONDS", 0.1)
    async with serving(start_relay(), tmp_path) as server, websockets.connect(f"ws://{server.place}/ws") as ws:
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await ws.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, "no topic" in closed.value.rcvd.reason) == (1008, True)


@pytest.mark.parametrize("number", ["0", "-1", "x", "²", "9" * 19, "9" * 5_000, ""])
async def test_a_bad_number_in_the_address_of_a_websocket_is_answered(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    number: str,
) -> None:
    address = urlencode({"topic": BARS, "from_sequence": number})
    async with (
        serving(start_relay(), tmp_path) as server,
        websockets.connect(f"ws://{server.place}/ws?{address}") as ws,
    ):
        told = json.loads(await ws.recv())
        assert (told["event"], told["status"]) == ("problem", 400)
        assert "from_sequence" in told["detail"]


async def test_a_page_of_another_site_gets_no_websocket(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    async with serving(start_relay(), tmp_path) as server:
        with pytest.raises(websockets.InvalidStatus, match="403"):
            await websockets.connect(f"ws://{server.place}/ws", origin=websockets.Origin("http://evil.example"))


async def test_two_consoles_at_the_same_time_serve_everything(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    platform = start_relay()
    async with (
        serving(platform, tmp_path / "one") as one,
        serving(platform, tmp_path / "two") as two,
        reading(one, BARS) as first,
        reading(two, BARS) as second,
        httpx.AsyncClient(timeout=20) as client,
    ):
        for number in range(1, 21):
            await put(put_bar, platform.bus, BTC, 60, close=float(number))
        answers = await asyncio.gather(
            *(client.get(f"http://{server.place}/triggers") for server in (one, two) for _ in range(20))
        )
        assert [answer.status_code for answer in answers] == [200] * 40
        for sse in (first, second):
            assert numbers(await sse.until(count(20)), BARS) == [*range(1, 21)]
