"""Errors survive copying between processes and threads, as by pools, Spark and asyncio."""

import copy
import pickle

import pyarrow as pa
import pytest

import candlewright as cw
import candlewright_cep
from candlewright.client.history.histories import Histories
from candlewright.wire import errors

ERRORS = (
    cw.GapError("TICKS:BTC/USDT.BINANCE", 3, 7),
    cw.InvalidTrigger("price >", "an operand is missing", line=1, column=8, hint="price > 1"),
    cw.PlatformRefused("IN_USE", "another trigger reads it", "r1"),
    cw.PlatformUnreachable("tcp://127.0.0.1:5559", 10.0, "alice"),
    cw.RequestFailed("r1", "cancelled"),
    cw.TickersFailed({"A/B.C": errors.UnknownTicker("no such ticker")}, Histories(pa.table({}), {}, {})),
    candlewright_cep.TriggerRejected("an operand is missing", 2, 8, hint="price > 1"),
    cw.TriggerSuspended("t1", "the text divides by zero", 1_700_000_000_000_000_000),
    errors.BusLimit("topics", 10, 10),
    errors.DirectoryMoved("/new", "/old"),
    errors.OffsetOutOfRange("ticks", 0, 5, first=7, end=9),
    errors.RateLimited("too many calls", 1_700_000_000.0),
    errors.RecordsLost("ticks", 0, 5, kept=3),
    errors.RoleLost("driver", 1, 2),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_with_its_text_and_fields(error: Exception) -> None:
    for arrived in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(arrived) is type(error)
        assert str(arrived) == str(error)
        assert repr(vars(arrived)) == repr(vars(error))
