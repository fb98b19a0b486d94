"""A hundred tickers in one call: one frame, one scan, and no ticker missing silently."""

import asyncio
from collections.abc import Iterator

import pyarrow as pa
import pytest

import candlewright as cw
import iceberg.read
from candlewright.client.history.histories import Several
from candlewright.client.history.progress import NotedProgress
from candlewright.client.records import Notification, Range
from candlewright.client.session.session import Operation, Wait
from candlewright.wire import candlewright_pb2 as pb
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from core.settings import Settings
from iceberg import OHLC, append, create_tables, load_table, open_catalog
from tests.candlewright.client.test_twins import Relay
from tests.iceberg.rows import MINUTE, candles

TICKERS = [f"A{number:03}/USDT.BINANCE" for number in range(100)]
GONE, SHORT = "GONE/USDT.BINANCE", "SHORT/USDT.BINANCE"
RANGE = {"start": 0, "end": 10 * MINUTE}
Final = ing.HistoryReadyNotification


class ManyRelay(Relay):
    """Each request ends immediately with three rows; the venue has nothing for one ticker."""

    def _final_of(self, request: ing.SubmitHistoricalRequest) -> Final:
        return Final(
            request_id=request.request_id,
            ticker=request.ticker,
            period_seconds=60,
            end_time=10 * MINUTE,
            row_count=3,
            status=Final.NOT_FOUND if request.ticker == GONE else Final.OK,
        )

    def _answer(self, peer: bytes, message: object) -> None:
        if isinstance(message, pb.StoredQuery):
            sink = pa.BufferOutputStream()
            table = candles([1, 2] if message.ticker == SHORT else [1, 2, 5], message.ticker)
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            hole = pb.TimeRange(start_time=3 * MINUTE, end_time=4 * MINUTE)
            answer = pb.StoredRows(request_id=message.request_id, rows=sink.getvalue().to_pybytes(), holes=[hole])
            self._router.send_multipart([peer, *frames.encode(answer)])
        else:
            super()._answer(peer, message)


