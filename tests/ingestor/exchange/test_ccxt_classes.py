import json
import subprocess
import sys

import ccxt.async_support
import ccxt.pro
import pytest

from ingestor.exchange.ccxt_classes import exchange_class, exchange_ids

_ASK = """
import json, sys
from ingestor.exchange import stock
from ingestor.exchange.ccxt_classes import exchange_class
from ingestor.venues import venue_of

stock.build(venue_of("BINANCE"), url="", timeout_seconds=1, streaming={streaming})
loaded = [name for name in sys.modules if name.split(".")[0] == "ccxt" and name.endswith((".binance", ".kraken"))]
import ccxt.pro
binance = exchange_class("binance", streaming=True)
same = binance is ccxt.pro.binance, ccxt.async_support.binance in binance.__mro__
print(json.dumps([sorted(loaded), same, ccxt.pro.kraken.__name__, ccxt.BadSymbol.__name__]))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("streaming", "loaded"),
    [
        (False, ["ccxt.abstract.binance", "ccxt.async_support.binance"]),
        (True, ["ccxt.abstract.binance", "ccxt.async_support.binance", "ccxt.pro.binance"]),
    ],
)
def test_only_the_exchanges_in_use_are_loaded(streaming: bool, loaded: list[str]) -> None:
    asked = [sys.executable, "-c", _ASK.format(streaming=streaming)]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True).stdout
    assert json.loads(told) == [loaded, [True, True], "kraken", "BadSymbol"]


def test_the_ids_are_those_that_ccxt_lists() -> None:
    assert sorted(exchange_ids()) == sorted(ccxt.async_support.exchanges)
    assert sorted(exchange_ids(streaming=True)) == sorted(ccxt.pro.exchanges)


@pytest.mark.parametrize("streaming", [False, True])
def test_every_class_is_the_one_that_ccxt_exports(streaming: bool) -> None:
    package = ccxt.pro if streaming else ccxt.async_support
    for ccxt_id in exchange_ids(streaming=streaming):
        assert exchange_class(ccxt_id, streaming=streaming) is getattr(package, ccxt_id)
