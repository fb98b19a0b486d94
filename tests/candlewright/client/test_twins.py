"""Both twins on real sockets, against a small relay."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
import zmq

import candlewright as cw
from candlewright.client.history.history import History
from candlewright.client.records import Notification, Range
from candlewright.wire import candlewright_pb2 as pb
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from core.settings import Settings

TICKER, TOPIC = "BTC/USDT.BINANCE", "OHLC:BTC/USDT.BINANCE:60"
DAY = {"start": "2024-01-01", "end": "2024-01-02"}


@dataclass
class Relay:
    """Answers submissions with QUEUED and immediately the final; drops the first `deaf` messages."""

    deaf: int = 0
    publishes: bool = True
    bars: list[pb.OHLCV] = field(default_factory=list)
    seen: list[object] = field(default_factory=list)
    finals: dict[str, ing.HistoryReadyNotification] = field(default_factory=dict)

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
            self._look_at_subscriptions()
            if not self._router.poll(20):
                continue
            peer, *parts = self._router.recv_multipart()
            message = frames.decode(parts)
            self.seen.append(message)
            if self.deaf > 0:
                self.deaf -= 1
            else:
                self._answer(peer, message)

    def _look_at_subscriptions(self) -> None:
        """The messages due to a new subscription; tests read the others with `wait_for_subscription`."""

    def _answer(self, peer: bytes, message: object) -> None:
        if isinstance(message, ing.SubmitHistoricalRequest):
            topic = f"RESPONSE:{message.client_id}"
            answer = ing.SubmitResponse(request_id=message.request_id, notification_topic=topic)
            self._router.send_multipart([peer, *frames.encode(answer)])
            final = self.finals[message.request_id] = self._final_of(message)
            if self.publishes:
                self._publisher.send_multipart([topic.encode(), *frames.encode(final)])
        elif isinstance(message, pb.RequestStateQuery):
            final = self.finals.get(message.request_id) or _final(message.request_id)
            state = pb.RequestState(request_id=message.request_id, state="done", notification=final)
            self._router.send_multipart([peer, *frames.encode(state)])
        elif isinstance(message, pb.TopicReplay):
            last = min(message.to_sequence, len(self.bars))
            for sequence in range(message.from_sequence, last + 1):
                body = frames.encode_body(self.bars[sequence - 1])
                record = pb.TopicRecord(topic=message.topic, sequence=sequence, body=body, is_final=sequence == last)
                self._router.send_multipart([peer, *frames.encode(record)])
        elif isinstance(message, pb.VenueQuery):
            self._router.send_multipart([peer, *frames.encode(pb.VenueList(request_id=message.request_id))])
        elif isinstance(message, ing.DataRequest):
            answer = ing.SubmitResponse(request_id=message.request_id)
            self._router.send_multipart([peer, *frames.encode(answer)])

    def _final_of(self, request: ing.SubmitHistoricalRequest) -> ing.HistoryReadyNotification:
        return _final(request.request_id)

    def add_bars(self, *sequences: int, unseen: Sequence[int] = ()) -> None:
        """Bars of one topic; from another thread than the socket's, so only while the requests are quiet."""
        for sequence in sequences:
            self.bars.append(pb.OHLCV(ticker=TICKER, period_seconds=60, open_time=sequence, sequence=sequence))
            if sequence not in unseen:
                self._publisher.send_multipart([TOPIC.encode(), *frames.encode(self.bars[-1])])

    def wait_for_subscription(self, topic: str, *, is_there: bool = True) -> None:
        wanted = bytes((is_there,)) + topic.encode()
        while self._publisher.recv() != wanted:
            pass


def _final(request_id: str) -> ing.HistoryReadyNotification:
    return ing.HistoryReadyNotification(request_id=request_id, row_count=1, ticker="BTC/USDT.BINANCE")


class OneRow:
    """Tables with one row, which names the request for which it is read."""

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


def test_an_unreachable_platform_is_reported_within_the_timeout() -> None:
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


def test_clients_streams_and_candles_have_a_repr_of_one_line() -> None:
    arguments = {"requests": "tcp://127.0.0.1:1", "notifications": "tcp://127.0.0.1:2", "client_id": "me"}
    with cw.connect(**arguments, settings=Settings()) as c:  # type: ignore[arg-type]
        assert repr(c) == "<Client me of tcp://127.0.0.1:1>"
        bars = c.bars("BTC/USDT.BINANCE", "1m")
        assert repr(bars) == "<Stream OHLC:BTC/USDT.BINANCE:60>"
        bars.close()
        assert repr(bars) == "<Stream OHLC:BTC/USDT.BINANCE:60 closed>"
    assert repr(cw.aconnect(**arguments, settings=Settings())) == "<AsyncClient me of tcp://127.0.0.1:1>"  # type: ignore[arg-type]
    assert repr(cw.Candles(pa.table({"close": [1.0]}))) == "<Candles rows=1>"


def test_candles_convert_to_pandas_and_polars() -> None:
    candles = cw.Candles(pa.table({"close": [1.0]}))
    assert candles.to_polars()["close"].to_list() == candles.to_pandas()["close"].to_list() == [1.0]


