"""A small picture of candles, as SVG without scripts: it fits light and dark pages, and stays in a saved notebook."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from candlewright.wire.grid import SECOND

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Ranges = Sequence[tuple[int, int]]

WIDTH, HEIGHT, MARGIN = 640, 140, 4
#: More candles than these are drawn in groups.
MOST_COLUMNS = 128
#: Ranges without candles that are drawn; more are narrower than a pixel.
MOST_RANGES = 400
_UP, _DOWN, _HOLE, _UNKNOWN = "#1f9d78", "#dd5a50", "#d9822b", "#8a8f98"


@dataclass(frozen=True, slots=True)
class _Columns:
    """Candles as they are drawn: each column is one, or a group of neighbours."""

    number: "np.ndarray"
    open: "np.ndarray"
    high: "np.ndarray"
    low: "np.ndarray"
    close: "np.ndarray"


def candle_picture(table: "pa.Table", period_seconds: int, *, holes: Ranges = (), unknown: Ranges = ()) -> str:
    """Candles in time order. `holes`, where the venue has none, and `unknown` ranges are shaded."""
    step = period_seconds * SECOND
    opens = table["open_time"].cast("int64").to_numpy() * 1_000
    if not len(opens):
        return ""
    first = min([int(opens[0]), *(start for start, _ in holes), *(start for start, _ in unknown)])
    end = max([int(opens[-1]) + step, *(end for _, end in holes), *(end for _, end in unknown)])
    count = min(MOST_COLUMNS, max(1, (end - first) // step))
    width = (WIDTH - 2 * MARGIN) / count

    def x(time: int) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (time - first) / (end - first)

    shades = [
        f'<rect x="{x(start):.1f}" width="{max(1.0, x(until) - x(start)):.1f}" height="{HEIGHT}" fill="{color}"'
        f' fill-opacity=".22"><title>{name}</title></rect>'
        for ranges, color, name in ((holes, _HOLE, "hole"), (unknown, _UNKNOWN, "unknown"))
        for start, until in ranges[:MOST_RANGES]
    ]
    candles = _candles(_columns(table, (opens - first) * count // (end - first)), width)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="candles"'
        f' style="display:block;max-width:100%;height:auto">{"".join(shades)}{"".join(candles)}</svg>'
    )


def _columns(table: "pa.Table", numbers: "np.ndarray") -> _Columns:
    import numpy as np

    begins = np.flatnonzero(np.diff(numbers, prepend=-1))
    ends = np.append(begins[1:], len(numbers)) - 1
    value = {name: table[name].to_numpy() for name in ("open", "high", "low", "close")}
    return _Columns(
        number=numbers[begins],
        open=value["open"][begins],
        high=np.maximum.reduceat(value["high"], begins),
        low=np.minimum.reduceat(value["low"], begins),
        close=value["close"][ends],
    )


def _candles(columns: _Columns, width: float) -> Iterable[str]:
    import numpy as np

    lowest, highest = float(columns.low.min()), float(columns.high.max())
    scale = (HEIGHT - 2 * MARGIN) / ((highest - lowest) or 1.0)

    def y(prices: "np.ndarray") -> "np.ndarray":
        return np.asarray(HEIGHT - MARGIN - (prices - lowest) * scale)

    middle = MARGIN + (columns.number + 0.5) * width
    top = y(np.maximum(columns.open, columns.close))
    tall = np.maximum(1.0, y(np.minimum(columns.open, columns.close)) - top)
    body = max(1.0, width * 0.7)
    for color, chosen in ((_UP, columns.close >= columns.open), (_DOWN, columns.close < columns.open)):
        places = zip(
            *(each[chosen].tolist() for each in (middle, y(columns.high), y(columns.low), top, tall)), strict=True
        )
        path = "".join(
            f"M{at:.1f} {high:.1f}V{low:.1f}M{at - body / 2:.1f} {above:.1f}h{body:.1f}v{down:.1f}h{-body:.1f}z"
            for at, high, low, above, down in places
        )
        yield f'<path d="{path}" fill="{color}" stroke="{color}"/>'
