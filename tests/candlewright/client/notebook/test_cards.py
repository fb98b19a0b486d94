"""What a notebook shows of results: complete, escaped, and of a bounded size."""

import re
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import candlewright as cw
from candlewright.client.history.stored import Stored
from candlewright.client.notebook.picture import MOST_COLUMNS, candle_picture
from candlewright.client.records import Notification, Outcome, Range, TriggerInfo
from candlewright.client.triggers.trigger_events import TriggerEvent
from tests.candlewright.client.trigger_relay import START, event

MINUTE = 60_000_000_000


def candles(*minutes: int) -> pa.Table:
    opens = np.array(minutes, dtype=np.int64) * 60_000_000 + START // 1_000
    rising = np.arange(len(minutes), dtype=float) + 100
    return pa.table(
        {
            "open_time": pa.array(opens, pa.timestamp("us", "UTC")),
            "open": rising,
            "high": rising + 3,
            "low": rising - 2,
            "close": rising + np.where(np.arange(len(minutes)) % 2, -1.0, 1.0),
        }
    )


def history(table: pa.Table, holes: tuple[tuple[int, int], ...] = (), ticker: str = "BTC/USDT.BINANCE") -> cw.History:
    final = Notification(
        request_id="r",
        ticker=ticker,
        period_seconds=60,
        start=START,
        end=START + 9 * MINUTE,
        status=Outcome.OK,
        error_message="",
        table="t",
        row_count=table.num_rows,
        completed_at=1,
    )
    return cw.History(table, final, holes)


def shapes(html: str) -> list[str]:
    """The paths of the candles, rising ones first; the document must be well-formed."""
    root = ElementTree.fromstring(html)
    return [path.get("d", "") for path in root.iter("path")]


def test_a_history_shows_each_candle_and_each_hole() -> None:
    hole = (START + 2 * MINUTE, START + 4 * MINUTE)
    html = history(candles(0, 1, 4, 5, 6), (hole,))._repr_html_()
    rising, falling = shapes(html)
    assert (rising.count("z"), falling.count("z")) == (3, 2)
    assert "BTC/USDT.BINANCE 1m" in html
    assert "5 candles" in html
    assert "hole: 2024-01-01T00:02:00Z to 2024-01-01T00:04:00Z" in html
    shade = re.search(r'<rect x="([\d.]+)" width="([\d.]+)"', html)
    assert shade is not None
    # Two of seven minutes, after the first two.
    assert (float(shade[1]), float(shade[2])) == (
        pytest.approx(4 + 632 * 2 / 7, abs=0.1),
        pytest.approx(632 * 2 / 7, abs=0.1),
    )


def test_a_picture_of_many_candles_stays_small_and_keeps_the_extremes() -> None:
    table = candles(*range(100_000))
    html = candle_picture(table, 60)
    assert sum(path.count("z") for path in shapes(html)) == MOST_COLUMNS
    assert len(html) < 20_000
    # The highest price touches the upper edge, the lowest the lower one.
    assert "M" in html
    tops = [float(each) for each in re.findall(r"M[\d.]+ ([\d.]+)V", html)]
    feet = [float(each) for each in re.findall(r"V([\d.]+)", html)]
    assert (min(tops), max(feet)) == (4.0, 136.0)


def test_a_card_with_many_holes_shows_how_many_are_left_out() -> None:
    holes = tuple((START + each * MINUTE, START + (each + 1) * MINUTE) for each in range(1, 2_001, 2))
    html = history(candles(*range(0, 2_001, 2)), holes)._repr_html_()
    assert html.count("hole: ") == 5
    assert "995 more holes" in html
    assert len(html) < 80_000


def test_an_empty_history_and_one_candle_have_a_card() -> None:
    assert "0 candles" in history(candles())._repr_html_()
    assert len(shapes(history(candles(3))._repr_html_())) == 2


def test_external_text_is_escaped() -> None:
    html = history(candles(1), ticker="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in html
    info = TriggerInfo(
        trigger_id="<b>t</b>", sql="price < 3", tickers=(), state="suspended", reason="a & b", registered_at=0, events=7
    )
    assert "&lt;b&gt;t" in info._repr_html_()
    assert "price &lt; 3" in info._repr_html_()
    assert "a &amp; b" in info._repr_html_()
    assert "7 events" in info._repr_html_()


def test_stored_candles_show_their_unknown_ranges() -> None:
    wanted = Range("BTC/USDT.BINANCE", 60, START, START + 6 * MINUTE)
    html = Stored.of(candles(0, 1, 4, 5), wanted, [(START + 2 * MINUTE, START + 3 * MINUTE)])._repr_html_()
    assert "hole: 2024-01-01T00:02:00Z to 2024-01-01T00:03:00Z" in html
    assert "unknown range: 2024-01-01T00:03:00Z to 2024-01-01T00:04:00Z" in html


def test_events_are_a_table_and_a_frame() -> None:
    found = cw.Events(TriggerEvent.from_message(event("mine", number)) for number in (1, 2))
    frame = found.to_arrow()
    assert frame.column_names == ["event_id", "fired_at", "ticker", "price", "seen_at", "note"]
    assert frame["price"].to_pylist() == [70_001.5, 70_002.5]
    assert frame["fired_at"].cast("int64").to_pylist() == [START + 1, START + 2]
    assert frame.schema.field("seen_at").type == pa.timestamp("ns", "UTC")
    assert found.to_polars()["ticker"].to_list() == found.to_pandas()["ticker"].to_list() == ["BTC/USDT.BINANCE"] * 2
    html = found._repr_html_()
    assert "2 events" in html
    assert "70001.5" in html
    assert "2024-01-01T00:00:00.000000002Z" in html
    assert html.count("<tr>") == 3
    assert html.count(">ticker<") == 1
    assert "70001.5" in found[0]._repr_html_()
    assert cw.Events().to_arrow().num_rows == 0
