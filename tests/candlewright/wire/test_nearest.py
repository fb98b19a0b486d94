import pytest

from candlewright.wire.nearest import did_you_mean, near_symbols, near_venues

LISTED = ("ETH/USDT", "BTC/USDC", "BTC/USDT", "BTC/EUR", "TWC/USDT", "ADA/BNB")


@pytest.mark.parametrize("asked", ["BTC/USDX", "BTCUSDX", "btc/usdx"])
def test_the_nearest_symbols_are_those_of_the_same_base(asked: str) -> None:
    assert set(near_symbols(asked, LISTED)[:2]) == {"BTC/USDT", "BTC/USDC"}


def test_a_symbol_that_resembles_nothing_has_no_near_one() -> None:
    assert near_symbols("QQQ/ZZZ", LISTED) == []


def test_the_nearest_venue() -> None:
    assert near_venues("BINANCEE", ["KRAKEN", "BINANCE"]) == ["BINANCE"]
    assert near_venues("HOUSE", ["KRAKEN", "BINANCE"]) == []


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["A"], "; did you mean A?"),
        (["A", "B"], "; did you mean A or B?"),
        (["A", "B", "C"], "; did you mean A, B or C?"),
    ],
)
def test_proposals_end_a_sentence(names: list[str], text: str) -> None:
    assert did_you_mean(names) == text
