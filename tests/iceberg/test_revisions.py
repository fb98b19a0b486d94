"""Every bar as it was first known, and every correction: numbers, times, and the revision in effect at a time."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hyp
from pyiceberg.catalog import Catalog

from core.settings import Settings
from iceberg import (
    COMMITTED,
    OHLC_REVISIONS,
    append,
    corrections,
    load_table,
    new_revisions,
    read_as_of,
    read_corrected,
    read_published,
    scan_revisions,
)
from tests.iceberg.rows import MINUTE, TICKER, candles, minutes_of
from venues.sound import MAX_REVISION

SCHEMA = OHLC_REVISIONS.arrow_schema
NONE = SCHEMA.empty_table()


def published(
    minutes: list[int],
    known_ms: int,
    close: float = 1.0,
    *,
    revision: int = 0,
    source: str = "ticks",
    ticker: str = TICKER,
) -> pa.Table:
    """Bars of one moment, as on the topic."""
    rows = candles(minutes, ticker, close, source=source)
    count = rows.num_rows
    columns = {name: rows[name] for name in SCHEMA.names if name in rows.column_names} | {
        "revision": pa.array([revision] * count, pa.int32()),
        "known_at": pa.array([known_ms * 1_000 + place for place in range(count)]).cast(pa.timestamp("us", "UTC")),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def store(catalog: Catalog, rows: pa.Table) -> None:
    append(load_table(catalog, OHLC_REVISIONS), rows, {"a": "b"})


def told(rows: pa.Table) -> list[tuple[int, int, float, str]]:
    """(minute, revision, close, source) in order."""
    others = (rows[name].to_pylist() for name in ("revision", "close", "source"))
    return sorted(zip(minutes_of(rows), *others, strict=True))


def test_a_revision_keeps_the_number_of_its_publication() -> None:
    rows = new_revisions(pa.concat_tables([published([1, 2], 5), published([1], 6, 2.0, revision=1)]), NONE)
    assert told(rows) == [(1, 0, 1.0, "ticks"), (1, 1, 2.0, "ticks"), (2, 0, 1.0, "ticks")]


def test_a_taken_number_is_not_given_out_again() -> None:
    known = pa.concat_tables([published([1], 5), published([1], 6, revision=1)])
    rows = new_revisions(pa.concat_tables([published([1], 7, 3.0), published([1], 7, 4.0, revision=1)]), known)
    assert told(rows) == [(1, 2, 3.0, "ticks"), (1, 3, 4.0, "ticks")]


@pytest.mark.parametrize("stored", [MAX_REVISION, MAX_REVISION + 1, 2**31 - 1])
def test_no_stored_number_is_the_last_one(stored: int) -> None:
    known = pa.concat_tables([published([1], 5, revision=4), published([1], 6, revision=stored)])
    rows = new_revisions(published([1], 7, 3.0, revision=2), known)
    assert told(rows) == [(1, 5 if stored == 2**31 - 1 else stored + 1, 3.0, "ticks")]


def test_bars_stored_together_are_not_stored_again() -> None:
    rows = published([1, 2, 3], 5)
    assert new_revisions(rows, rows).num_rows == 0


@given(
    hyp.lists(hyp.tuples(hyp.integers(0, 3), hyp.integers(0, 4)), min_size=1),
    hyp.sets(hyp.tuples(hyp.integers(0, 3), hyp.integers(0, 4))),
)
def test_numbers_are_unique_and_ascend_with_publication(
    incoming: list[tuple[int, int]], known: set[tuple[int, int]]
) -> None:
    rows = pa.concat_tables([published([m], 100 + at, revision=r) for at, (m, r) in enumerate(incoming)])
    before = pa.concat_tables([NONE, *(published([m], r, revision=r) for m, r in sorted(known))])
    found = new_revisions(rows, before)
    numbers = list(zip(minutes_of(found), found["revision"].to_pylist(), strict=True))
    assert [minute for minute, _ in numbers] == [minute for minute, _ in incoming]
    assert len({*numbers, *known}) == len(numbers) + len(known)
    assert all(number >= revision for (_, number), (_, revision) in zip(numbers, incoming, strict=True))
    for minute in range(4):
        own = [number for other, number in numbers if other == minute]
        assert own == sorted(own)
        assert all(number > taken for number in own for other, taken in known if other == minute)


def test_history_first_publishes_new_bars_and_then_only_changes() -> None:
    known = pa.concat_tables([published([1, 2], 5), published([3], 5, source="exchange")])
    rows = corrections(candles([1, 2, 3, 4]), known, 9)
    assert told(rows) == [(1, 1, 1.0, "exchange"), (2, 1, 1.0, "exchange"), (4, 0, 1.0, "exchange")]
    assert {time % 1_000 for time in rows["known_at"].cast(pa.int64()).to_pylist()} == {COMMITTED}
    assert corrections(candles([1, 2, 3, 4]), pa.concat_tables([known, rows]), 10).num_rows == 0


def test_the_exchanges_own_candle_counts_even_when_a_late_trade_comes_after_it() -> None:
    known = pa.concat_tables([published([1], 5, 2.0, source="exchange"), published([1], 6, 3.0, revision=1)])
    assert corrections(candles([1], close=2.0), known, 9).num_rows == 0


@pytest.mark.parametrize(
    ("at_ms", "expected"),
    [
        (9, []),
        (10, [(1, 0, 1.0, "ticks"), (2, 0, 1.0, "ticks")]),
        (20, [(1, 1, 2.0, "ticks"), (2, 0, 1.0, "ticks")]),
        (31, [(1, 2, 3.0, "exchange"), (2, 0, 1.0, "ticks"), (3, 0, 3.0, "exchange")]),
        (40, [(1, 2, 3.0, "exchange"), (2, 0, 1.0, "ticks"), (3, 0, 3.0, "exchange")]),
    ],
)
def test_bars_are_read_as_they_were_known_at_a_time(
    catalog: Catalog, settings: Settings, at_ms: int, expected: list[tuple[int, int, float, str]]
) -> None:
    for rows in (published([1, 2], 10), published([1], 20, 2.0, revision=1)):
        store(catalog, rows)
    table = load_table(catalog, OHLC_REVISIONS)
    store(catalog, corrections(candles([1, 3], close=3.0), scan_revisions(table, candles([1, 3])), 30))
    store(catalog, published([1], 40, 4.0, revision=3))
    store(catalog, published([1], 10, ticker="ETH/USDT.BINANCE"))
    at_ns = at_ms * 1_000_000 + 5_000
    assert told(read_as_of(settings, TICKER, 60, start_ns=0, end_ns=10 * MINUTE, as_of_ns=at_ns)) == expected
    assert (
        minutes_of(read_as_of(settings, TICKER, 60, start_ns=0, end_ns=10 * MINUTE, as_of_ns=at_ns, limit=1))
        == [1][: len(expected)]
    )


def test_corrected_bars_are_read_with_their_newest_revision(catalog: Catalog) -> None:
    for revision, minutes in enumerate(([1, 2, 3, 4], [4, 1, 2], [2])):
        store(catalog, published(minutes, 10 + revision, revision=revision))
    store(catalog, published([3], 20, revision=1, ticker="ETH/USDT.BINANCE"))
    table = load_table(catalog, OHLC_REVISIONS)
    assert [(minutes_of(read_corrected(table, TICKER, 60, limit=count)), count) for count in (9, 2)] == [
        ([1, 2, 4], 9),
        ([2, 4], 2),
    ]
    assert read_corrected(table, TICKER, 60, limit=9)["revision"].to_pylist() == [1, 2, 1]
    assert read_corrected(table, TICKER, 300, limit=9).num_rows == 0


def test_published_bars_are_read_in_the_order_of_their_publication(catalog: Catalog, settings: Settings) -> None:
    store(catalog, published([4, 3], 20))
    store(catalog, published([1, 2], 10))
    store(catalog, corrections(candles([9], source="derived"), NONE, 15))
    assert minutes_of(read_published(settings, TICKER, 60, since_ns=0)[1]) == [1, 2, 4, 3]
    assert minutes_of(read_published(settings, TICKER, 0, since_ns=15_000_000)[1]) == [4, 3]
    assert minutes_of(read_published(settings, TICKER, 300, since_ns=0)[1]) == []


def test_rows_published_before_a_time_distinguish_first_revisions_from_later_ones(
    catalog: Catalog, settings: Settings
) -> None:
    """Also if history stored the candle first, so that the candle has the number 0."""
    store(catalog, corrections(candles([1, 2, 3], close=3.0), NONE, 5))
    for known_ms, minutes in ((10, [1, 2]), (20, [2, 3]), (30, [3])):
        known = scan_revisions(load_table(catalog, OHLC_REVISIONS), candles(minutes))
        store(catalog, new_revisions(published(minutes, known_ms), known))
    before, after = read_published(settings, TICKER, 60, since_ns=15_000_000)
    assert told(before) == [(2, 0, 1.0, "ticks")]
    assert told(after) == [(2, 1, 1.0, "ticks"), (3, 0, 1.0, "ticks"), (3, 1, 1.0, "ticks")]


def test_only_revisions_of_the_asked_bars_are_read(catalog: Catalog) -> None:
    many = [published([minute], 1, ticker=f"C{number}/USDT.X") for number in range(60) for minute in (1, 9)]
    store(catalog, pa.concat_tables(many))
    few = scan_revisions(load_table(catalog, OHLC_REVISIONS), candles([1], "C7/USDT.X"), numbers_only=True)
    assert few.to_pylist() == [{**few.to_pylist()[0], "ticker": "C7/USDT.X", "revision": 0}]
    opened = {f"C{number}/USDT.X": 9 if number % 3 == 0 else 1 for number in range(20)}
    some = pa.concat_tables([candles([minute], ticker) for ticker, minute in opened.items()])
    found = scan_revisions(load_table(catalog, OHLC_REVISIONS), some, numbers_only=True)
    assert dict(zip(found["ticker"].to_pylist(), minutes_of(found), strict=True)) == opened
    assert found.num_rows == 20
    asked = pa.concat_tables([candles([1], f"C{number}/USDT.X") for number in range(60)])
    assert scan_revisions(load_table(catalog, OHLC_REVISIONS), asked).num_rows == 60
