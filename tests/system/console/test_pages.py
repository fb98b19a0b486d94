"""Each page of the console in a real Chromium, on the running platform. Pictures are in artifacts/console."""

import re
import webbrowser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Locator, Route, expect

from candlewright_platform.cli.machine.console import open_console
from tests.system.conftest import System
from tests.system.console.conftest import STORED_MINUTES, Open, Shown

pytestmark = pytest.mark.timeout(240)

PAGES = ("markets", "chart", "triggers", "events", "sql", "requests", "quality", "system")
WIDTHS = (390, 1440, 2560)
COLOURS: tuple[Literal["light", "dark"], ...] = ("light", "dark")
FIRST_VIEW_BYTES = 400_000
#: The element that has the focus, whether it shows that, and the number that it got when it first had the focus: the
#: given one.
#: A date field marks the part of it that has the focus.
FOCUS = """(number) => {
  const host = document.activeElement;
  const inner = host.shadowRoot?.activeElement ?? host;
  const text = inner.textContent.trim().slice(0, 40);
  const name = inner.getAttribute("aria-label") || text || inner.outerHTML.slice(0, 80);
  const hasOutline = [host, inner].some((each) => getComputedStyle(each).outlineStyle !== "none");
  const isMarked = hasOutline || inner.type === "date";
  if (host === document.body) return ["BODY", isMarked, null];
  inner.walked ??= number;
  return [name, isMarked, inner.walked];
}"""


#: Whether the page, or its content beside the navigation, can be moved sideways.
FITS = "() => [document.documentElement, document.querySelector('main')].every((e) => e.scrollWidth <= e.clientWidth)"


def path_of(page: str, ticker: str) -> str:
    return f"/chart?ticker={ticker}&period=1m" if page == "chart" else f"/{page}"


def wait_for_page(shown: Shown, page: str) -> None:
    if page == "chart":
        expect(shown.page.locator(".chart-panel canvas").first).to_be_visible()
    else:
        expect(shown.page.locator("main h1").first).to_be_visible()
    expect(shown.page.locator("main > .waiting")).to_have_count(0)


def bars_of(picture: Locator) -> int:
    found = re.search(r"(\d+) bars", picture.get_attribute("aria-label") or "")
    return int(found[1]) if found else 0


def test_chart_shows_stored_bars_and_forms_the_next_one(show: Open, stored: str) -> None:
    shown = show(dark=True)
    page = shown.go(path_of("chart", stored))
    picture = page.get_by_role("img", name=f"Candles of {stored} by 1m")
    expect(picture).to_be_visible()
    expect(page.locator(".legend")).to_contain_text("forming")
    expect(page.locator(".tape tbody tr").first).to_be_visible()
    expect(page.locator(".health")).to_have_text("Live")
    # Live bars may be drawn before the stored ones have come.
    for _ in range(300):
        if bars_of(picture) >= STORED_MINUTES:
            break
        page.wait_for_timeout(100)
    assert bars_of(picture) >= STORED_MINUTES
    shown.picture("chart-live")
    assert shown.errors == []