def test_a_closed_client_reports_it(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        pass
    with pytest.raises(ValueError, match="client is closed"):
        c.venues()
    with pytest.raises(ValueError, match="client is closed"):
        c.bars(TICKER)


def test_a_call_that_waits_ends_when_another_thread_closes_the_client(relay: Relay) -> None:
    relay.deaf = 1_000
    with cw.connect(**_arguments(relay)) as c, ThreadPoolExecutor(1) as pool:  # type: ignore[arg-type]
        waiting = pool.submit(c.venues)
        while not relay.seen:
            threading.Event().wait(0.01)
        c.close()
        with pytest.raises(ValueError, match="client is closed"):
            waiting.result(timeout=10)


async def _closed(relay: Relay) -> None:
    relay.deaf = 1_000
    c = await cw.aconnect(**_arguments(relay))  # type: ignore[arg-type]
    waiting = asyncio.create_task(c.venues())
    await asyncio.sleep(0)
    await c.close()
    with pytest.raises(ValueError, match="client is closed"):
        await asyncio.wait_for(waiting, 10)
    with pytest.raises(ValueError, match="client is closed"):
        await c.venues()
    with pytest.raises(ValueError, match="client is closed"):
        await c.bars(TICKER).next()


def test_the_asyncio_client_reports_it_too(relay: Relay) -> None:
    asyncio.run(_closed(relay))


def test_bars_come_in_order_across_a_gap(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c, c.bars(TICKER, "1m") as bars:  # type: ignore[arg-type]
        relay.wait_for_subscription(TOPIC)
        relay.add_bars(1, 2, 3, 4, 5, unseen=(3, 4))
        assert [bars.next(timeout=10).sequence for _ in range(5)] == [1, 2, 3, 4, 5]
        assert bars.next_sequence == 6
        bars.close()
        with pytest.raises(ValueError, match="closed"):
            bars.next(timeout=10)
        relay.wait_for_subscription(TOPIC, is_there=False)


def test_iteration_ends_after_quiet_time_and_continues_later(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        bars = c.bars(TICKER, timeout=0.05)
        relay.wait_for_subscription(TOPIC)
        assert list(bars) == []
        relay.add_bars(1, 2)
        found: list[cw.Bar] = []
        while len(found) < 2:
            found += bars
        assert [bar.sequence for bar in found] == [1, 2]
        with pytest.raises(TimeoutError, match="OHLC"):
            bars.next(timeout=0.01)


def test_two_streams_and_requests_share_one_client(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        first, second = c.bars(TICKER, timeout=10), c.bars(TICKER, timeout=10)
        relay.wait_for_subscription(TOPIC)
        relay.add_bars(1, 2, 3, unseen=(2,))
        assert [next(first).sequence for _ in range(3)] == [1, 2, 3]
        assert c.history(TICKER, **DAY).row_count == 1  # type: ignore[arg-type]
        first.close()
        assert [next(second).sequence for _ in range(3)] == [1, 2, 3]


def test_a_stream_ends_with_its_client(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c, ThreadPoolExecutor(1) as pool:  # type: ignore[arg-type]
        bars = c.bars(TICKER)
        reading = pool.submit(list, bars)
        relay.wait_for_subscription(TOPIC)
        c.close()
        assert reading.result(10) == []
        assert list(bars) == []


async def test_the_async_twin_streams_across_a_gap(relay: Relay) -> None:
    async with cw.aconnect(**_arguments(relay)) as c, c.bars(TICKER, 60, timeout=10) as bars:  # type: ignore[arg-type]
        await asyncio.to_thread(relay.wait_for_subscription, TOPIC)
        relay.add_bars(1, 2, 3, 4, unseen=(2, 3))
        assert [(await bars.next(timeout=10)).sequence for _ in range(4)] == [1, 2, 3, 4]
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await bars.next(timeout=0.05)
        assert time.monotonic() - started < 5


async def test_an_async_stream_ends_with_its_client(relay: Relay) -> None:
    c = await cw.aconnect(**_arguments(relay))  # type: ignore[arg-type]
    bars = c.bars(TICKER)

    async def read() -> list[cw.Bar]:
        return [bar async for bar in bars]

    reading = asyncio.create_task(read())
    await asyncio.to_thread(relay.wait_for_subscription, TOPIC)
    await c.close()
    assert await asyncio.wait_for(reading, 10) == []


def test_a_realtime_request_names_its_periods_and_is_cancelled(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        with c.realtime(TICKER, ticks=False, ohlc_periods=["1s", 60]) as request:
            (asked,) = relay.seen
        control = relay.seen[1]
    assert isinstance(asked, ing.DataRequest)
    assert asked.type == ing.DataRequest.REALTIME_TICKS
    assert list(asked.realtime.ohlc_period_seconds) == [1, 60]
    assert (asked.realtime.include_ticks, asked.realtime.include_ohlc) == (False, True)
    assert isinstance(control, ing.IngestorControl)
    assert (control.action, control.request_id) == (ing.IngestorControl.CANCEL, request.request_id)


async def test_the_async_twin_cancels_its_realtime_request(relay: Relay) -> None:
    async with cw.aconnect(**_arguments(relay)) as c, await c.realtime(TICKER) as request:  # type: ignore[arg-type]
        pass
    assert [getattr(message, "request_id", "") for message in relay.seen][:2] == [request.request_id] * 2


def test_a_stream_of_an_invalid_ticker_is_refused_at_once(relay: Relay) -> None:
    with cw.connect(**_arguments(relay)) as c:  # type: ignore[arg-type]
        with pytest.raises(cw.InvalidRequest, match="ticker"):
            c.ticks("BTCUSDT")
        with pytest.raises(cw.InvalidRequest, match="period"):
            c.bars(TICKER, "soon")
