from __future__ import annotations

import pytest

from sandbox.markets.instruments import DEFAULT_INSTRUMENTS, make_instrument, utc_ms


def test_built_in_pairs_are_unique_and_include_quiet_and_delisted_ones() -> None:
    symbols = [instrument.symbol for instrument in DEFAULT_INSTRUMENTS]
    assert len(set(symbols)) == len(symbols) >= 8
    assert {"BTCUSDT", "ETHUSDT"} <= set(symbols)
    assert len({instrument.listed_ms for instrument in DEFAULT_INSTRUMENTS}) > 1
    assert [instrument.symbol for instrument in DEFAULT_INSTRUMENTS if instrument.delisted_ms] == ["WAVESUSDT"]
    assert min(instrument.orders_per_minute for instrument in DEFAULT_INSTRUMENTS) < 1


def test_a_listed_pair_is_returned_and_a_dollar_pair_has_the_price_of_its_usdt_pair() -> None:
    assert make_instrument("btc/usdt") is DEFAULT_INSTRUMENTS[0]
    assert make_instrument("BTC/USD").typical_price == DEFAULT_INSTRUMENTS[0].typical_price


def test_made_up_pair_is_the_same_each_time() -> None:
    assert make_instrument("FOO/BAR") == make_instrument("FOO/BAR") != make_instrument("BAR/FOO")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2024-03-05T12:00:30.250", 1709640030250),
        ("2024-03-05T13:00:30+01:00", 1709640030000),
        ("2024-03-05T12:00:30Z", 1709640030000),
    ],
)
def test_times_without_a_zone_are_utc(text: str, ms: int) -> None:
    assert utc_ms(text) == ms
