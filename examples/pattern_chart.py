"""Draw an SVG of candles and of the row patterns found in them. This made the picture in the README.

    python examples/pattern_chart.py docs/images/pattern.svg

It needs no running platform: the candles are a day of the sandbox's generated market, and the trigger engine finds the
pattern in them, as it would in live bars. To draw your own candles, pass `c.load(…).to_arrow()` to `svg`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from candlewright_cep import evaluate
from sandbox.generated.market import GeneratedMarket
from sandbox.markets.instruments import make_instrument
from sandbox.markets.intervals import INTERVALS

TICKER, PERIOD, SEED = "BTC/USDT.BINANCE", "5m", 1
START = datetime(2024, 3, 3, 5, tzinfo=UTC)
END = START + timedelta(hours=7)
DOUBLE_BOTTOM = """
SELECT * FROM ohlc MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY open_time
  MEASURES S.open_time AS since, LAST(D.low) AS first_low, LAST(D.open_time) AS first_at, LAST(U.close) AS neckline,
           LAST(U.open_time) AS neck_at, LAST(E.low) AS second_low, LAST(E.open_time) AS second_at,
           B.close AS breakout, B.open_time AS until
  PATTERN (S D{2,} U{2,} E{2,} V*? B) WITHIN INTERVAL '4' HOUR
  DEFINE D AS close < PREV(close), U AS close > PREV(close), E AS close < PREV(close), V AS close > PREV(close),
         B AS close > LAST(U.close) AND ABS(LAST(E.close) - LAST(D.close)) <= 0.002 * LAST(D.close)
) AS w
"""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 340, 14, 66, 48, 34
#: Colours that can be read on light and on dark.
STYLE = """
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #768390 }
  .title { font-size: 14px; font-weight: 600 }
  .grid { stroke: #768390; stroke-opacity: .25 }
  .up { stroke: #2a9d6f; fill: #2a9d6f } .down { stroke: #e0604f; fill: #e0604f }
  .match { fill: #2f81f7; fill-opacity: .13 } .shape { stroke: #2f81f7; stroke-width: 2; fill: none }
  .event, .label { fill: #2f81f7 } .label { font-weight: 600 }
"""


@dataclass(frozen=True)
class Scale:
    """Pixels of bar numbers and prices."""

    bars: int
    low: float
    high: float

    @property
    def step(self) -> float:
        return (WIDTH - LEFT - RIGHT) / self.bars

    def x(self, bar: float) -> float:
        return round(LEFT + (bar + 0.5) * self.step, 1)

    def y(self, price: float) -> float:
        return round(TOP + (self.high - price) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM), 1)


def sandbox_candles() -> pa.Table:
    """The candles of START to END, with the columns of the table `ohlc` that the pattern reads."""
    market = GeneratedMarket(make_instrument("BTC/USDT"), SEED)
    interval = INTERVALS[PERIOD]
    first, last, now = (int(at.timestamp() * 1000) for at in (START, END - timedelta(minutes=5), END))
    candles = market.candles(interval, first, last, now=now)
    ticks = 10**market.price_decimals
    return pa.table(
        {
            "ticker": [TICKER] * len(candles),
            "open_time": pa.array(candles.open_time, pa.timestamp("ms")).cast(pa.timestamp("ns", "UTC")),
            "open": candles.open / ticks,
            "high": candles.high / ticks,
            "low": candles.low / ticks,
            "close": candles.close / ticks,
        }
    )


def svg(candles: pa.Table, matches: pa.Table, title: str) -> str:
    """The candles, and each match as a shaded span, its shape, and a dot at the bar that fires the event."""
    rows = candles.to_pylist()
    number = {row["open_time"]: bar for bar, row in enumerate(rows)}
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    margin = (high - low) * 0.06
    scale = Scale(len(rows), low - margin, high + margin)
    closes = [row["close"] for row in rows]
    parts = [*_grid(scale, rows), f'<text class="title" x="{LEFT}" y="24">{title}</text>']
    shapes = [_match(scale, number, closes, match) for match in matches.to_pylist()]
    parts += [shade for shade, _ in shapes]
    parts += [_candle(scale, bar, row) for bar, row in enumerate(rows)]
    parts += [shape for _, shape in shapes]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def _grid(scale: Scale, rows: Sequence[dict[str, object]]) -> list[str]:
    parts = []
    step = next(step for step in (50, 100, 200, 250, 500, 1000, 2000) if (scale.high - scale.low) / step <= 6)
    price = (int(scale.low // step) + 1) * step
    while price < scale.high:
        y = scale.y(price)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 4}">{price:,}</text>')
        price += step
    for bar, row in enumerate(rows):
        at = row["open_time"]
        assert isinstance(at, datetime)
        if at.minute == 0 and bar:
            parts.append(f'<text x="{scale.x(bar)}" y="{HEIGHT - 12}" text-anchor="middle">{at:%H:%M}</text>')
    return parts


def _candle(scale: Scale, bar: int, row: dict[str, float]) -> str:
    top, foot = scale.y(max(row["open"], row["close"])), scale.y(min(row["open"], row["close"]))
    width = round(scale.step * 0.64, 1)
    kind = "up" if row["close"] >= row["open"] else "down"
    wick = f'<path d="M{scale.x(bar)} {scale.y(row["high"])}V{scale.y(row["low"])}"/>'
    body = f'<rect x="{scale.x(bar) - width / 2:.1f}" y="{top}" width="{width}" height="{max(foot - top, 1):.1f}"/>'
    return f'<g class="{kind}">{wick}{body}</g>'


def _match(
    scale: Scale, number: dict[datetime, int], closes: Sequence[float], match: dict[str, object]
) -> tuple[str, str]:
    bars = []
    for name in ("since", "first_at", "neck_at", "second_at", "until"):
        at = match[name]
        assert isinstance(at, datetime)
        bars.append(number[at])
    left, right = scale.x(bars[0] - 0.5), scale.x(bars[-1] + 0.5)
    shade = (
        f'<rect class="match" x="{left}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT - TOP - BOTTOM}" rx="4"/>'
    )
    points = [(scale.x(bar), scale.y(closes[bar])) for bar in bars]
    line = " ".join(f"{x},{y}" for x, y in points)
    x, y = points[-1]
    return shade, (
        f'<polyline class="shape" points="{line}"/><circle class="event" cx="{x}" cy="{y}" r="5"/>'
        f'<text class="label" x="{x}" y="{TOP - 6}" text-anchor="middle">double bottom ▸ event</text>'
    )


def main(path: Path) -> None:
    candles = sandbox_candles()
    matches = evaluate(DOUBLE_BOTTOM, candles, table_name="ohlc")
    path.write_text(svg(candles, matches, f"{TICKER} · {PERIOD} · one MATCH_RECOGNIZE trigger"))
    print(f"{path}: {candles.num_rows} candles, {matches.num_rows} match(es)")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pattern.svg"))
