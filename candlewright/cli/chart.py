"""Candlesticks in a terminal, from half-cell line pieces; plain ASCII without colour if the terminal requires it."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

GREEN, RED, YELLOW, DIM, RESET = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
MIN_WIDTH, MIN_HEIGHT = 20, 4
_NONE, _WICK, _BODY = 0, 1, 2
#: The character of a cell, by its upper and lower half.
_LINES = {
    (_NONE, _NONE): " ",
    (_WICK, _WICK): "│",
    (_BODY, _BODY): "┃",
    (_NONE, _WICK): "╷",
    (_WICK, _NONE): "╵",
    (_NONE, _BODY): "╻",
    (_BODY, _NONE): "╹",
    (_WICK, _BODY): "╽",
    (_BODY, _WICK): "╿",
}
#: Bodies of falling candles if no colour distinguishes them.
_BLOCKS = {(_BODY, _BODY): "█", (_NONE, _BODY): "▄", (_BODY, _NONE): "▀", (_WICK, _BODY): "▄", (_BODY, _WICK): "▀"}
_VOLUME = " ▁▂▃▄▅▆▇█"
_ASCII_VOLUME = " ..::-=#@"


@dataclass(frozen=True, slots=True)
class Candle:
    """`open_time` in seconds since the epoch (UTC)."""

    open_time: float
    open: float
    high: float
    low: float
    close: float
    volume: float = 0.0


@dataclass(frozen=True, slots=True)
class Style:
    colour: bool = True
    unicode: bool = True


def render(
    candles: Sequence[Candle], width: int, *, height: int = 16, style: Style = Style(), marks: Sequence[float] = ()
) -> list[str]:
    """Lines of at most `width` columns: `height` rows of prices, one of volumes, one of times.

    Neighbouring candles are merged if there are more candles than columns. `marks`: moments (seconds since the epoch)
    that an extra row below the prices points at, with their count if several are in one column.
    """
    if not candles:
        return ["(no candles)"]
    width, height = max(width, MIN_WIDTH), max(height, MIN_HEIGHT)
    low, high = min(c.low for c in candles), max(c.high for c in candles)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-250):
        # A flat market still has a line in the middle.
        margin = abs(low) * 0.001 if abs(low) > 1e-250 else 1.0
        low, high = low - margin, high + margin
    labels = _labels(low, high, height)
    gutter = max(map(len, labels)) + 1
    columns = merge(candles, max(1, width - gutter - 1))
    scale = (2 * height) / (high - low)
    axis = "┤" if style.unicode else "|"
    cells = [_column(candle, low, scale, height, style) for candle in columns]
    rows = [f"{labels[row]:>{gutter - 1}} {axis}" + "".join(column[row] for column in cells) for row in range(height)]
    return [*rows, *_marks(columns, marks, gutter, style), *_feet(columns, gutter, style)]


def merge(candles: Sequence[Candle], columns: int) -> list[Candle]:
    """At most `columns` candles: groups of equal length, first open, last close, extremes, volume summed."""
    size = -(-len(candles) // columns)
    merged = []
    for begin in range(0, len(candles), size):
        group = candles[begin : begin + size]
        merged.append(
            Candle(
                group[0].open_time,
                group[0].open,
                max(c.high for c in group),
                min(c.low for c in group),
                group[-1].close,
                sum(c.volume for c in group),
            )
        )
    return merged


def _column(candle: Candle, low: float, scale: float, height: int, style: Style) -> list[str]:
    halves = 2 * height
    top, bottom = _halves(candle.low, candle.high, low, scale, halves)
    body_top, body_bottom = _halves(min(candle.open, candle.close), max(candle.open, candle.close), low, scale, halves)

    def state(half: int) -> int:
        if body_bottom <= half <= body_top:
            return _BODY
        return _WICK if bottom <= half <= top else _NONE

    cells = []
    for row in range(height):
        upper = halves - 1 - 2 * row
        cells.append(_glyph((state(upper), state(upper - 1)), rises=candle.close >= candle.open, style=style))
    return cells


def _halves(lower: float, upper: float, low: float, scale: float, halves: int) -> tuple[int, int]:
    """Numbers of the highest and the lowest half-cell, counted from the bottom, that a range of prices touches."""
    return min(int((upper - low) * scale), halves - 1), min(int((lower - low) * scale), halves - 1)


def _glyph(cell: tuple[int, int], *, rises: bool, style: Style) -> str:
    if cell == (_NONE, _NONE):
        return " "
    if not style.unicode:
        glyph = ("O" if rises else "#") if _BODY in cell else "|"
    elif not rises and not style.colour:
        glyph = _BLOCKS.get(cell, _LINES[cell])
    else:
        glyph = _LINES[cell]
    return f"{GREEN if rises else RED}{glyph}{RESET}" if style.colour else glyph


def _labels(low: float, high: float, height: int) -> list[str]:
    step = (high - low) / height
    digits = 0
    while digits < 10 and len({f"{low + step * row:.{digits}f}" for row in range(height)}) < height:
        digits += 1
    shown = {0, height - 1, *range(0, height, 4)}
    return [f"{high - step * (row + 0.5):.{digits}f}" if row in shown else "" for row in range(height)]


def _marks(columns: Sequence[Candle], marks: Sequence[float], gutter: int, style: Style) -> list[str]:
    opens = [candle.open_time for candle in columns]
    counts = Counter(max(0, bisect_right(opens, mark) - 1) for mark in marks)
    if not counts:
        return []
    sign = "▲" if style.unicode else "^"
    row = "".join(_mark(counts[place], sign) for place in range(len(columns))).rstrip()
    return [f"{'':>{gutter}} " + (f"{YELLOW}{row}{RESET}" if style.colour else row)]


def _mark(count: int, sign: str) -> str:
    if count < 2:
        return sign if count else " "
    return str(count) if count < 10 else "+"


def _feet(columns: Sequence[Candle], gutter: int, style: Style) -> list[str]:
    lines = []
    most = max(candle.volume for candle in columns)
    if most > 0:
        ramp = _VOLUME if style.unicode else _ASCII_VOLUME
        bars = "".join(ramp[round(candle.volume / most * (len(ramp) - 1))] for candle in columns)
        lines.append(f"{'vol':>{gutter - 1}}  {_dim(bars, style)}")
    first, last = _moment(columns[0].open_time), _moment(columns[-1].open_time)
    room = len(columns) - len(first) - len(last)
    between = f"{first}{' ' * room}{last}" if room > 0 else first[: max(len(columns), 10)]
    lines.append(f"{'':>{gutter}} {_dim(between, style)}")
    return lines


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _dim(text: str, style: Style) -> str:
    return f"{DIM}{text}{RESET}" if style.colour else text


def gaps(candles: Sequence[Candle], period_seconds: int) -> int:
    """How many candles are missing between the ones shown."""
    return sum(round((b.open_time - a.open_time) / period_seconds) - 1 for a, b in pairwise(candles))
