"""An exchange that misbehaves: the final is right or says why there are no rows, and is never a wrong OK."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sandbox.behaviour.faults import Fault, RestKind
from tests.faults.harness import MINUTE_MS, Platform, Status, WireClient, submit_message
from tests.faults.harness import platform as running_platform

pytestmark = pytest.mark.timeout(300)

#: 2023-09-01 00:00 UTC
SEPTEMBER_MS = 1_693_526_400_000
MINUTES = 2_500
TIMEOUT_SECONDS = 30
HOPELESS_END_MS = SEPTEMBER_MS + 100 * MINUTE_MS
TICKER = "BTC/USDT.BINANCE"

#: Faults of one market's klines; `status` affects only this market, but stops the requests for all.
FAULTS = {
    "HTML": Fault(kind="html", count=3),
    "EMPTYBODY": Fault(kind="empty", count=2),
    "TRUNCATED": Fault(kind="truncate", count=3),
    "LIMITED": Fault(kind="status", status=429, retry_after=2, count=1),
    "BANNED": Fault(kind="status", status=418, retry_after=3, count=1),
    "SILENT": Fault(kind="hang", count=2),
    "SLOW": Fault(kind="delay", seconds=3, count=1),
    "ERRORS": Fault(kind="status", status=500, body="oops", count=2),
    "GATEWAY": Fault(kind="status", status=502, body="<html>bad gateway</html>", count=2),
    "CUT": Fault(kind="reset", count=2),
    "SHORT": Fault(kind="short", rows=300),
    "EMPTYPAGE": Fault(kind="none", after=1, count=1),
    "REPEATED": Fault(kind="repeat", after=1, count=1),
}
HOPELESS: dict[str, RestKind] = {"ETH": "html", "XRP": "hang", "ADA": "truncate", "DOGE": "status"}


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Two ingestors that wait one second for a reply; requests that may last 30 seconds."""
    environment = {
        "INGESTOR__REQUEST_TIMEOUT_SECONDS": "1",
        "RELAY__REQUEST_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
    }
    folder, symbols = tmp_path_factory.mktemp("exchange"), [f"{name}/USDT" for name in FAULTS]
    with running_platform(folder, ingestors=2, environment=environment, symbols=symbols) as running:
        yield running


@pytest.fixture(scope="module")
def listener(impatient: Platform) -> Iterator[WireClient]:
    impatient.wait_until_well()
    with impatient.client("exchange") as connected:
        yield connected


@contextmanager
def struck_by(platform: Platform, faults: dict[str, Fault]) -> Iterator[None]:
    """Each fault, on the candles of its coin."""
    own = [
        platform.exchange.add_fault(replace(fault, path="*/klines", symbol=f"{base}USDT"))
        for base, fault in faults.items()
    ]
    yield
    platform.exchange.call(lambda sandbox: [sandbox.state.faults.remove(each) for each in own])


@pytest.fixture(scope="module")
def hopeless(impatient: Platform, listener: WireClient) -> Iterator[float]:
    """Requests that last until their timeout while other tests run, and when they were sent."""
    with struck_by(impatient, {base: Fault(kind=kind) for base, kind in HOPELESS.items()}):
        started = time.monotonic()
        for base in HOPELESS:
            listener.submit(
                submit_message(f"never-{base}", f"{base}/USDT.BINANCE", SEPTEMBER_MS, end_ms=HOPELESS_END_MS)
            )
        yield started


@pytest.mark.usefixtures("hopeless")
def test_a_temporary_fault_does_not_affect_the_rows(impatient: Platform, listener: WireClient) -> None:
    end_ms = SEPTEMBER_MS + MINUTES * MINUTE_MS
    with struck_by(impatient, FAULTS):
        for base in FAULTS:
            listener.submit(submit_message(base, f"{base}/USDT.BINANCE", SEPTEMBER_MS, end_ms=end_ms))
        listener.finals(FAULTS, 120)
    for base in FAULTS:
        final = listener.final(base)
        assert (final.status, final.row_count) == (Status.OK, MINUTES), final
        found = impatient.rows(f"{base}/USDT.BINANCE", SEPTEMBER_MS, end_ms)
        assert found == impatient.exchange_rows(f"{base}USDT", SEPTEMBER_MS, end_ms), base
        (covered,) = impatient.coverage()[base]
        assert (covered["expected"], covered["got"], covered["holes"]) == (MINUTES, MINUTES, []), base


