import time
from email.utils import formatdate

import ccxt
import pytest

from candlewright.wire.errors import (
    BadReply,
    BusUnavailable,
    DepthExceeded,
    ExchangeError,
    NotOffered,
    RateLimited,
    Unavailable,
    UnknownTicker,
)
from core.failures import FailureCode
from ingestor.exchange.errors import Reply, UnknownFailure, failure_of, stated_end, translate
from ingestor.venues import venue_of


@pytest.mark.parametrize(
    ("error", "exchange_id", "status", "expected"),
    [
        (ccxt.DDoSProtection("binance 429"), "binance", 429, RateLimited),
        (ccxt.ExchangeNotAvailable("okx 429"), "okx", 429, RateLimited),
        (ccxt.RateLimitExceeded("okx 50011"), "okx", 200, RateLimited),
        (ccxt.RateLimitExceeded("bybit 10006"), "bybit", 200, RateLimited),
        (ccxt.ExchangeNotAvailable("403"), "bybit", 403, RateLimited),
        (ccxt.ExchangeNotAvailable("403"), "binance", 403, ExchangeError),
        (ccxt.ExchangeNotAvailable("451"), "binance", 451, ExchangeError),
        (ccxt.ExchangeNotAvailable("400"), "binance", 400, UnknownFailure),
        (ccxt.ExchangeNotAvailable("503"), "binance", 503, Unavailable),
        (ccxt.DDoSProtection("520"), "binance", 520, Unavailable),
        (ccxt.RequestTimeout("slow"), "binance", 0, Unavailable),
        (ccxt.OnMaintenance("later"), "kraken", 200, Unavailable),
        (ccxt.BadSymbol("-1121"), "binance", 400, UnknownTicker),
        (ccxt.ExchangeError('kraken {"error":["EQuery:Unknown asset pair"]}'), "kraken", 200, UnknownTicker),
        (ccxt.BadRequest('bybit {"retCode":10001,"retMsg":"Not supported symbols"}'), "bybit", 200, UnknownTicker),
        (ccxt.ExchangeError("kraken EGeneral:Surprise"), "kraken", 200, UnknownFailure),
        (ccxt.BadRequest("bad"), "okx", 200, ExchangeError),
        (ccxt.NotSupported("no"), "okx", 0, NotOffered),
        (ccxt.BadResponse("?"), "okx", 200, BadReply),
        (ccxt.ExchangeClosedByUser("closed"), "okx", 0, ExchangeError),
        (KeyError("symbol"), "binance", 200, BadReply),
        (TypeError("NoneType"), "binance", 200, BadReply),
        (OSError("network"), "binance", 0, Unavailable),
    ],
)
def test_errors_of_ccxt_are_translated_by_class_and_status(
    error: Exception, exchange_id: str, status: int, expected: type[Exception]
) -> None:
    found = translate(error, venue_of(exchange_id.upper()).limits, Reply(status) if status else None)
    assert type(found) is expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RateLimited("x", 0.0), FailureCode.RATE_LIMITED),
        (BadReply("x"), FailureCode.BAD_REPLY),
        (UnknownTicker("x"), FailureCode.UNKNOWN_TICKER),
        (NotOffered("x"), FailureCode.NOT_OFFERED),
        (DepthExceeded("x"), FailureCode.DEPTH),
        (UnknownFailure("x"), FailureCode.UNKNOWN),
        (Unavailable("x"), FailureCode.UNAVAILABLE),
        (ExchangeError("x"), FailureCode.REFUSED),
        (BusUnavailable("x"), FailureCode.BUS),
        (ZeroDivisionError("x"), FailureCode.UNKNOWN),
    ],
)
def test_each_error_has_its_code_for_the_broker(error: Exception, code: FailureCode) -> None:
    assert failure_of(error).code is code


def test_the_later_of_all_stated_ends_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = float(int(time.time()))
    monkeypatch.setattr("ingestor.exchange.errors.time.time", lambda: now)
    until = int((now + 90) * 1000)
    reply = Reply(418, {"retry-after": "30"})
    assert stated_end(f"IP banned until {until}. Use websocket", reply) == now + 90
    assert stated_end("slow down", reply) == now + 30
    date = Reply(429, {"retry-after": formatdate(now + 45, usegmt=True)})
    assert stated_end("slow down", date) == now + 45
    assert stated_end("slow down", Reply(429, {"retry-after": "soon"})) is None
    assert stated_end("slow down", None) is None
