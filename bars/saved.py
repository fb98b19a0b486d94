"""A BarMaker as bytes and back: what a restarted process goes on from.

A zip of numpy arrays (no pickle) and one JSON text; integers that do not fit 64 bits travel as decimal text.
"""

import io
import json
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars.aggregate import Bars
from bars.exact import Scaled
from bars.level import Level
from bars.maker import BarMaker, TickerState
from bars.seen import SeenIds

__all__ = ["load", "save"]

_VERSION = 1
_COLUMNS = [field.name for field in fields(Bars)[1:]]


def save(maker: BarMaker) -> bytes:
    """The whole state; `load` gives an equal maker."""
    arrays: dict[str, NDArray[Any]] = {}
    levels = {}
    for period, level in maker.levels.items():
        scales = {}
        if level.bars is not None:
            for name in _COLUMNS:
                column = getattr(level.bars, name)
                if isinstance(column, Scaled):
                    scales[name], column = column.scale, column.integers
                arrays[f"{period}/{name}"] = column.astype(np.str_) if column.dtype == object else column
            arrays[f"{period}/revision"] = level.revision
            arrays[f"{period}/is_changed"] = level.is_changed
        levels[period] = {"scales": scales, "since": level.since, "seeded": level.seeded}
    for number, state in enumerate(maker.states):
        arrays[f"seen/{number}"] = np.stack((state.seen.first, state.seen.last))
    meta = {
        "version": _VERSION,
        "lateness_ns": maker.lateness_ns,
        "horizon_ns": maker.horizon_ns,
        "duplicates": maker.duplicates,
        "too_late": maker.too_late,
        "retired": maker.retired,
        "levels": levels,
        "tickers": [
            {
                "ticker": ticker,
                "clock": state.clock,
                "settled": state.settled,
                "covered_from": state.covered_from,
                "gaps": state.gaps,
                "floor": state.seen.floor,
                "limit": state.seen.limit,
            }
            for ticker, state in zip(maker.tickers, maker.states, strict=True)
        ],
    }
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **arrays)
    return out.getvalue()


def load(data: bytes) -> BarMaker:
    """The maker that `save` wrote; raises ValueError for the bytes of another version."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        meta = json.loads(arrays["meta"].tobytes())
        if meta["version"] != _VERSION:
            raise ValueError(f"bar state has version {meta['version']}, this reads {_VERSION}")
        states = []
        for number, entry in enumerate(meta["tickers"]):
            first, last = arrays[f"seen/{number}"]
            seen = SeenIds(entry["limit"], entry["floor"], first, last)
            gaps = [(start, end) for start, end in entry["gaps"]]
            states.append(TickerState(seen, entry["clock"], entry["settled"], entry["covered_from"], gaps))
        levels = {int(period): _level(int(period), entry, arrays) for period, entry in meta["levels"].items()}
    return BarMaker(
        sorted(levels),
        meta["lateness_ns"],
        meta["horizon_ns"],
        [entry["ticker"] for entry in meta["tickers"]],
        states,
        levels,
        meta["duplicates"],
        meta["too_late"],
        meta.get("retired", {}),
    )


def _level(period: int, entry: dict[str, Any], arrays: Any) -> Level:
    since, seeded = ({int(number): time for number, time in entry[name].items()} for name in ("since", "seeded"))
    if f"{period}/revision" not in arrays:
        return Level(period, since=since, seeded=seeded)
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        column = arrays[f"{period}/{name}"]
        if column.dtype.kind == "U":
            column = np.array([int(text) for text in column.tolist()], dtype=object)
        columns[name] = Scaled(column, entry["scales"][name]) if name in entry["scales"] else column
    bars = Bars(period, **columns)
    return Level(period, bars, arrays[f"{period}/revision"], arrays[f"{period}/is_changed"], since, seeded)
