"""The cost of charts in the page, as the benchmark measures it: it does not depend on the number of candles."""

import pytest
from playwright.sync_api import Browser

from benchmarks.servers.charts import FEW_BARS, first, live, scroll

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def test_many_candles_scroll_as_few_do(chromium: Browser) -> None:
    few, many = scroll(chromium, FEW_BARS), scroll(chromium, 100_000)
    assert (few["loaded"], many["loaded"]) == (FEW_BARS, 100_000)
    for way in ("back", "across", "all"):
        assert many[way]["longest_ms"] < 3 * few[way]["longest_ms"] + 10


def test_twenty_live_charts_leave_the_page_most_of_its_time(chromium: Browser) -> None:
    one, twenty = live(chromium, 1, 10.0, seconds=5.0), live(chromium, 20, 10.0, seconds=5.0)
    assert twenty["cores"] < 5 * one["cores"] + 0.1
    assert twenty["longest_ms"] < 100


def test_first_view_is_small(chromium: Browser) -> None:
    assert 0 < first(chromium)["bytes"] < 400_000
