"""Renders the quality of series as one HTML page without scripts, which opens offline."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from jinja2 import Environment

from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period
from candlewright.wire.times import iso_seconds
from datasets.layouts.files import replacing
from datasets.quality import Day, Quality

#: Pixels between squares, and days per week.
_STEP, _ROWS = 13, 7
_TEMPLATE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
    (Path(__file__).parent / "quality.html").read_text()
)


def write(found: Sequence[Quality], file: Path) -> None:
    page = _TEMPLATE.render(found=found, calendar=calendar, time=_time, period=format_period)
    with replacing(file) as draft:
        draft.write_text(page)


def _time(open_time: int) -> str:
    return iso_seconds(open_time / SECOND)


def calendar(days: Sequence[Day]) -> list[dict[str, object]]:
    """A drawing for each year: a square per day, shaded by the share of the day that is known, with weeks (from Monday)
    as columns.
    """
    years = groupby(days, lambda each: int(str(np.datetime64(each.day, "D"))[:4]))
    return [_year(year, list(own)) for year, own in years]


def _year(year: int, days: list[Day]) -> dict[str, object]:
    start = int(np.datetime64(f"{year}-01-01", "D").astype(int))
    # 1970-01-01 was a Thursday.
    lead = (start + 3) % _ROWS
    squares, width = [], 0
    for each in days:
        column, row = divmod(each.day - start + lead, _ROWS)
        known = (each.got + each.holes) / each.expected
        level = 4 if known >= 1 else 3 if known >= 0.99 else 2 if known >= 0.5 else 1 if known > 0 else 0
        text = f"{np.datetime64(each.day, 'D')}: {each.got} of {each.expected} candles"
        if each.holes:
            text += f", {each.holes} absent at the venue"
        width = (column + 1) * _STEP
        squares.append({"x": column * _STEP, "y": row * _STEP, "level": level, "text": text})
    return {"year": year, "squares": squares, "width": width, "height": _ROWS * _STEP}
