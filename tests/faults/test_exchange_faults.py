"""An exchange that misbehaves: the final is right, or it says why there are no rows, and is never a wrong OK."""

import time
from collections.abc import Iterator

import pytest

from sandbox.faults import Fault
from tests.faults.harness import MINUTE_MS, Platform, Status, WireClient, submit_message
from tests.faults.harness import platform as running_platform

pytestmark = pytest.mark.timeout(300)

#: 2023-09-01 00:00 UTC
SEPTEMBER_MS = 1_693_526_400_000
MINUTES = 2_500
TIMEOUT_SECONDS = 30
KLINES = "*/klines"
TICKER, SYMBOL = "BTC/USDT.BINANCE", "BTCUSDT"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Two ingestors that wait one second for a reply; requests that may last 30 seconds."""
    environment = {
        "INGESTOR__REQUEST_TIMEOUT_SECONDS": "1",
        "RELAY__REQUEST_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
    }
    with running_platform(tmp_path_factory.mktemp("exchange"), ingestors=2, environment=environment) as running:
        yield running


@pytest.fixture
def listener(impatient: Platform) -> Iterator[WireClient]:
    impatient.exchange.clear_faults()
    impatient.wait_until_well()
    with impatient.client("exchange") as connected:
        yield connected
    impatient.exchange.clear_faults()


FAULTS = {
    "html": Fault("html", path=KLINES, count=3),
    "empty-body": Fault("empty", path=KLINES, count=2),
    "truncated": Fault("truncate", path=KLINES, count=3),
    "rate-limited": Fault("status", path=KLINES, status=429, retry_after=2, count=1),
    "banned": Fault("status", path=KLINES, status=418, retry_after=3, count=1),
    "no-answer": Fault("hang", path=KLINES, count=2),
    "slow-answer": Fault("delay", path=KLINES, seconds=3, count=1),
    "server-errors": Fault("status", path=KLINES, status=500, body="oops", count=2),
    "bad-gateway": Fault("status", path=KLINES, status=502, body="<html>bad gateway</html>", count=2),
    "cut-connection": Fault("reset", path=KLINES, count=2),
    "short-pages": Fault("short", path=KLINES, rows=300),
    "empty-page": Fault("none", path=KLINES, after=1, count=1),
    "repeated-page": Fault("repeat", path=KLINES, after=1, count=1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes_leaves_no_trace_in_the_rows(impatient: Platform, listener: WireClient, name: str) -> None:
    # Ranges of their own, or a request would only confirm what an earlier one wrote.
    start_ms = SEPTEMBER_MS + list(FAULTS).index(name) * 10_000 * MINUTE_MS
    end_ms = start_ms + MINUTES * MINUTE_MS
    impatient.exchange.add_fault(FAULTS[name])
    started = time.monotonic()
    final = listener.history(submit_message(name, TICKER, start_ms, end_ms), 120)
    took = time.monotonic() - started
    impatient.exchange.clear_faults()
    assert (final.status, final.row_count) == (Status.OK, MINUTES), final
    assert impatient.rows(TICKER, start_ms, end_ms) == impatient.exchange_rows(SYMBOL, start_ms, end_ms)
    (covered,) = impatient.coverage()[name]
    assert (covered["expected"], covered["got"], covered["holes"]) == (MINUTES, MINUTES, [])
    assert took > (FAULTS[name].retry_after or 0), "it did not wait as long as the exchange asked"


def test_while_it_is_banned_the_exchange_is_left_alone(impatient: Platform, listener: WireClient) -> None:
    start_ms = SEPTEMBER_MS - 50_000 * MINUTE_MS
    impatient.exchange.add_fault(Fault("status", path=KLINES, status=418, retry_after=4, count=1))

    def requests() -> int:
        return int(impatient.exchange.call(lambda sandbox: sum(sandbox.state.requests.values())))

    def struck() -> int:
        return int(impatient.exchange.call(lambda sandbox: sum(sandbox.state.struck.values())))

    before = struck()
    listener.submit(submit_message("left-alone", TICKER, start_ms, start_ms + 60 * MINUTE_MS))
    give_up = time.monotonic() + 30
    while struck() == before:
        assert time.monotonic() < give_up, "the exchange was never asked"
        time.sleep(0.01)
    time.sleep(0.5)
    asked = requests()
    time.sleep(2.5)
    assert requests() == asked, "it was asked during the ban"
    final = listener.final("left-alone")
    assert (final.status, final.row_count) == (Status.OK, 60)


def test_what_never_answers_rightly_is_never_ok(impatient: Platform, listener: WireClient) -> None:
    start_ms, end_ms = SEPTEMBER_MS, SEPTEMBER_MS + 100 * MINUTE_MS
    kinds = {"ETH": "html", "XRP": "hang", "ADA": "truncate", "DOGE": "status"}
    for base, kind in kinds.items():
        impatient.exchange.add_fault(Fault(kind, path=KLINES, symbol=f"{base}USDT"))  # type: ignore[arg-type]
    started = time.monotonic()
    for base, kind in kinds.items():
        listener.submit(submit_message(f"never-{kind}", f"{base}/USDT.BINANCE", start_ms, end_ms))
    for base, kind in kinds.items():
        final = listener.final(f"never-{kind}", TIMEOUT_SECONDS + 60)
        assert final.status in (Status.TIMEOUT, Status.ERROR), final
        if final.status == Status.TIMEOUT:
            assert TIMEOUT_SECONDS - 1 < time.monotonic() - started < TIMEOUT_SECONDS + 30
        assert final.row_count == 0
        assert len(final.error_message.split()) > 3, final
        assert impatient.rows(f"{base}/USDT.BINANCE", start_ms, end_ms) == []
        (covered,) = impatient.coverage()[f"never-{kind}"]
        assert (covered["got"], covered["status"]) == (0, Status.Name(final.status))
    assert listener.final("never-hang").status == Status.TIMEOUT
    impatient.exchange.clear_faults()
    for base, kind in kinds.items():
        # The next request for the same range does not suffer from the one before.
        again = listener.history(submit_message(f"again-{kind}", f"{base}/USDT.BINANCE", start_ms, end_ms), 90)
        assert (again.status, again.row_count) == (Status.OK, 100), again


def test_well_formed_replies_without_rows_are_not_found(impatient: Platform, listener: WireClient) -> None:
    impatient.exchange.add_fault(Fault("none", path=KLINES, symbol="LTCUSDT"))
    request = submit_message("nothing", "LTC/USDT.BINANCE", SEPTEMBER_MS, SEPTEMBER_MS + 100 * MINUTE_MS)
    final = listener.history(request)
    assert (final.status, final.row_count) == (Status.NOT_FOUND, 0), final
    (covered,) = impatient.coverage()["nothing"]
    assert (covered["expected"], covered["got"], covered["status"]) == (100, 0, "NOT_FOUND")


def test_an_empty_page_in_the_middle_hides_no_rows_behind_it(impatient: Platform, listener: WireClient) -> None:
    ticker, start_ms = "SOL/USDT.BINANCE", SEPTEMBER_MS
    end_ms = start_ms + 5_000 * MINUTE_MS
    hole = (start_ms + 1_000 * MINUTE_MS, start_ms + 3_500 * MINUTE_MS)
    impatient.exchange.call(lambda sandbox: sandbox.add_hole("SOLUSDT", *hole))
    final = listener.history(submit_message("wide-hole", ticker, start_ms, end_ms), 90)
    expected = impatient.exchange_rows("SOLUSDT", start_ms, hole[0]) + impatient.exchange_rows(
        "SOLUSDT", hole[1], end_ms
    )
    assert len(expected) == 2_500
    assert (final.status, final.row_count) == (Status.OK, 2_500), final
    assert impatient.rows(ticker, start_ms, end_ms) == expected
    (covered,) = impatient.coverage()["wide-hole"]
    found = [(round(h["start"].timestamp() * 1_000), round(h["end"].timestamp() * 1_000)) for h in covered["holes"]]
    assert found == [hole]
    assert covered["expected"] == 5_000
