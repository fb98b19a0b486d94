import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.cli.chart import Candle, Style, gaps, merge, render

PLAIN = Style(colour=False, unicode=True)
ASCII = Style(colour=False, unicode=False)
UP = Candle(0, 10, 20, 0, 15, 5)
DOWN = Candle(60, 15, 18, 5, 10, 10)

prices = st.floats(-1e12, 1e12, allow_nan=False)


@st.composite
def candles(draw: st.DrawFn) -> list[Candle]:
    drawn = draw(st.lists(st.tuples(prices, prices, prices, prices, st.floats(0, 1e15)), min_size=1, max_size=200))
    return [
        Candle(60.0 * number, four[0], max(four[:4]), min(four[:4]), four[3], four[4])
        for number, four in enumerate(drawn)
    ]


@given(candles(), st.integers(20, 200), st.integers(4, 40))
def test_any_candles_fit_the_width_and_height(drawn: list[Candle], width: int, height: int) -> None:
    for style in (PLAIN, ASCII):
        lines = render(drawn, width, height=height, style=style)
        assert height < len(lines) <= height + 2
        # Prices of a trillion may need more room than a narrow terminal has; one column of candles is kept then.
        assert all(len(line) <= max(width, 40) for line in lines)


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_realistic_prices_never_pass_the_edge(width: int) -> None:
    drawn = [Candle(60.0 * n, 100 + n % 7, 110 + n % 5, 90, 101 + n % 3, n) for n in range(500)]
    assert max(map(len, render(drawn, width, height=12, style=PLAIN))) <= width


def test_rising_and_falling_candles_differ_without_colour() -> None:
    lines = render([UP, DOWN], 40, height=8, style=PLAIN)
    assert any("┃" in line for line in lines)
    assert any("█" in line for line in lines)


def test_ascii_uses_ascii_only() -> None:
    text = "\n".join(render([UP, DOWN], 40, height=8, style=ASCII))
    assert text.isascii()
    assert "O" in text
    assert "#" in text


def test_colours_are_closed_on_each_line() -> None:
    for line in render([UP, DOWN], 40, height=8, style=Style()):
        assert len(re.findall(r"\x1b\[(?:3[12]|2)m", line)) == line.count("\x1b[0m")


def test_the_body_is_where_open_and_close_are() -> None:
    column = [line.partition("┤")[2] for line in render([Candle(0, 0, 10, 0, 4.5)], 40, height=5, style=PLAIN)[:5]]
    # Half-cells from the top: four of wick, then the body from 4.5 down to 0.
    assert column == ["│", "│", "╽", "┃", "┃"]


def test_a_flat_market_has_a_line() -> None:
    assert any("╹" in line or "╻" in line for line in render([Candle(0, 5, 5, 5, 5)], 40, height=8, style=PLAIN))


def test_nothing_to_draw_is_reported() -> None:
    assert render([], 80) == ["(no candles)"]


@given(candles(), st.integers(1, 50))
def test_merging_keeps_extremes_volume_and_edges(drawn: list[Candle], columns: int) -> None:
    merged = merge(drawn, columns)
    assert len(merged) <= columns
    assert max(c.high for c in merged) == max(c.high for c in drawn)
    assert min(c.low for c in merged) == min(c.low for c in drawn)
    assert (merged[0].open, merged[-1].close) == (drawn[0].open, drawn[-1].close)
    assert sum(c.volume for c in merged) == pytest.approx(sum(c.volume for c in drawn))


def test_missing_candles_are_counted() -> None:
    assert gaps([UP, DOWN, Candle(240, 1, 1, 1, 1)], 60) == 2


def test_marks_are_below_their_candles() -> None:
    drawn = [Candle(60.0 * n, 10, 20, 0, 15, 0) for n in range(30)]
    marked = [0.0, 59.0, 60.0, 600.0, 601.0, *[1700.0] * 12, 99_999.0]
    lines = render(drawn, 80, height=5, style=PLAIN, marks=marked)
    gutter = lines[0].index("┤") + 1
    row = lines[5][gutter:]
    assert (row[0], row[1], row[10], row[28], row[29]) == ("2", "▲", "2", "+", "▲")
    assert row.replace(" ", "") == "2▲2+▲"
    assert "^" in render(drawn, 80, height=5, style=ASCII, marks=[60.0])[5]
    assert len(render(drawn, 80, height=5, style=PLAIN, marks=[])) == len(lines) - 1
