"""Invalid replies of exchanges are requested again, and never taken for data or for an empty range."""

import time
from collections.abc import AsyncIterator

import pytest

from candlewright.wire.errors import BadReply, ExchangeError, RateLimited, Unavailable
from candlewright.wire.grid import SECOND
from core.failures import FailureCode
from ingestor import metrics
from ingestor.exchange.client import VenueClient
from ingestor.exchange.errors import failure_of
from ingestor.history.fetch import HistoryJob
from tests.fresh_bus import FreshBus
from tests.ingestor.venues_on_loopback import (
    HastyProgress,
    Loopback,
    binance_kline,
    client_of,
    fetch,
    loopback,
    minute_rows,
    serve_binance,
    serve_bybit,
    serve_coinbase,
    serve_kraken,
    serve_okx,
)

T0 = 1_700_000_040
ROWS = minute_rows(T0, 21)  # one more than JOB asks for
NOW = T0 + 60 * 21
JOB = HistoryJob("BTC/USDT", 60, T0 * SECOND, (T0 + 1_200) * SECOND)
KLINES = "/api/v3/klines"
HTML = "<html><body>Service temporarily unavailable</body></html>"


def _count(venue: str, counter: object = metrics.BAD_REPLIES) -> float:
    return counter.labels(venue)._value.get()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
async def binance() -> AsyncIterator[tuple[Loopback, VenueClient]]:
    async with loopback() as server, client_of("BINANCE", server.url) as client:
        serve_binance(server, [binance_kline(row) for row in ROWS], now=NOW)
        await client.load_markets(HastyProgress())
        yield server, client


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (HTML, "text/html"),
        (HTML, "application/json"),
        ("", "application/json"),
        ('[[1700000040000,"100.1","10', "application/json"),
        ("null", "application/json"),
        ('"maintenance"', "application/json"),
        ("{}", "application/json"),
        ('[["x","1","1","1","1","1",0,"1",1,"1","1","0"]]', "application/json"),
        ('[[1700000040000,"1"]]', "application/json"),
        ('[[1700000040000,"NaN","1","1","1","1",0,"1",1,"1","1","0"]]', "application/json"),
        ("\x00\xff\x01", "application/octet-stream"),
    ],
)
async def test_garbage_is_requested_again_and_is_never_an_empty_page(
    binance: tuple[Loopback, VenueClient], body: str, content_type: str
) -> None:
    server, client = binance
    server.fail(KLINES, body=body, content_type=content_type, times=2)
    before = _count("BINANCE")
    summary, _, _ = await fetch(client, JOB)
    assert (summary.rows, summary.holes) == (20, ())
    assert len(server.asked(KLINES)) == 3
    assert _count("BINANCE") == before + 2


@pytest.mark.parametrize(
    ("venue", "path"),
    [
        ("KRAKEN", "/0/public/OHLC"),
        ("OKX", "/api/v5/market/candles"),
        ("BYBIT", "/v5/market/kline"),
        ("COINBASE", "/api/v3/brokerage/market/products/BTC-USDT/candles"),
    ],
)
@pytest.mark.parametrize("body", [HTML, "", "[]", '{"data"', "{}"])
async def test_garbage_of_the_other_venues(venue: str, path: str, body: str) -> None:
    async with loopback() as server, client_of(venue, server.url) as client:
        if venue == "KRAKEN":
            ohlc = [[row[0], *row[1:5], "1.0", row[5], 3] for row in [*ROWS, (T0 + 1_200, *ROWS[0][1:])]]
            serve_kraken(server, ohlc, now=NOW - 30)
        else:
            serve = {"OKX": serve_okx, "BYBIT": serve_bybit, "COINBASE": serve_coinbase}[venue]
            serve(server, ROWS, now=NOW)
        await client.load_markets(HastyProgress())
        server.fail(path, body=body, times=2)
        summary, _, _ = await fetch(client, JOB)
    assert (summary.rows, summary.expected) == (20, 20)


async def test_garbage_that_does_not_end_fails_the_job_within_its_patience() -> None:
    async with loopback() as server, client_of("BINANCE", server.url, patience=0.2) as client:
        serve_binance(server, [], now=NOW)
        await client.load_markets(HastyProgress())
        server.fail(KLINES, body=HTML, times=100_000)
        with pytest.raises(BadReply) as raised:
            await fetch(client, JOB)
    assert failure_of(raised.value).code is FailureCode.BAD_REPLY


