"""The quality report of a series, on candles with known faults."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from core.settings import Settings
from datasets import quality_page
from datasets.quality import Quality, examine
from iceberg import create_tables, open_catalog
from iceberg.tables import GAPS, OHLC, OHLC_REVISIONS, TICKS
from tests.datasets.conftest import COUNT, HOLES, MINUTE_US, START_US, UNKNOWN, stored_candles

TICKER = "BTC/USDT.BINANCE"
START, END = START_US * 1_000, (START_US + COUNT * MINUTE_US) * 1_000


def test_missing_candles_are_named_with_their_reason(settings: Settings) -> None:
    found = examine(settings, TICKER, 60, start=START, end=END)
    assert (found.rows, found.holes, found.unknown, found.incomplete) == (COUNT - 3, len(HOLES), len(UNKNOWN), 1)
    first = START + UNKNOWN[0] * MINUTE_US * 1_000
    assert found.unknown_ranges == [(first, first + MINUTE_US * 1_000)]
    assert [(day.got, day.holes, day.expected) for day in found.days] == [(8, 2, 10), (19, 0, 20)]
    assert found.problems == ["candles missing inside the range: 1", "incomplete candles: 1"]


def test_a_range_without_candles_has_nothing_to_report(settings: Settings) -> None:
    found = examine(settings, TICKER, 60, start=0, end=1)
    assert (found.rows, found.first, found.problems, found.days) == (0, None, [], [])


@pytest.fixture
def faulty(tmp_path: Path) -> Settings:
    """Sound candles, and one with each fault; trades that reproduce all but two of them exactly."""
    settings = Settings(data_dir=tmp_path)
    catalog = open_catalog(settings)
    create_tables(catalog)
    rows = stored_candles(TICKER).to_pylist()
    for row in rows:
        row["complete"] = True
        row["open"], row["high"], row["low"], row["close"], row["volume"] = 100.0, 102.0, 99.0, 101.0, 4.0
    for row in rows[12::2]:
        row["close"] = 101.5
    rows[8]["high"] = 100.5
    rows[9]["close"] = 150.0
    rows[9]["high"] = 150.0
    rows[10]["volume"] = rows[11]["volume"] = 0.0
    rows.append(rows[3])
    catalog.load_table(OHLC.identifier).append(pa.Table.from_pylist(rows, schema=OHLC.arrow_schema))
    trades = []
    for number, row in enumerate(rows[:10]):
        open_us = int(row["open_time"].timestamp()) * 1_000_000
        for place, price in enumerate((100.0, 102.0, 99.0, 101.0)):
            moment = np.datetime64(open_us + place * 1_000_000, "us")
            trades.append(
                {
                    "ticker": TICKER,
                    "trade_id": str(number * 4 + place),
                    "ts": moment.item(),
                    "ts_ns": int(moment.astype(int)) * 1_000,
                    "price": price,
                    "size": 1.5 if number == 2 and place == 0 else 1.0,
                    "side": "buy",
                    "received_at": (moment + np.timedelta64(20, "ms")).item(),
                }
            )
    catalog.load_table(TICKS.identifier).append(pa.Table.from_pylist(trades, schema=TICKS.arrow_schema))
    gap = dict.fromkeys(GAPS.arrow_schema.names)
    gap |= {"ticker": TICKER, "from_ts": rows[0]["open_time"], "to_ts": rows[1]["open_time"], "repaired": False}
    catalog.load_table(GAPS.identifier).append(pa.Table.from_pylist([gap], schema=GAPS.arrow_schema))
    revisions = [{**rows[0], "revision": number, "known_at": rows[1]["open_time"]} for number in (0, 1)]
    table = pa.Table.from_pylist(revisions, schema=OHLC_REVISIONS.arrow_schema)
    catalog.load_table(OHLC_REVISIONS.identifier).append(table)
    return settings


def test_each_fault_is_counted(faulty: Settings) -> None:
    found = examine(faulty, TICKER, 60, start=START, end=END)
    assert found.duplicates == 1
    assert found.malformed == 1
    assert (found.without_trades, found.longest_without_trades) == (2, 2)
    assert found.outlier_count == 2
    assert [round(each.move, 3) for each in found.outliers] == [0.485, -0.327]
    assert (found.gaps_open, found.gaps_repaired, found.revised) == (1, 0, 1)
    assert found.delay_ms == (20.0, 20.0)


def test_candles_are_compared_with_the_trades_between_the_edges(faulty: Settings) -> None:
    """The trades cover ten candles, with a hole of two minutes after the fifth; the first and last candle of each run
    are not compared.
    """
    trades = examine(faulty, TICKER, 60, start=START, end=END).trades
    assert trades.compared == trades.equal + trades.volume_differs + trades.price_differs
    assert (trades.volume_differs, trades.volume_off) == (1, 0.125)
    assert trades.price_differs == 1
    assert examine(faulty, TICKER, 60, start=START, end=END, with_trades=False).trades.compared == 0


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_has_a_square_a_day_and_loads_nothing(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "quality.html"
    found = [examine(settings, TICKER, 60, start=START, end=END), Quality(ticker="<b>/X.Y", period_seconds=60, rows=0)]
    quality_page.write(found, file)
    page = file.read_text()
    tags = _Tags()
    tags.feed(page)
    assert [each["class"] for tag, each in tags.found if tag == "rect"] == ["l4", "l2"]
    assert not [tag for tag, _ in tags.found if tag in ("script", "link", "img", "b")]
    assert "http" not in page
    assert "candles missing inside the range: 1" in page