@pytest.fixture
def relay() -> Iterator[ManyRelay]:
    relay = ManyRelay()
    yield relay
    relay.close()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Three minutes are stored for each ticker, two for SHORT, and three for a ticker that no test requests."""
    settings = Settings.model_validate({"data_dir": tmp_path_factory.mktemp("lake")})
    catalog = open_catalog(settings)
    create_tables(catalog)
    tables = [candles([5, 1, 2], ticker) for ticker in reversed([*TICKERS, "B/USDT.BINANCE"])]
    append(load_table(catalog, OHLC), pa.concat_tables([*tables, candles([1, 2], SHORT)]), {})
    return settings


@pytest.fixture
def near(relay: ManyRelay, settings: Settings) -> Iterator[cw.Client]:
    with cw.connect(relay.requests, relay.notifications, settings=settings) as c:
        yield c


def minutes(table: pa.Table) -> list[tuple[str, int]]:
    opens = (table["open_time"].cast("int64").to_numpy() * 1_000 // MINUTE).tolist()
    return list(zip(table["ticker"].to_pylist(), opens, strict=True))


def test_a_hundred_tickers_are_one_frame_of_one_scan(near: cw.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[object] = []
    read_rows = iceberg.read.read_rows
    monkeypatch.setattr(iceberg.read, "read_rows", lambda *args: (scans.append(args), read_rows(*args))[1])
    asked = TICKERS[::-1]
    found = near.history(asked, "1m", **RANGE)
    assert minutes(found.to_arrow()) == [(ticker, minute) for ticker in asked for minute in (1, 2, 5)]
    assert len(scans) == 1
    assert found.to_polars()["ticker"].n_unique() == 100
    assert (list(found.of), found.errors) == (asked, {})
    assert minutes(found[TICKERS[7]].to_arrow()) == [(TICKERS[7], minute) for minute in (1, 2, 5)]
    assert "100 tickers" in found._repr_html_()


def test_a_ticker_that_fails_is_never_missing_silently(near: cw.Client) -> None:
    with pytest.raises(
        cw.TickersFailed, match=r"2 of 4 tickers failed: GONE/USDT.BINANCE: .*; SHORT/USDT.BINANCE: "
    ) as got:
        near.history([GONE, TICKERS[0], SHORT, TICKERS[1]], "1m", **RANGE)
    assert isinstance(got.value.errors[GONE], cw.RequestNotFound)
    assert isinstance(got.value.errors[SHORT], cw.RowsUnavailable)
    assert list(got.value.histories.of) == TICKERS[:2]

    kept = near.history([GONE, TICKERS[0]], "1m", **RANGE, errors="keep")
    assert (len(kept), list(kept.errors)) == (3, [GONE])
    assert "errors=1" in repr(kept)
    assert repr(kept[TICKERS[0]]).startswith(f"<History {TICKERS[0]} 1m rows=3 ")
    assert GONE in kept._repr_html_()
    with pytest.raises(cw.RequestNotFound):
        kept[GONE]
    with pytest.raises(KeyError):
        kept["OTHER/USDT.BINANCE"]
    assert near.history([GONE], "1m", **RANGE, errors="keep").to_arrow().num_rows == 0


def test_the_first_rows_of_each_ticker(near: cw.Client) -> None:
    assert len(near.history(TICKERS[:3], "1m", **RANGE, limit=2)) == 6


def test_progress_is_that_of_all() -> None:
    heard: list[tuple[int, int, str]] = []

    def progress(done: int, expected: int, *, note: str) -> None:
        heard.append((done, expected, note))

    several = Several([Range(ticker, 60, 0, 10 * MINUTE) for ticker in TICKERS[:2]], "raise", progress)
    first, second = (several.progress_of(ticker) for ticker in TICKERS[:2])
    first(1, 10, note="")
    second(0, 20, note="waiting for a slot")
    first(10, 10, note="")
    assert heard == [(1, 10, ""), (1, 30, f"{TICKERS[1]}: waiting for a slot"), (10, 30, "")]


def test_progress_counts_requests_that_end_before_their_state_was_requested(near: cw.Client) -> None:
    heard: list[tuple[int, int]] = []
    near.history([*TICKERS, GONE], "1m", **RANGE, errors="keep", progress=lambda *counts: heard.append(counts))
    assert heard[-1] == (300, 300)
    assert len(heard) == 101


def test_missing_candles_of_a_failed_request_are_no_longer_expected() -> None:
    heard: list[tuple[int, int]] = []
    several = Several([Range(ticker, 60, 0, 10 * MINUTE) for ticker in TICKERS[:2]], "keep", lambda *c: heard.append(c))
    failing, other = several.requests(lambda: "id", None)

    class Asked:
        def history(
            self, wanted: Range, identity: str, report: NotedProgress, *, timeout_seconds: None
        ) -> Operation[Notification]:
            report(4, 10, note="")
            yield Wait(0)
            raise cw.RequestFailed(identity, "cancelled")

    working = [start(Asked()) for start in (failing, other)]
    for each in working:
        next(each)
    with pytest.raises(cw.RequestFailed):
        next(working[0])
    assert heard == [(4, 10), (8, 20), (8, 14)]


def test_without_the_tables_the_relay_gives_the_rows(
    relay: ManyRelay, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("candlewright.client.connection.near_rows", lambda config: None)
    with cw.connect(relay.requests, relay.notifications, settings=settings) as c:
        found = c.history([*TICKERS, GONE, SHORT], "1m", **RANGE, errors="keep")
    assert minutes(found.to_arrow()) == [(ticker, minute) for ticker in TICKERS for minute in (1, 2, 5)]
    assert list(found.errors) == [GONE, SHORT]
    assert found[TICKERS[3]].holes == ((3 * MINUTE, 4 * MINUTE),)


def test_the_asyncio_twin_does_the_same(relay: ManyRelay, settings: Settings) -> None:
    async def ask() -> cw.Histories:
        async with cw.aconnect(relay.requests, relay.notifications, settings=settings) as c:
            with pytest.raises(cw.TickersFailed):
                await c.history((GONE, TICKERS[0]), "1m", **RANGE)
            return await c.history([*TICKERS, SHORT], "1m", **RANGE, errors="keep")

    found = asyncio.run(ask())
    assert minutes(found.to_arrow()) == [(ticker, minute) for ticker in TICKERS for minute in (1, 2, 5)]
    assert list(found.errors) == [SHORT]


def test_options_for_a_single_ticker_are_refused(near: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequest, match="one ticker"):
        near.history(TICKERS, "1m", **RANGE, as_of=5)  # type: ignore[call-overload]
    with pytest.raises(cw.InvalidRequest, match="at least one ticker"):
        near.history([], "1m", **RANGE)
    with pytest.raises(cw.InvalidRequest, match="'raise' or 'keep'"):
        near.history(TICKERS, "1m", **RANGE, errors="drop")  # type: ignore[call-overload]


def test_a_platform_that_is_not_there_is_not_the_fault_of_a_ticker(settings: Settings) -> None:
    nowhere = "tcp://127.0.0.1:1"
    with cw.connect(nowhere, nowhere, timeout=0.3, settings=settings) as c, pytest.raises(cw.PlatformUnreachable):
        c.history(TICKERS[:2], "1m", **RANGE, errors="keep")
