import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hyp
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import OperationalError

from candlewright.wire.errors import CommitConflict, CommitUnknown
from core.settings import Settings
from iceberg import (
    GAPS,
    OHLC,
    append,
    append_or_find,
    compare_candles,
    compare_with_stored,
    drop_old_snapshots,
    has_files_in,
    is_committed,
    load_table,
    read_gaps,
    read_ohlc,
)
from tests.iceberg.rows import MINUTE, TICKER, candles, minutes_of

BATCH = {"candlewright.query-id": "q", "candlewright.batch-id": "7"}


def write(catalog: Catalog, rows: pa.Table) -> None:
    append(load_table(catalog, OHLC), rows, BATCH)


def test_a_range_is_half_open_and_ordered(catalog: Catalog, settings: Settings) -> None:
    write(catalog, candles([5, 3, 4, 1, 2]))
    write(catalog, candles([0, 6]))
    found = read_ohlc(settings, TICKER, 60, start_ns=1 * MINUTE, end_ns=6 * MINUTE)
    assert minutes_of(found) == [1, 2, 3, 4, 5]
    assert str(found.schema.field("open_time").type) == "timestamp[us, tz=UTC]"


def test_limit_is_the_first_rows_even_over_holes(catalog: Catalog, settings: Settings) -> None:
    write(catalog, candles([10, 11, 500, 501, 502]))
    assert minutes_of(read_ohlc(settings, TICKER, 60, start_ns=0, end_ns=10_000 * MINUTE, limit=3)) == [10, 11, 500]
    assert minutes_of(read_ohlc(settings, TICKER, 60, start_ns=10 * MINUTE, end_ns=10_000 * MINUTE, limit=2)) == [
        10,
        11,
    ]


def test_other_tickers_and_periods_are_left_out(catalog: Catalog, settings: Settings) -> None:
    write(catalog, pa.concat_tables([candles([1]), candles([1, 2], ticker="ETH/USDT.BINANCE")]))
    assert read_ohlc(settings, TICKER, 60, start_ns=0, end_ns=10 * MINUTE).num_rows == 1
    assert read_ohlc(settings, TICKER, 3_600, start_ns=0, end_ns=10 * MINUTE).num_rows == 0
    assert read_ohlc(settings, "BTC/USDT.KRAKEN' OR '1'='1", 60, start_ns=0, end_ns=10 * MINUTE).num_rows == 0


def test_gaps_of_a_ticker_come_in_time_order(catalog: Catalog, settings: Settings) -> None:
    rows = [
        {"ticker": ticker, "from_trade_id": str(time), "from_ts": time, "repaired": time == 2, "reason": "closed"}
        for ticker, time in ((TICKER, 3), ("ETH/USDT.BINANCE", 1), (TICKER, 2))
    ]
    append(load_table(catalog, GAPS), pa.Table.from_pylist(rows, schema=GAPS.arrow_schema), BATCH)
    found = read_gaps(settings, TICKER).to_pylist()
    assert [(row["from_trade_id"], row["repaired"], row["missing"]) for row in found] == [
        ("2", True, None),
        ("3", False, None),
    ]


def test_statistics_show_that_a_range_is_empty(catalog: Catalog) -> None:
    write(catalog, candles([1, 2, 3]))
    table = load_table(catalog, OHLC)
    assert has_files_in(table, TICKER, 60, start_ns=2 * MINUTE, end_ns=3 * MINUTE)
    assert not has_files_in(table, TICKER, 60, start_ns=4 * MINUTE, end_ns=9 * MINUTE)


@given(hyp.sets(hyp.integers(0, 30)), hyp.sets(hyp.integers(0, 30)), hyp.sets(hyp.integers(0, 30)))
def test_a_comparison_finds_exactly_the_new_and_changed_rows(
    incoming: set[int], same: set[int], other: set[int]
) -> None:
    other -= same
    known = pa.concat_tables([candles(sorted(same)), candles(sorted(other), close=5.0)])
    difference = compare_candles(candles(sorted(incoming)), known)
    assert set(minutes_of(difference.new)) == incoming - same - other
    assert set(minutes_of(difference.changed)) == incoming & other


def test_bars_are_compared_with_those_of_their_table(catalog: Catalog) -> None:
    other = "ETH/USDT.BINANCE"
    write(catalog, pa.concat_tables([candles([1, 2, 5]), candles([3], other)]))
    table = load_table(catalog, OHLC)
    new = pa.concat_tables([candles([3, 4]), candles([1, 5], other)])
    none_stored = compare_with_stored(table, new)
    assert (none_stored.new, none_stored.changed.num_rows) == (new, 0)
    difference = compare_with_stored(table, pa.concat_tables([new, candles([1]), candles([5], close=2.0)]))
    assert (difference.new, difference.changed) == (new, candles([5], close=2.0))


def test_the_exchanges_candle_wins_over_one_of_ticks() -> None:
    exchange, ticks = candles([1], close=1.0), candles([1], close=2.0, source="ticks")
    assert compare_candles(ticks, exchange).changed.num_rows == 0
    assert compare_candles(exchange, ticks).changed.num_rows == 1


def test_an_unknown_quote_volume_changes_nothing() -> None:
    known, unknown = candles([1]), candles([1], quote_volume=None)
    assert compare_candles(unknown, known).changed.num_rows == 0
    assert compare_candles(known, unknown).changed.num_rows == 1


def test_a_commit_is_found_by_its_batch(catalog: Catalog) -> None:
    write(catalog, candles([1]))
    table = load_table(catalog, OHLC)
    assert is_committed(table, BATCH)
    assert not is_committed(table, {**BATCH, "candlewright.batch-id": "8"})


def test_a_concurrent_commit_is_a_conflict(catalog: Catalog) -> None:
    stale = load_table(catalog, OHLC)
    write(catalog, candles([1]))
    with pytest.raises(CommitConflict):
        append(stale, candles([2]), BATCH)


def test_a_commit_of_unknown_outcome_is_looked_up(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_table(catalog, OHLC)
    commit = type(table)._do_commit

    def commit_and_lose_the_answer(*args: object, **kwargs: object) -> None:
        commit(*args, **kwargs)  # type: ignore[arg-type]
        raise OperationalError("COMMIT", {}, Exception("disk I/O error"))

    monkeypatch.setattr(type(table), "_do_commit", commit_and_lose_the_answer)
    append_or_find(table, candles([1]), BATCH)
    monkeypatch.undo()
    assert load_table(catalog, OHLC).scan().to_arrow().num_rows == 1


def test_a_commit_that_was_lost_asks_for_another_attempt(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_table(catalog, OHLC)

    def lose(*_: object, **__: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("disk full"))

    monkeypatch.setattr(type(table), "_do_commit", lose)
    with pytest.raises(CommitUnknown):
        append(table, candles([1]), BATCH)
    table = load_table(catalog, OHLC)
    with pytest.raises(CommitConflict):
        append_or_find(table, candles([1]), BATCH)


def test_old_snapshots_go_and_rows_stay(catalog: Catalog, settings: Settings) -> None:
    for minute in range(8):
        write(catalog, candles([minute]))
    assert drop_old_snapshots(load_table(catalog, OHLC), keep=3, min_age_seconds=600) == []
    assert len(drop_old_snapshots(load_table(catalog, OHLC), keep=3, min_age_seconds=-1)) == 5
    assert len(load_table(catalog, OHLC).metadata.snapshots) == 3
    assert minutes_of(read_ohlc(settings, TICKER, 60, start_ns=0, end_ns=100 * MINUTE)) == list(range(8))