def test_the_command_opens_a_chart_of_the_running_console(
    show: Open, stored: str, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setenv("CANDLEWRIGHT_CONSOLE__BIND", system.platform.settings.console.bind)
    open_console(stored, "5m", is_printed=False, data_dir=system.platform.data_dir, config=None)
    shown = show()
    shown.page.goto(opened[0])
    expect(shown.page.get_by_role("region", name=f"{stored}, 5m")).to_be_visible()


def test_first_view_is_small_and_stays_on_the_host(show: Open, stored: str) -> None:
    shown = show()
    session = shown.page.context.new_cdp_session(shown.page)
    session.send("Network.enable")
    received: list[float] = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page = shown.go(path_of("chart", stored))
    expect(page.locator(".last b")).to_be_visible()
    page.goto("about:blank")
    assert 0 < sum(received) < FIRST_VIEW_BYTES
    assert shown.hosts == {shown.address}


def test_lost_connection_is_reported_and_leaves_no_hole(show: Open, stored: str) -> None:
    shown = show()
    page = shown.go(path_of("chart", stored))
    expect(page.locator(".health")).to_have_text("Live")
    page.context.set_offline(True)
    page.route("**/api/v1/**", lambda route: route.abort())
    expect(page.locator(".health")).to_have_text("Connection lost")
    expect(page.get_by_role("alert")).to_contain_text("The connection to the platform is lost")
    page.unroute("**/api/v1/**")
    page.context.set_offline(False)
    expect(page.locator(".health")).to_have_text("Live")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_editor_completes_functions_columns_and_clauses(show: Open) -> None:
    shown = show()
    with shown.page.expect_response("**/api/v1/language"):
        page = shown.go("/triggers")
    editor = page.get_by_role("textbox", name="SQL of the trigger")
    offered = page.locator(".cm-tooltip-autocomplete li[aria-selected]")
    for typed, first in (
        ("SELECT ticker, vwa", "VWAP(price, size)"),
        ("SELECT rs", "RSI(x, n)"),
        ("SELECT price FROM ticks MATCH_REC", "MATCH_RECOGNIZE (…)"),
        ("clo", "closedouble"),
    ):
        editor.press("Control+A")
        editor.press("Delete")
        page.keyboard.type(typed)
        expect(offered).to_contain_text(first)
        editor.press("Escape")
    # Half a text is a 400.
    assert [each for each in shown.errors if "400" not in each] == []


def test_trigger_is_checked_while_typing_tried_and_registered(show: Open, stored: str, system: System) -> None:
    shown = show()
    page = shown.go("/triggers")
    editor = page.get_by_role("textbox", name="SQL of the trigger")
    expect(page.get_by_label("Market")).not_to_have_value("")
    page.get_by_label("Market").fill(stored)
    editor.fill("clos > open")
    expect(page.locator(".verdict.bad")).to_contain_text("clos")
    expect(page.locator(".cm-lintRange-error")).to_have_text("clos")
    editor.fill("close > open")
    expect(page.locator(".verdict.good")).to_be_visible()
    page.get_by_role("button", name="Try on history").click()
    facts = page.get_by_role("region", name="Result of the trial")
    expect(facts).to_contain_text(re.compile(r"\d+ matches"))
    expect(facts).to_contain_text("after 60 bars")
    expect(page.locator(".match-chart canvas").first).to_be_visible()
    walk_along_the_bars(page.get_by_role("region", name="Matches on the chart"), "match")
    shown.picture("triggers-tried")
    page.get_by_text("Register it").click()
    page.get_by_label("Name").fill("from-the-console")
    page.get_by_role("button", name="Register", exact=True).click()
    expect(page.get_by_text("from-the-console is registered.")).to_be_visible()
    with system.connect() as client:
        client.triggers.remove("from-the-console")
    # The refused text is a 400; `fill` edits with inline styles, which the page's policy refuses.
    assert [each for each in shown.errors if "400" not in each and "inline style" not in each] == []


def walk_along_the_bars(chart: Locator, mark: str) -> None:
    """The crosshair, moved from the newest bar back to one with this mark, and hidden."""
    picture, spoken = chart.get_by_role("img"), chart.get_by_role("status")
    picture.focus()
    times: list[str] = []
    for _ in range(200):
        picture.press("Shift+ArrowLeft")
        expect(spoken).to_contain_text("close")
        times.append(spoken.inner_text().partition(": ")[0])
        if spoken.inner_text().endswith(f", {mark}"):
            break
    else:
        raise AssertionError(times)
    assert times == sorted(times, reverse=True)
    picture.press("Shift+ArrowLeft")
    expect(spoken).not_to_contain_text(times[-1])
    picture.press("Shift+ArrowRight")
    expect(spoken).to_contain_text(times[-1])
    expect(chart.locator(".legend")).to_contain_text(mark)
    picture.press("Escape")
    expect(chart.locator(".legend")).to_have_count(0)


def test_attempts_of_a_trigger_are_explained_on_the_chart(show: Open, stored: str, axe: Path, system: System) -> None:
    pattern = """SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time MEASURES C.close AS close
        PATTERN (A B B C) DEFINE B AS close < PREV(close), C AS close > A.close * 2) AS m"""
    with system.connect() as client:
        client.triggers.add(pattern, tickers=[stored], parameters={"period_seconds": "60"}, trigger_id="doubles")
    shown = show(dark=True)
    page = shown.go("/triggers")
    page.get_by_role("link", name="Explain doubles").click()
    head = page.get_by_role("region", name="Explanation settings")
    expect(head).to_contain_text(re.compile(r"Fired 0 times over [\d,]+ bars of 1m"))
    died = page.get_by_role("button", expanded=True)
    expect(died).to_contain_text("3 rows taken, at least 1 more needed")
    details = page.locator(".attempt-details")
    expect(details.locator(".attempt-rows b")).to_have_text(["A", "B", "B"])
    expect(details).to_contain_text("which is not C")
    expect(details.locator("li", has_text="close > A.close * 2").first).to_contain_text("false")
    expect(page.locator(".match-chart canvas").first).to_be_visible()
    page.evaluate(axe.read_text())
    assert serious_faults(page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")) == []
    walk_along_the_bars(page.get_by_role("region", name="Attempts on the chart"), "not C")
    shown.picture("triggers-explained")
    page.get_by_role("button", name="open").click()
    expect(page.locator(".attempt-details")).to_contain_text("It waits for the next row")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(FITS)
    page.get_by_label("Until (UTC)").fill("2020-01-01T00:00:00")
    expect(head.get_by_role("alert")).to_contain_text("are stored shortly before 2020-01-01")
    with system.connect() as client:
        client.triggers.remove("doubles")
    assert [each for each in shown.errors if "409" not in each] == []


def test_events_of_a_removed_trigger_are_shown_as_such(show: Open, stored: str, system: System) -> None:
    with (
        system.connect() as client,
        client.triggers.add("price > 0", tickers=[stored], trigger_id="soon-gone") as trigger,
    ):
        assert len(trigger.collect(3, timeout=60)) == 3
        trigger.remove()
    shown = show()
    for _ in range(60):
        page = shown.go("/events?trigger=soon-gone")
        expect(page.get_by_text("This trigger is no longer registered.")).to_be_visible()
        expect(page.locator(".events tbody tr, .nothing").first).to_be_visible()
        # Events are in the table a few seconds after they happened.
        if page.locator(".events tbody tr").count() >= 3:
            break
    row = page.locator(".events tbody tr").first
    expect(row.locator(".tag")).to_have_text("removed")
    expect(row.get_by_role("link", name="soon-gone")).to_have_count(0)
    expect(row).to_contain_text("price")
    shown.picture("events-removed")
    page.get_by_label("Trigger", exact=True).select_option("")
    expect(page.locator(".events tbody tr", has_text="soon-gone").first).to_contain_text("removed")
    shown.go("/triggers?explain=soon-gone").get_by_role("link", name="Its stored events").click()
    expect(page).to_have_url(re.compile("/events"))
    assert shown.errors == []


def test_a_trigger_that_is_added_later_joins_the_open_list_of_events(show: Open, stored: str, system: System) -> None:
    shown = show()
    page = shown.go("/events?trigger=added-later")
    expect(page.get_by_text("This trigger is no longer registered.")).to_be_visible()
    with (
        system.connect() as client,
        client.triggers.add("price > 0", tickers=[stored], trigger_id="added-later") as added,
    ):
        rows = page.locator(".events tbody tr")
        expect(rows.nth(2)).to_contain_text("added-later")
        expect(page.get_by_text("This trigger is no longer registered.")).to_have_count(0)
        expect(rows.first.locator(".tag")).to_have_count(0)
        page.get_by_label("Market", exact=True).fill("NOTHING")
        expect(page.get_by_text("No event matches.")).to_be_visible()
        added.remove()
    assert shown.errors == []


def test_history_is_requested_and_covers_its_days(show: Open, stored: str) -> None:
    shown = show()
    page = shown.go(f"/requests?ticker={stored}&period=1h")
    page.get_by_label("From").fill("2024-03-01")
    page.get_by_label("Until").fill("2024-03-03")
    page.get_by_role("button", name="Get history").click()
    row = page.locator("tr", has_text="2024-03-01 00:00")
    expect(row.locator(".tag.good").first).to_have_text("OK")
    expect(page.get_by_role("img", name="2 days of 2024 are complete")).to_be_visible()
    shown.picture("requests-covered")
    assert shown.errors == []


def test_the_page_quality_says_that_older_candles_are_stored(show: Open, system: System) -> None:
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    with system.connect() as client:
        client.history("ETH/USDT.BINANCE", "1m", start=end - timedelta(minutes=10), end=end)
        client.history("ETH/USDT.BINANCE", "1m", start="2024-03-01", end="2024-03-01T01:00:00Z")
    page = show().go("/quality?ticker=ETH/USDT.BINANCE&period=1m")
    figures = page.get_by_role("region", name="Figures")
    expect(figures).to_contain_text("10 candles")
    expect(page.get_by_text("Candles are stored since 2024-03-01 00:00")).to_be_visible()
    page.get_by_role("link", name="Examine the oldest").click()
    expect(figures).to_contain_text("60 candles")
    expect(page.get_by_label("From")).to_have_value("2024-03-01")
    expect(page.get_by_text("Candles are stored since")).to_have_count(0)


def test_the_page_quality_names_missing_candles(show: Open, stored: str, system: System) -> None:
    with system.connect() as client:
        for day in ("2024-03-01", "2024-03-03"):
            client.history(stored, period="4h", start=day, end=f"{day[:-1]}{int(day[-1]) + 1}")
    shown = show()
    page = shown.go(f"/chart?ticker={stored}&period=4h")
    page.get_by_role("link", name="Quality", exact=True).last.click()
    expect(page.get_by_label("Period")).to_have_value("4h")
    expect(page.get_by_text("candles missing inside the range: 6")).to_be_visible()
    figures = page.get_by_role("region", name="Figures")
    expect(figures).to_contain_text("12 candles")
    expect(figures).to_contain_text("No candle can be compared with received trades")
    row = page.get_by_role("region", name="Not stored").locator("tbody tr")
    expect(row).to_have_text("2024-03-02 00:002024-03-03 00:006")
    expect(page.get_by_role("img", name="2 days of 2024 are complete")).to_be_visible()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844 if width < 700 else 1000})
        shown.picture(f"quality-missing-{width}")
    page.get_by_label("From").fill("2024-03-03")
    expect(page.get_by_text("No problems found")).to_be_visible()
    row = page.get_by_role("link", name="2024-03-02 00:00")
    expect(row).to_have_count(0)
    assert shown.errors == []


