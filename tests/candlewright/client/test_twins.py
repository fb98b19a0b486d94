"""Both twins on real sockets, against a relay of a few lines."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
import zmq

import candlewright as cw
from candlewright.client.history import History
from candlewright.client.operations import Range
from candlewright.client.records import Notification
from core.settings import Settings
from protobuf import candlewright_pb2 as pb
from protobuf import frames
from protobuf import ingestor_pb2 as ing

DAY = {"start": "2024-01-01", "end": "2024-01-02"}


@dataclass
class Relay:
    """Answers submissions with QUEUED and, at once, the final; drops the first `deaf` messages."""

    deaf: int = 0
    publishes: bool = True
    seen: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._publisher = self._context.socket(zmq.XPUB)
        for socket in (self._router, self._publisher):
            socket.setsockopt(zmq.LINGER, 0)
        self.requests = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self.notifications = f"tcp://127.0.0.1:{self._publisher.bind_to_random_port('tcp://127.0.0.1')}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not self._router.poll(20):
                continue
            peer, *parts = self._router.recv_multipart()
            message = frames.decode(parts)
            self.seen.append(message)
            if self.deaf > 0:
                self.deaf -= 1
            elif isinstance(message, ing.SubmitHistoricalRequest):
                topic = f"RESPONSE:{message.client_id}"
                answer = ing.SubmitResponse(request_id=message.request_id, notification_topic=topic)
                self._router.send_multipart([peer, *frames.encode(answer)])
                if self.publishes:
                    self._publisher.send_multipart([topic.encode(), *frames.encode(_final(message.request_id))])
            elif isinstance(message, pb.RequestStateQuery):
                state = pb.RequestState(
                    request_id=message.request_id, state="done", notification=_final(message.request_id)
                )
                self._router.send_multipart([peer, *frames.encode(state)])


def _final(request_id: str) -> ing.HistoryReadyNotification:
    return ing.HistoryReadyNotification(request_id=request_id, row_count=1, ticker="BTC/USDT.BINANCE")


class OneRow:
    """Tables with one row, which names the request that it is read for."""

    def history(self, wanted: Range, final: Notification) -> History:
        return History(table=pa.table({"request_id": [final.request_id]}), notification=final, holes=())


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay()
    yield relay
    relay.close()


def _arguments(relay: Relay) -> dict[str, object]:
    return {
        "requests": relay.requests,
        "notifications": relay.notifications,
        "settings": Settings(),
        "rows": OneRow(),
    }


def test_history_returns_rows(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        got = c.history("BTC/USDT.BINANCE", **DAY, request_id="mine")  # type: ignore[arg-type]
    assert got.to_arrow().to_pylist() == [{"request_id": "mine"}]
    assert got.row_count == len(got) == 1
    assert list(got.to_pandas().request_id) == ["mine"]


def test_a_lost_notification_costs_only_time(relay: Relay) -> None:
    relay.publishes = False
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        assert c.history("BTC/USDT.BINANCE", **DAY).row_count == 1  # type: ignore[arg-type]


def test_a_lost_request_is_sent_again(relay: Relay) -> None:
    relay.deaf = 1
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        c.submit("BTC/USDT.BINANCE", **DAY, request_id="again")  # type: ignore[arg-type]
    assert [getattr(message, "request_id", "") for message in relay.seen] == ["again", "again"]


def test_threads_share_one_client(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c, ThreadPoolExecutor(8) as pool:  # type: ignore[arg-type]
        wanted = [f"r{number}" for number in range(40)]
        got = pool.map(lambda name: c.history("BTC/USDT.BINANCE", **DAY, request_id=name), wanted)  # type: ignore[arg-type]
        assert [each.to_arrow()["request_id"][0].as_py() for each in got] == wanted


async def test_many_coroutines_share_one_client(relay: Relay) -> None:
    async with cw.aconnect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        wanted = [f"r{number}" for number in range(40)]
        got = await asyncio.gather(
            *(c.history("BTC/USDT.BINANCE", **DAY, request_id=name) for name in wanted)  # type: ignore[arg-type]
        )
    assert [each.notification.request_id for each in got] == wanted


async def test_the_async_twin_resends_and_polls(relay: Relay) -> None:
    relay.deaf, relay.publishes = 1, False
    async with cw.aconnect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        assert (await c.history("BTC/USDT.BINANCE", **DAY)).row_count == 1  # type: ignore[arg-type]


async def test_a_cancelled_coroutine_leaves_the_client_usable(relay: Relay) -> None:
    relay.deaf = 1
    async with cw.aconnect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(c.history("BTC/USDT.BINANCE", **DAY), 0.05)  # type: ignore[arg-type]
        assert (await c.history("BTC/USDT.BINANCE", **DAY)).row_count == 1  # type: ignore[arg-type]


def test_nobody_there_is_said_within_the_timeout() -> None:
    with (
        cw.connect("tcp://127.0.0.1:1", "tcp://127.0.0.1:1", timeout=0.3, settings=Settings()) as c,
        pytest.raises(cw.PlatformUnreachable, match=r"127\.0\.0\.1:1 "),
    ):
        c.venues()


def test_bad_arguments_are_refused_before_anything_is_sent(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        with pytest.raises(cw.InvalidRequest, match="period"):
            c.history("BTC/USDT.BINANCE", "1x", **DAY)  # type: ignore[arg-type]
        with pytest.raises(cw.InvalidRequest, match="time"):
            c.submit("BTC/USDT.BINANCE", start="soon", end="2024-01-02")
    assert relay.seen == []


def test_polars_is_optional() -> None:
    candles = cw.Candles(pa.table({"close": [1.0]}))
    try:
        import polars  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        with pytest.raises(Exception, match="pip install polars"):
            candles.to_polars()
    else:
        assert candles.to_polars()["close"].to_list() == [1.0]