def test_well_formed_replies_without_rows_are_not_found(impatient: Platform, listener: WireClient) -> None:
    request = submit_message("nothing", "LTC/USDT.BINANCE", SEPTEMBER_MS, end_ms=SEPTEMBER_MS + 100 * MINUTE_MS)
    with struck_by(impatient, {"LTC": Fault(kind="none")}):
        final = listener.history(request)
    assert (final.status, final.row_count) == (Status.NOT_FOUND, 0), final
    (covered,) = impatient.coverage()["nothing"]
    assert (covered["expected"], covered["got"], covered["status"]) == (100, 0, "NOT_FOUND")


def test_an_empty_page_in_the_middle_hides_no_rows_after_it(impatient: Platform, listener: WireClient) -> None:
    ticker, start_ms = "SOL/USDT.BINANCE", SEPTEMBER_MS
    end_ms = start_ms + 5_000 * MINUTE_MS
    hole = (start_ms + 1_000 * MINUTE_MS, start_ms + 3_500 * MINUTE_MS)
    impatient.exchange.call(lambda sandbox: sandbox.add_hole("SOLUSDT", *hole))
    final = listener.history(submit_message("wide-hole", ticker, start_ms, end_ms=end_ms), 90)
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


def test_markets_that_never_answer_correctly_never_end_ok(
    impatient: Platform, listener: WireClient, hopeless: float
) -> None:
    for base in HOPELESS:
        final = listener.final(f"never-{base}", TIMEOUT_SECONDS + 60)
        assert final.status in (Status.TIMEOUT, Status.ERROR), final
        if final.status == Status.TIMEOUT:
            assert TIMEOUT_SECONDS - 1 < time.monotonic() - hopeless < TIMEOUT_SECONDS + 30
        assert final.row_count == 0
        assert len(final.error_message.split()) > 3, final
        assert impatient.rows(f"{base}/USDT.BINANCE", SEPTEMBER_MS, HOPELESS_END_MS) == []
        (covered,) = impatient.coverage()[f"never-{base}"]
        assert (covered["got"], covered["status"]) == (0, Status.Name(final.status))
    (hanging,) = [base for base, kind in HOPELESS.items() if kind == "hang"]
    assert listener.final(f"never-{hanging}").status == Status.TIMEOUT
    impatient.exchange.clear_faults()
    for base in HOPELESS:
        # The next request for the same range is not affected by the previous one.
        listener.submit(submit_message(f"again-{base}", f"{base}/USDT.BINANCE", SEPTEMBER_MS, end_ms=HOPELESS_END_MS))
    for base in HOPELESS:
        again = listener.final(f"again-{base}", 90)
        assert (again.status, again.row_count) == (Status.OK, 100), again


@pytest.mark.parametrize("status", [429, 418])
def test_an_exchange_that_asks_for_a_pause_is_left_alone(
    impatient: Platform, listener: WireClient, status: int
) -> None:
    name, seconds = f"left-alone-{status}", 3.0
    start_ms = SEPTEMBER_MS - 100 * status * MINUTE_MS

    def requests() -> int:
        return int(impatient.exchange.call(lambda sandbox: sum(sandbox.state.requests.values())))

    def struck() -> int:
        return int(impatient.exchange.call(lambda sandbox: sum(sandbox.state.struck.values())))

    before = struck()
    with struck_by(impatient, {"BTC": Fault(kind="status", status=status, retry_after=seconds, count=1)}):
        listener.submit(submit_message(name, TICKER, start_ms, end_ms=start_ms + 60 * MINUTE_MS))
        give_up = time.monotonic() + 30
        while struck() == before:
            assert time.monotonic() < give_up, "the exchange was never asked"
            time.sleep(0.01)
        struck_at = time.monotonic()
        # Requests in transit may still reach the exchange.
        time.sleep(0.3)
        asked = requests()
        time.sleep(seconds - 0.5 - (time.monotonic() - struck_at))
        assert requests() == asked, "it was asked during the pause"
        final = listener.final(name)
    assert (final.status, final.row_count) == (Status.OK, 60)
