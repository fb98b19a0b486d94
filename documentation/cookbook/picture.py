"""A match as an SVG: candles with volume, or lines of trades, in colours that can be read on light and on dark."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from documentation.cookbook.figures import Numbers, Run, Times, nanoseconds, prices

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, VOLUME = 640, 260, 10, 62, 28, 22, 32
_CANDLES, _POINTS, _LABELS = 96, 320, 4
_STYLE = (
    "text{font:11px ui-sans-serif,system-ui,sans-serif;fill:#768390}.g{stroke:#768390;stroke-opacity:.25}"
    ".u{stroke:#2a9d6f;fill:#2a9d6f}.d{stroke:#e0604f;fill:#e0604f}.v{fill:#768390;fill-opacity:.45}"
    ".m{fill:#2f81f7;fill-opacity:.13}.l{stroke:#2f81f7;stroke-dasharray:4 3}.e{fill:#2f81f7}"
    ".a{fill:none;stroke:#2f81f7}.b{fill:none;stroke:#c98a1b}.A{fill:#2f81f7}.B{fill:#c98a1b}"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Pixels of times (ns) and values; the volume's strip is below the values."""

    start: int
    end: int
    low: float
    high: float
    floor: float

    def x(self, time: float) -> float:
        return LEFT + (time - self.start) / (self.end - self.start) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (self.high - value) / (self.high - self.low) * (self.floor - TOP)


@dataclass(frozen=True, slots=True)
class Shape:
    """A match: from its first row to the row that decides it, and the price that it is about."""

    ticker: str
    since: int
    at: int
    level: float | None


def svg(run: Run) -> str:
    """The match that the recipe names, or else the one in the middle."""
    shape = shape_of(run, number(run))
    start, end = _span(run, shape)
    if run.recording.period_seconds:
        parts = list(_candles(run, shape, start, end))
    else:
        parts = list(_lines(run, shape, start, end))
    several = pc.count_distinct(run.rows["ticker"]).as_py() > 1
    what = shape.ticker if several else run.recording.what.partition(",")[0]
    title = f"{what} · {_clock(shape.at, '%Y-%m-%d %H:%M:%S')} UTC"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    return "\n".join(
        [head, f"<style>{_STYLE}</style>", f'<text x="{LEFT}" y="16">{title}</text>', *parts, "</svg>", ""]
    )


def number(run: Run) -> int:
    """Which match is drawn, from 1."""
    return run.recipe.drawn or (run.matches.num_rows + 1) // 2


def shape_of(run: Run, which: int) -> Shape:
    match = run.matches.slice(which - 1, 1)
    at = int(nanoseconds(match["at"])[0])
    since = int(nanoseconds(match["since"])[0]) if "since" in match.column_names else at
    level = match["level"][0].as_py() if "level" in match.column_names else None
    return Shape(match["ticker"][0].as_py(), since, at, level)


