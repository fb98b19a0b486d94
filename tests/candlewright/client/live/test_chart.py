"""The chart of notebooks: the messages of its kernel side, and the whole chart in a real Chromium."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import candlewright as cw
from candlewright.client.live.chart import BUNDLE, Chart
from candlewright.wire.errors import CandlewrightError
from core.settings import Settings
from tests.candlewright.client.test_twins import Relay, relay  # noqa: F401

TICKER = "BTC/USDT.BINANCE"
START = 1_704_067_200
ROWS = 400


def stored(path: str, query: Mapping[str, object]) -> bytes:
    """What the HTTP API answers: bars of one minute, with a gap of ten."""
    if query["period"] == "5m":
        raise CandlewrightError("no rows of 5m")
    opens = [START + 60 * each for each in range(ROWS) if not 200 <= each < 210] if path == "bars" else []
    if "end" in query:
        opens = []
    rows = [
        {"open_time": iso(at), "open": 100.0, "high": 103.0, "low": 98.0, "close": 101.0 + at % 3, "volume": 2.0}
        for at in opens
    ]
    return json.dumps({"rows": rows}).encode()


def iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Page:
    """Stands for the notebook's page: receives what the widget sends, and sends what a view would."""

    def __init__(self, chart: Chart, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chart = chart
        self.got: list[tuple[dict[str, Any], list[bytes]]] = []
        monkeypatch.setattr(chart, "send", lambda content, buffers=None: self.got.append((content, buffers or [])))

    def say(self, **content: object) -> None:
        self.chart._take(self.chart, content, [])

    def wait(self, kind: str, **other: object) -> list[Any]:
        """The content of the first message of this kind."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for content, buffers in self.got:
                if content.get("kind") == kind and other.items() <= content.items():
                    return [content, *(json.loads(each) for each in buffers)]
            time.sleep(0.01)
        raise AssertionError(self.got)


@pytest.fixture
def client(relay: Relay) -> Iterator[cw.Client]:  # noqa: F811
    with cw.connect(relay.requests, relay.notifications, settings=Settings()) as c:
        yield c


@pytest.fixture
def chart(client: cw.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chart]:
    if not BUNDLE.is_file():
        pytest.skip("the console's pages are not bundled (./run build)")
    monkeypatch.setattr(client._connection, "read", stored)
    chart = client.chart(TICKER, "1m")
    yield chart
    chart.close()


def test_a_chart_answers_the_reads_of_its_view(chart: Chart, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(chart, monkeypatch)
    page.say(view="v", what="get", id=1, path="bars", query={"period": "1m"})
    page.say(view="v", what="get", id=2, path="bars", query={"period": "5m"})
    page.say(view="v", what="get", id=3, path="sql", query={})
    (first, [body]), (second, _), (third, _) = page.got
    assert (first, len(json.loads(body)["rows"])) == ({"view": "v", "answer": 1}, ROWS - 10)
    assert second == {"view": "v", "answer": 2, "error": "no rows of 5m"}
    assert third["error"] == "a chart does not read 'sql'"


def test_a_chart_without_its_widget_names_its_bars(chart: Chart) -> None:
    assert chart._repr_mimebundle_()[0]["text/plain"] == f"<Chart {TICKER} 1m>"


def test_a_displayed_chart_has_its_first_bars_before_the_kernel_answers(
    relay: Relay,  # noqa: F811
    chart: Chart,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = Page(chart, monkeypatch)
    chart._repr_mimebundle_()
    assert len(json.loads(chart.first)["rows"]) == ROWS - 10
    relay.wait_for_subscription(f"OHLC:{TICKER}:60")
    relay.add_bars(1)
    page.wait("messages", topic=f"OHLC:{TICKER}:60")
    # A view that opens later asks for the newest.
    page.say(view="a", what="open")
    assert chart.first == b""
    page.say(view="a", what="close")
    relay.wait_for_subscription(f"OHLC:{TICKER}:60", is_there=False)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_chart_is_displayed_although_its_bars_cannot_be_read(
    chart: Chart, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    answered = threading.Event()

    def fail(*_: object) -> bytes:
        if is_silent:
            answered.wait()
        raise CandlewrightError("no answer")

    monkeypatch.setattr(chart, "_read", fail)
    monkeypatch.setattr("candlewright.client.live.chart.FIRST_SECONDS", 0.05 if is_silent else 20)
    assert chart._repr_mimebundle_()[0]["text/plain"]
    assert chart.first == b""
    answered.set()


def test_a_chart_follows_its_topics_while_it_is_shown(
    relay: Relay,  # noqa: F811
    chart: Chart,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = Page(chart, monkeypatch)
    for view in ("a", "b"):
        page.say(view=view, what="open")
    topic = f"OHLC:{TICKER}:60"
    relay.wait_for_subscription(topic)
    relay.add_bars(1, 2, 3)
    _, bars = page.wait("messages", topic=topic)
    assert bars[0]["sequence"] == 1
    assert bars[0]["open_time"].endswith("Z")
    page.say(view="a", what="close")
    assert chart._streams
    page.say(view="b", what="close")
    relay.wait_for_subscription(topic, is_there=False)
    page.say(view="a", what="open")
    relay.wait_for_subscription(topic)


def test_a_chart_of_a_closed_client_reports_it(
    client: cw.Client, chart: Chart, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page(chart, monkeypatch)
    client.close()
    page.say(view="a", what="open")
    [content] = page.wait("failed")
    assert "client is closed" in content["reason"]


def test_a_wrong_ticker_or_period_is_refused_at_once(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequest, match="ticker"):
        client.chart("BTCUSDT")
    with pytest.raises(cw.InvalidRequest, match="period"):
        client.chart(TICKER, "1x")


def test_the_asyncio_twin_has_charts_over_its_own_sockets(
    relay: Relay,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not BUNDLE.is_file():
        pytest.skip("the console's pages are not bundled (./run build)")

    async def follow() -> Chart:
        async with cw.aconnect(relay.requests, relay.notifications, settings=Settings()) as c:
            chart = c.chart(TICKER, "1m")
            page = Page(chart, monkeypatch)
            page.say(view="a", what="open")
            await asyncio.to_thread(relay.wait_for_subscription, f"OHLC:{TICKER}:60")
            relay.add_bars(1)
            await asyncio.to_thread(page.wait, "messages", topic=f"OHLC:{TICKER}:60")
            return chart

    chart = asyncio.run(follow())
    relay.wait_for_subscription(f"OHLC:{TICKER}:60", is_there=False)
    assert all(stream._host.is_closed for stream in chart._streams)
    chart.close()