def test_query_is_answered_as_table_and_plot(show: Open, stored: str) -> None:
    shown = show()
    page = shown.go("/sql")
    editor = page.get_by_role("textbox", name="SQL")
    editor.fill(
        f"SELECT open_time, close FROM ohlc WHERE ticker = '{stored}' AND period_seconds = 60 ORDER BY 1 LIMIT 50"
    )
    editor.press("Control+Enter")
    expect(page.get_by_role("status").filter(has_text="50 rows")).to_be_visible()
    expect(page.locator(".results tbody tr").nth(1)).to_be_visible()
    page.get_by_role("button", name="Plot").click()
    expect(page.locator(".plot canvas").first).to_be_visible()
    shown.picture("sql-plot")
    editor.fill("SELEC 1")
    editor.press("Control+Enter")
    expect(page.locator(".page-head .bad")).not_to_be_empty()


def test_market_is_found_by_keyboard(show: Open, stored: str) -> None:
    shown = show()
    page = shown.go("/system")
    expect(page.get_by_role("heading", name="System")).to_be_visible()
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Market or page").fill(stored.split(".")[0])
    expect(page.get_by_role("option", name=stored).first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/chart"))
    page.keyboard.press("g")
    page.keyboard.press("m")
    expect(page).to_have_url(re.compile("/markets"))


def test_every_page_is_walked_with_the_keyboard_and_back(show: Open, stored: str) -> None:
    shown = show()
    for name in PAGES:
        page = shown.go(path_of(name, stored))
        wait_for_page(shown, name)
        walked: dict[int, str] = {}
        # No control keeps the focus: after the last one it is on the first again, or leaves the page.
        for count in range(1, 200):
            page.keyboard.press("Tab")
            focus, is_marked, number = page.evaluate(FOCUS, count)
            if focus == "BODY" or (number == 1 and count > 1):
                break
            assert is_marked, (name, focus)
            walked[number] = focus
        else:
            raise AssertionError((name, walked))
        assert walked[1] == "Skip to content"
        assert len(walked) > 12, (name, walked)
        if name in ("triggers", "sql"):
            assert any(focus.startswith("SQL") for focus in [*walked.values()][:-1]), walked
        back: list[int] = []
        for _ in range(200):
            page.keyboard.press("Shift+Tab")
            _, _, number = page.evaluate(FOCUS, None)
            if number is not None and number not in back:
                back.append(number)
            if number == 1 and len(back) > 1:
                break
        # What was drawn meanwhile has no number, and live data may have replaced what had one.
        assert back == sorted(back, reverse=True), (name, walked, back)
        assert len(back) > len(walked) - 3, (name, walked, back)


def test_crosshair_and_dialogs_are_used_with_the_keyboard(show: Open, stored: str) -> None:
    shown = show()
    page = shown.go(path_of("chart", stored))
    expect(page.locator(".legend")).to_contain_text("forming")
    spoken = page.locator(".chart-box [role=status]")
    page.keyboard.press("Shift+ArrowLeft")
    expect(spoken).to_contain_text("close")
    newer = spoken.inner_text()
    page.keyboard.press("Shift+ArrowLeft")
    expect(spoken).not_to_have_text(newer)
    assert spoken.inner_text() < newer
    page.keyboard.press("Escape")
    expect(page.locator(".legend")).to_contain_text("forming")
    button = page.get_by_role("button", name="Keyboard shortcuts")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Crosshair to the bar before")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()
    assert shown.errors == []


def test_long_prices_and_sizes_fit_next_to_the_chart(show: Open, stored: str) -> None:
    page = show().go(path_of("chart", stored))
    expect(page.locator(".tape tbody tr").first).to_be_visible()
    assert page.evaluate(
        """() => {
          const [, price, size] = document.querySelectorAll(".tape td");
          [price.textContent, size.textContent] = ["150,973.06", "0.00067"];
          const right = (element) => element.getBoundingClientRect().right;
          return right(size) <= right(document.querySelector(".chart-side"));
        }"""
    )
    assert page.evaluate(FITS)


def test_no_page_scrolls_sideways_on_a_phone(show: Open, stored: str, system: System) -> None:
    name = "every-trade-of-this-market-whatever-its-price-and-size-and-side"
    with system.connect() as client:
        client.triggers.add("price > 0", tickers=[stored], trigger_id=name)
    shown = show(390, 844)
    for path in (f"/events?trigger={name}", f"/triggers?explain={name}", *(path_of(each, stored) for each in PAGES)):
        page = shown.go(path)
        wait_for_page(shown, path[1:6])
        if path.startswith("/events"):
            expect(page.locator("tbody tr").first).to_contain_text(name)
            shown.picture("events-long-name-390")
        assert page.evaluate(FITS), path
    with system.connect() as client:
        client.triggers.remove(name)


def test_the_figures_of_a_narrow_chart_cover_no_candle(show: Open, stored: str) -> None:
    page = show(390, 844).go(path_of("chart", stored))
    expect(page.locator(".legend b").first).to_be_visible()
    legend, canvas = (page.locator(f".chart-box {each}").bounding_box() for each in (".legend", ".canvas"))
    assert legend is not None
    assert canvas is not None
    assert legend["y"] + legend["height"] <= canvas["y"]


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_every_width_and_passes_axe(show: Open, stored: str, axe: Path, name: str) -> None:
    shown = show()
    page = shown.go(path_of(name, stored))
    wait_for_page(shown, name)
    # Evaluated, since the page's policy refuses a script from another origin.
    page.evaluate(axe.read_text())
    for colours in COLOURS:
        page.emulate_media(color_scheme=colours)
        expect(page.locator(f"html[data-theme={colours}]")).to_be_visible()
        assert serious_faults(page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")) == []
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 844 if width < 700 else 1000})
            shown.picture(f"{name}-{width}-{colours}")
            assert page.evaluate(FITS), width


def serious_faults(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [
        (each["id"], [node["html"][:160] for node in each["nodes"]][:3])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_page_says_when_the_platform_refuses(show: Open, stored: str) -> None:
    shown = show()
    body = '{"title": "Service Unavailable", "status": 503, "detail": "the relay does not answer"}'

    def refuse(route: Route) -> None:
        route.fulfill(status=503, content_type="application/problem+json", body=body)

    shown.page.route("**/api/v1/stored**", refuse)
    page = shown.go("/markets")
    expect(page.get_by_role("alert").filter(has_text="the relay does not answer")).to_be_visible()
    page.unroute("**/api/v1/stored**")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".markets tbody tr").first).to_be_visible()