async def test_a_body_that_breaks_off_is_requested_again(binance: tuple[Loopback, VenueClient]) -> None:
    from aiohttp import web

    server, client = binance
    server.faults.append((KLINES, lambda: web.Response(body=b"[[17", headers={"Content-Encoding": "gzip"})))
    summary, _, _ = await fetch(client, JOB)
    assert summary.rows == 20


@pytest.mark.parametrize("status", [500, 502, 503, 520])
async def test_an_outage_is_waited_out(binance: tuple[Loopback, VenueClient], status: int) -> None:
    server, client = binance
    server.fail(KLINES, status=status, body=HTML, times=2)
    progress = HastyProgress()
    summary, _, _ = await fetch(client, JOB, progress)
    assert summary.rows == 20
    assert len(progress.slept) == 2
    assert all(0 <= seconds <= 4 for seconds in progress.slept)


@pytest.mark.parametrize(("status", "body"), [(451, ""), (403, HTML), (404, "{}"), (401, '{"code":-2015,"msg":"key"}')])
async def test_a_refusal_is_final(binance: tuple[Loopback, VenueClient], status: int, body: str) -> None:
    server, client = binance
    server.fail(KLINES, status=status, body=body)
    with pytest.raises(ExchangeError) as raised:
        await fetch(client, JOB)
    assert failure_of(raised.value).code is FailureCode.REFUSED
    assert len(server.asked(KLINES)) == 1


async def test_unknown_errors_are_retried_a_few_times(binance: tuple[Loopback, VenueClient]) -> None:
    server, client = binance
    server.fail(KLINES, status=400, body='{"code":-9999,"msg":"surprise"}', times=10)
    with pytest.raises(Unavailable) as raised:
        await fetch(client, JOB)
    assert failure_of(raised.value).code is FailureCode.UNKNOWN
    assert len(server.asked(KLINES)) == 3


async def test_429_waits_for_retry_after_and_blocks_the_venue() -> None:
    blocked: list[float] = []
    async with (
        loopback() as server,
        client_of("BINANCE", server.url, on_blocked=blocked.append, is_limited=True) as client,
    ):
        serve_binance(server, [binance_kline(row) for row in ROWS], now=NOW)
        await client.load_markets(HastyProgress())
        server.fail(KLINES, status=429, body='{"code":-1003,"msg":"Too many requests"}', Retry_After="1")
        before = _count("BINANCE", metrics.RATE_LIMITS)
        from ingestor.progress import Progress

        began = time.monotonic()
        summary, _, _ = await fetch(client, JOB, Progress())
        assert time.monotonic() - began >= 0.95
    assert summary.rows == 20
    assert 0.5 < blocked[0] - time.time() + (time.monotonic() - began) < 1.6
    assert _count("BINANCE", metrics.RATE_LIMITS) == before + 1


async def test_429_without_a_time_waits_longer_each_time(binance: tuple[Loopback, VenueClient]) -> None:
    server, client = binance
    server.fail(KLINES, status=429, body="", times=3)
    progress = HastyProgress()
    client.budget._until_unblocked = _no_wait  # type: ignore[method-assign]
    summary, _, _ = await fetch(client, JOB, progress)
    assert summary.rows == 20
    first, second, third = (round(seconds) for seconds in progress.slept[:3])
    assert first in (5, 6) and second in (10, 11) and third in (20, 21)


async def _no_wait(progress: object) -> float:
    return 0.0


async def test_a_ban_longer_than_the_patience_ends_the_job_with_its_time() -> None:
    blocked: list[float] = []
    async with loopback() as server, client_of("BINANCE", server.url, on_blocked=blocked.append) as client:
        serve_binance(server, [], now=NOW)
        await client.load_markets(HastyProgress())
        until = int((time.time() + 3_600) * 1000)
        server.fail(
            KLINES, status=418, body=f'{{"code":-1003,"msg":"Way too many requests; IP banned until {until}."}}'
        )
        with pytest.raises(RateLimited) as raised:
            await fetch(client, JOB)
        asked = len(server.requests)
        with pytest.raises(RateLimited):
            await fetch(client, JOB)
        assert len(server.requests) == asked, "a banned exchange is left alone"
    assert abs(raised.value.retry_at - until / 1000) < 2
    assert abs(blocked[0] - until / 1000) < 2
    failure = failure_of(raised.value)
    assert failure.code is FailureCode.RATE_LIMITED and "until 20" in failure.text


