"""A BarMaker as bytes and back: what a restarted process goes on from.

One JSON text and the bytes of numpy arrays behind each other (no pickle): a state is written after every micro-batch,
and files in an archive take longer than what is in them. Integers that do not fit 64 bits travel as decimal text.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars.aggregate import Bars
from bars.exact import Scaled
from bars.level import Level
from bars.maker import BarMaker, TickerState
from bars.seen import SeenIds

__all__ = ["load", "pack", "save", "unpack"]

_VERSION = 2
_COLUMNS = [field.name for field in fields(Bars)[1:]]
_HEAD = struct.Struct("<IQ")


def pack(meta: Any, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """`meta` (JSON) and one-dimensional arrays of a fixed width, as bytes that `unpack` reads."""
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    shapes = [[name, array.dtype.str, len(array)] for name, array in kept.items()]
    head = json.dumps([meta, shapes]).encode()
    return b"".join([_HEAD.pack(_VERSION, len(head)), head, *(array.tobytes() for array in kept.values())])


def unpack(data: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """What `pack` was given; the arrays can be written to. Raises ValueError for the bytes of another version."""
    version, length = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"this state has version {version}, and this program reads {_VERSION}")
    at = _HEAD.size + length
    meta, shapes = json.loads(data[_HEAD.size : at])
    arrays = {}
    for name, kind, count in shapes:
        dtype = np.dtype(kind)
        arrays[name] = np.frombuffer(data, dtype, count, at).copy()
        at += dtype.itemsize * count
    return meta, arrays


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
        anew = [[number, time, last] for (number, time), last in level.anew.items()]
        levels[period] = {"scales": scales, "since": level.since, "seeded": level.seeded, "anew": anew}
    none = np.empty(0, np.int64)
    arrays["seen/first"] = np.concatenate([none, *(state.seen.first for state in maker.states)])
    arrays["seen/last"] = np.concatenate([none, *(state.seen.last for state in maker.states)])
    meta = {
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
                "intervals": len(state.seen.first),
            }
            for ticker, state in zip(maker.tickers, maker.states, strict=True)
        ],
    }
    return pack(meta, arrays)


def load(data: bytes) -> BarMaker:
    """The maker that `save` wrote; raises ValueError for the bytes of another version."""
    meta, arrays = unpack(data)
    ends = np.cumsum([entry["intervals"] for entry in meta["tickers"]], dtype=np.int64)[:-1]
    seen = zip(np.split(arrays["seen/first"], ends), np.split(arrays["seen/last"], ends), strict=True)
    states = []
    for entry, (first, last) in zip(meta["tickers"], seen, strict=False):
        ids = SeenIds(entry["limit"], entry["floor"], first, last)
        gaps = [(start, end) for start, end in entry["gaps"]]
        states.append(TickerState(ids, entry["clock"], entry["settled"], entry["covered_from"], gaps))
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
        meta["retired"],
    )


def _level(period: int, entry: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Level:
    since, seeded = ({int(number): time for number, time in entry[name].items()} for name in ("since", "seeded"))
    anew = {(number, time): last for number, time, last in entry.get("anew", [])}
    if f"{period}/revision" not in arrays:
        return Level(period, since=since, seeded=seeded, anew=anew)
    columns: dict[str, Any] = {}
    rows = len(arrays[f"{period}/revision"])
    for name in _COLUMNS:
        # States of before bars had `unknown` lack it.
        column = arrays.get(f"{period}/{name}", np.zeros(rows, np.uint8))
        if column.dtype.kind == "U":
            column = np.array([int(text) for text in column.tolist()], dtype=object)
        columns[name] = Scaled(column, entry["scales"][name]) if name in entry["scales"] else column
    bars = Bars(period, **columns)
    return Level(period, bars, arrays[f"{period}/revision"], arrays[f"{period}/is_changed"], since, seeded, anew)
