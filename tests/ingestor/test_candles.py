"""Columns of candles, their records on the bus, and the ranges that they leave out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import Position
from candlewright.wire.errors import BadReply
from candlewright.wire.grid import SECOND
from ingestor.candles import EMPTY, Candles, RowLayout, joined
from ingestor.exchange.periods import native_periods
from ingestor.history.coverage import Coverage
from ingestor.history.page_record import page_record
from ingestor.history.publisher import spans
from protobuf import records_pb2 as records

LAYOUT = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=5, quote_volume=6, trade_count=7)
MINUTE = 60 * SECOND


def row(ms: int, price: str = "1.5") -> list[object]:
    return [ms, price, price, price, price, "2.25", "9.5", 4]


def test_rows_in_any_order_come_out_ascending_and_the_last_of_equal_times_stays() -> None:
    candles = LAYOUT.read([row(180_000), row(60_000, "7"), row(120_000), row(60_000, "8")])
    assert candles.open_time.tolist() == [MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert candles.open.tolist() == [8.0, 1.5, 1.5]


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**18, places=10))
def test_a_decimal_text_is_parsed_once_and_correctly_rounded(value: object) -> None:
    assert LAYOUT.read([row(0, str(value))]).close[0] == float(str(value))


@pytest.mark.parametrize(
    "rows",
    [
        [[0, "1"]],
        [row(0), row(60_000)[:-1]],
        [["x", *row(0)[1:]]],
        [[0, None, "1", "1", "1", "1", "1", 1]],
        [[0, "inf", "inf", "1", "1", "1", "1", 1]],
        [[0, "1", "1", "2", "1", "1", "1", 1]],
        [[0, "1", "1", "1", "1", "-1", "1", 1]],
        [[-60_000, "1", "1", "1", "1", "1", "1", 1]],
        [17],
        ["text that is long enough"],
    ],
)
def test_rows_that_are_not_candles_are_a_bad_reply(rows: list[object]) -> None:
    with pytest.raises(BadReply):
        LAYOUT.read(rows)


@pytest.mark.parametrize("has_more", [True, False])
@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_a_record_equals_the_encoding_of_protobuf(count: int, has_more: bool) -> None:
    times = np.arange(count, dtype=np.int64) * MINUTE
    numbers = np.linspace(0.1, 5, count)
    candles = Candles(
        open_time=times,
        open=numbers,
        high=numbers + 1,
        low=numbers - 1,
        close=numbers / 3,
        volume=numbers * 7,
        quote_volume=numbers * 3 if has_more else None,
        trade_count=np.arange(count, dtype=np.uint64) if has_more else None,
    )
    record = page_record(
        candles, request_id="r", job_id="j", ticker="BTC/USDT.BINANCE", period_seconds=60, source="exchange"
    )
    wanted = records.HistoryPage(
        request_id="r",
        job_id="j",
        ticker="BTC/USDT.BINANCE",
        period_seconds=60,
        source="exchange",
        open_time=times.tolist(),
        open=candles.open.tolist(),
        high=candles.high.tolist(),
        low=candles.low.tolist(),
        close=candles.close.tolist(),
        volume=candles.volume.tolist(),
        quote_volume=[] if candles.quote_volume is None else candles.quote_volume.tolist(),
        trade_count=[] if candles.trade_count is None else candles.trade_count.tolist(),
    )
    assert records.HistoryPage.FromString(record.value) == wanted
    assert record.partition_key == b"BTC/USDT.BINANCE"


@given(st.sets(st.integers(0, 60)), st.integers(0, 59), st.integers(1, 10))
def test_holes_and_rows_make_up_the_range(opens: set[int], start: int, cut: int) -> None:
    times = np.array(sorted(n * MINUTE for n in opens if n >= start), np.int64)
    coverage = Coverage(start=start * MINUTE, period_seconds=60)
    column = np.ones(len(times))
    whole = Candles(open_time=times, open=column, high=column, low=column, close=column, volume=column)
    for begin in range(0, len(times), cut):
        coverage.add(whole.take(slice(begin, begin + cut)))
    expected = coverage.close(61 * MINUTE)
    missing = [time for begin, end in coverage.holes for time in range(begin, end, MINUTE)]
    assert expected == 61 - start
    assert sorted([*missing, *times.tolist()]) == [n * MINUTE for n in range(start, 61)]
    assert all(one[1] < two[0] for one, two in zip(coverage.holes, coverage.holes[1:], strict=False))


def test_columns_that_not_all_parts_have_are_unknown() -> None:
    full = LAYOUT.read([row(0)])
    bare = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=5).read([row(60_000)])
    both = joined([full, bare])
    assert both.quote_volume is None and both.trade_count is None and len(both) == 2
    assert len(EMPTY) == 0


def test_spans_are_runs_of_offsets() -> None:
    runs = spans([Position(2, offset) for offset in (4, 5, 6, 9, 11, 12)])
    assert [(run.first_offset, run.last_offset) for run in runs] == [(4, 6), (9, 9), (11, 12)]


def test_months_and_misleading_names_are_not_periods() -> None:
    table = {"1m": 1, "1h": "60", "1d": "D", "2w": 21_600, "1w": 10_080, "1M": "1M", "3M": "3M", "1y": "1y", "x": 3}
    assert native_periods(table) == {60: "1m", 3_600: "1h", 86_400: "1d", 604_800: "1w"}
    assert native_periods(None) == {}