def _span(run: Run, shape: Shape) -> tuple[int, int]:
    """A quarter more than the shape before it, and as much as the longer of the shape and 30 rows after it."""
    own = prices(run.recording, run.rows, shape.ticker)
    length = shape.at - shape.since
    usual = (run.recording.period_seconds * 30 or 20) * 10**9
    start = max(shape.since - max(usual, length // 4), int(own.times[0]))
    return start, min(shape.at + max(usual, length // 3), int(own.times[-1]) + run.recording.period_seconds * 10**9)


def _candles(run: Run, shape: Shape, start: int, end: int) -> Iterator[str]:
    period = run.recording.period_seconds * 10**9
    group = -(-(end - start) // (period * _CANDLES))
    bars = _merged(run.rows.filter(pc.equal(run.rows["ticker"], shape.ticker)), start, end, group * period)
    floor = HEIGHT - BOTTOM - VOLUME - 6
    scale = _scale(start, end, bars["low"].min(), bars["high"].max(), floor, shape.level)
    yield from _shade(scale, shape, group * period)
    yield from _axes(scale, as_change=False)
    width = (scale.x(period * group) - scale.x(0)) * 0.7
    middle = bars["time"] + period * group / 2
    most = float(bars["volume"].max()) or 1.0
    volume = "".join(
        f"M{scale.x(time) - width / 2:.1f} {HEIGHT - BOTTOM}h{width:.1f}v{-amount / most * VOLUME:.1f}h{-width:.1f}z"
        for time, amount in zip(middle, bars["volume"], strict=True)
    )
    yield f'<path class="v" d="{volume}"/>'
    for kind, rising in (("u", True), ("d", False)):
        path = "".join(
            _candle(
                scale, width, middle[bar], {name: float(bars[name][bar]) for name in ("open", "high", "low", "close")}
            )
            for bar in range(len(middle))
            if (bars["close"][bar] >= bars["open"][bar]) == rising
        )
        yield f'<path class="{kind}" d="{path}"/>'
    at = int(np.searchsorted(bars["time"], shape.at, side="right")) - 1
    yield f'<circle class="e" cx="{scale.x(middle[at]):.1f}" cy="{scale.y(bars["close"][at]):.1f}" r="4.5"/>'


def _candle(scale: Scale, width: float, time: float, bar: dict[str, float]) -> str:
    top, foot = scale.y(max(bar["open"], bar["close"])), scale.y(min(bar["open"], bar["close"]))
    x, tall = scale.x(time), max(foot - top, 0.6)
    wick = f"M{x:.1f} {scale.y(bar['high']):.1f}V{scale.y(bar['low']):.1f}"
    return f"{wick}M{x - width / 2:.1f} {top:.1f}h{width:.1f}v{tall:.1f}h{-width:.1f}z"


def _merged(rows: pa.Table, start: int, end: int, length: int) -> dict[str, Any]:
    """The bars from start to end, put together to bars of `length` ns."""
    times = nanoseconds(rows["open_time"])
    first, last = np.searchsorted(times, [start, end])
    part = {name: rows[name].to_numpy()[first:last] for name in ("open", "high", "low", "close", "volume")}
    number = (times[first:last] - start) // length
    begins = np.flatnonzero(np.diff(number, prepend=-1))
    ends = np.append(begins[1:], len(number)) - 1
    return {
        "time": start + number[begins] * length,
        "open": part["open"][begins],
        "high": np.maximum.reduceat(part["high"], begins),
        "low": np.minimum.reduceat(part["low"], begins),
        "close": part["close"][ends],
        "volume": np.add.reduceat(part["volume"], begins),
    }


def _lines(run: Run, shape: Shape, start: int, end: int) -> Iterator[str]:
    """The match's ticker; if the recipe names a second one, both as changes since the beginning."""
    lines: dict[str, tuple[Times, Numbers]] = {}
    for ticker in filter(None, (shape.ticker, run.recipe.beside)):
        own = prices(run.recording, run.rows, ticker)
        first = max(int(np.searchsorted(own.times, start)) - 1, 0)
        last = int(np.searchsorted(own.times, end, side="right"))
        lines[ticker] = own.times[first:last].clip(start), own.values[first:last]
    as_change = len(lines) > 1
    if as_change:
        lines = {ticker: (times, (values / values[0] - 1) * 100) for ticker, (times, values) in lines.items()}
    low, high = min(v.min() for _, v in lines.values()), max(v.max() for _, v in lines.values())
    scale = _scale(start, end, low, high, HEIGHT - BOTTOM, None if as_change else shape.level)
    yield from _shade(scale, shape if not as_change else Shape(shape.ticker, shape.since, shape.at, None), 0)
    yield from _axes(scale, as_change=as_change)
    for kind, (ticker, (times, values)) in zip("ab", lines.items(), strict=False):
        yield f'<path class="{kind}" d="{_steps(scale, times, values, end)}"/>'
        if as_change:
            y = 16 + 14 * "ab".index(kind)
            yield f'<text class="{kind.upper()}" x="{WIDTH - RIGHT}" y="{y}" text-anchor="end">{ticker}</text>'
    times, values = lines[shape.ticker]
    at = max(int(np.searchsorted(times, shape.at, side="right")) - 1, 0)
    yield f'<circle class="e" cx="{scale.x(shape.at):.1f}" cy="{scale.y(values[at]):.1f}" r="4.5"/>'


def _steps(scale: Scale, times: Times, values: Numbers, end: int) -> str:
    """A line that holds each price until the next trade; of trades in one pixel the last."""
    pixel = ((times - scale.start) * _POINTS // (scale.end - scale.start)).astype(int)
    kept = np.flatnonzero(np.diff(pixel, append=_POINTS + 1))
    moves = "".join(f"H{scale.x(times[i]):.1f}V{scale.y(values[i]):.1f}" for i in kept[1:])
    return f"M{scale.x(times[kept[0]]):.1f} {scale.y(values[kept[0]]):.1f}{moves}H{scale.x(end):.1f}"


def _scale(start: int, end: int, low: float, high: float, floor: float, level: float | None) -> Scale:
    """With the level where it is near; a little room above and below."""
    if level is not None and low - (high - low) < level < high + (high - low):
        low, high = min(low, level), max(high, level)
    margin = (high - low) * 0.05 or abs(high) * 0.001 or 1.0
    return Scale(start, end, float(low - margin), float(high + margin), floor)


def _shade(scale: Scale, shape: Shape, length: int) -> Iterator[str]:
    left, right = scale.x(shape.since), scale.x(shape.at + length)
    if right > left:
        tall = HEIGHT - BOTTOM - TOP
        yield f'<rect class="m" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{tall}"/>'
    if shape.level is not None and scale.low < shape.level < scale.high:
        y = scale.y(shape.level)
        yield f'<path class="l" d="M{left:.1f} {y:.1f}H{WIDTH - RIGHT}"/>'


def _axes(scale: Scale, *, as_change: bool) -> Iterator[str]:
    step = _round_step((scale.high - scale.low) / _LABELS)
    places = max(0, -int(np.floor(np.log10(step))))
    value = np.ceil(scale.low / step) * step
    while value < scale.high:
        y = scale.y(value)
        label = f"{value:+.{places}f} %" if as_change else f"{value:,.{places}f}"
        yield f'<path class="g" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{WIDTH - RIGHT + 5}" y="{y + 4:.1f}">{label}</text>'
        value += step
    length = scale.end - scale.start
    form = "%Y-%m-%d" if length > 4 * 86400 * 10**9 else "%d %b %H:%M" if length > 86400 * 10**9 else "%H:%M"
    form = form if length > 600 * 10**9 else "%H:%M:%S"
    for part in range(1, _LABELS + 1):
        time = scale.start + length * part // (_LABELS + 1)
        yield f'<text x="{scale.x(time):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{_clock(time, form)}</text>'


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least))


def _clock(time: int, form: str) -> str:
    return datetime.fromtimestamp(time / 10**9, UTC).strftime(form)