async def test_a_403_of_bybit_blocks_for_ten_minutes() -> None:
    async with loopback() as server, client_of("BYBIT", server.url) as client:
        serve_bybit(server, ROWS, now=NOW)
        await client.load_markets(HastyProgress())
        server.fail("/v5/market/kline", status=403, body=HTML, content_type="text/html")
        with pytest.raises(RateLimited) as raised:
            await fetch(client, JOB)
    assert 595 < raised.value.retry_at - time.time() <= 601


async def test_okx_429_with_an_empty_body_is_a_limit_though_ccxt_calls_it_an_outage() -> None:
    async with loopback() as server, client_of("OKX", server.url) as client:
        serve_okx(server, ROWS, now=NOW)
        await client.load_markets(HastyProgress())
        before = _count("OKX", metrics.RATE_LIMITS)
        server.fail("/api/v5/market/candles", status=429, body="", Retry_After="0")
        summary, _, _ = await fetch(client, JOB)
    assert summary.rows == 20
    assert _count("OKX", metrics.RATE_LIMITS) == before + 1


async def test_a_block_is_shared_through_the_bus() -> None:
    bus = FreshBus()
    async with loopback() as server:
        serve_binance(server, [binance_kline(row) for row in ROWS], now=NOW)
        async with (
            client_of("BINANCE", server.url, bus=bus, is_limited=True, patience=5) as one,
            client_of("BINANCE", server.url, bus=bus, is_limited=True, patience=5) as other,
        ):
            await one.load_markets(HastyProgress())
            await other.load_markets(HastyProgress())
            server.fail(KLINES, status=418, body="", Retry_After="300")
            with pytest.raises(RateLimited):
                await fetch(one, JOB)
            asked = len(server.requests)
            with pytest.raises(RateLimited):
                await fetch(other, JOB)
            assert len(server.requests) == asked


async def test_a_server_that_never_answers_is_unavailable_after_the_patience() -> None:
    async with loopback() as server, client_of("BINANCE", server.url, patience=0.3, request_timeout=0.2) as client:
        serve_binance(server, [], now=NOW)
        await client.load_markets(HastyProgress())
        server.hangs = True
        began = time.monotonic()
        with pytest.raises(Unavailable) as raised:
            await fetch(client, JOB)
        assert time.monotonic() - began < 3
    assert failure_of(raised.value).code is FailureCode.UNAVAILABLE


async def test_an_event_without_subscribers_is_kept() -> None:
    async with client_of("BINANCE", "http://127.0.0.1:9", patience=0.1) as client:
        with pytest.raises(Unavailable):
            await client.load_markets(HastyProgress())


async def test_an_exchange_without_a_time_endpoint_is_read_by_its_date_header(
    binance: tuple[Loopback, VenueClient],
) -> None:
    server, client = binance
    del server.answers["/api/v3/time"]
    at = await client.clock(HastyProgress())
    assert abs(at / 1e9 - time.time()) < 2


async def test_a_date_header_gives_the_time_although_our_own_clock_is_set(
    binance: tuple[Loopback, VenueClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = binance
    del server.answers["/api/v3/time"]
    before = await client.clock(HastyProgress())
    wall_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns + 3_600 * SECOND)
    client._clock_read_at -= 60
    assert 0 <= await client.clock(HastyProgress()) - before < 10 * SECOND


async def test_a_known_exchange_time_is_not_guessed(binance: tuple[Loopback, VenueClient]) -> None:
    server, client = binance
    assert await client.clock(HastyProgress()) == NOW * SECOND
    server.fail("/api/v3/time", body=HTML, times=2)
    client._clock_read_at -= 60
    assert await client.clock(HastyProgress()) == NOW * SECOND
    # Twice at first, because that clock is far from ours.
    assert len(server.asked("/api/v3/time")) == 5


async def test_no_other_host_is_ever_contacted(binance: tuple[Loopback, VenueClient]) -> None:
    _, client = binance
    with pytest.raises(ExchangeError, match="only server that is allowed"):
        await client.exchange.fetch("https://api.binance.com/api/v3/time")
