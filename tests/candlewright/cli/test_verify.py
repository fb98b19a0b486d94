"""What `candlewright verify` counts as a difference."""

from typing import Any

import pyarrow as pa

from candlewright.cli.verify import VALUES, differences

Candle = dict[str, float | None]


def candles(**minutes: Candle) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"open_time": int(name[1:]) * 60_000_000, **dict.fromkeys(VALUES, 1.0), "trade_count": 3, **changed}
        for name, changed in minutes.items()
    ]
    schema = pa.schema(
        [
            ("open_time", pa.timestamp("us", "UTC")),
            *((name, pa.float64()) for name in VALUES[:-1]),
            ("trade_count", "int64"),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def found(stored: pa.Table, fresh: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in differences(stored, fresh)]


def test_equal_candles_have_no_difference() -> None:
    assert found(candles(m1={}, m2={}), candles(m1={}, m2={})) == []


def test_a_changed_value_is_shown_on_both_sides() -> None:
    assert found(candles(m1={}, m2={}), candles(m1={"close": 2.0, "trade_count": 4}, m2={})) == [
        ("1970-01-01T00:01:00Z", "differs", "close", 1.0, 2.0),
        ("1970-01-01T00:01:00Z", "differs", "trade_count", 3, 4),
    ]


def test_a_candle_of_one_side_is_named() -> None:
    assert found(candles(m1={}, m3={}), candles(m2={}, m3={})) == [
        ("1970-01-01T00:01:00Z", "not at the exchange", "", None, None),
        ("1970-01-01T00:02:00Z", "was not stored", "", None, None),
    ]


def test_a_stored_candle_in_a_hole_of_the_exchange_is_named() -> None:
    both = candles(m1={}, m2={}, m3={})
    rows = differences(both, both, [(120_000_000_000, 180_000_000_000)])
    assert [(row["open_time"], row["change"]) for row in rows] == [("1970-01-01T00:02:00Z", "not at the exchange")]


def test_a_value_that_only_one_side_reports_is_a_difference_for_prices_alone() -> None:
    assert found(candles(m1={"quote_volume": None}), candles(m1={})) == []
    assert [row[2] for row in found(candles(m1={"volume": None}), candles(m1={}))] == ["volume"]
