"""A BarMaker as bytes and back: the state from which a restarted process continues.

The format is one JSON text followed by the bytes of numpy arrays (no pickle). A state is written after every
micro-batch, and writing the members of an archive would take longer than writing their contents. Integers beyond 64
bits are stored as decimal text.
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
from bars.level import Left, Level
from bars.maker import BarMaker, TickerState
from bars.seen import SeenIds

__all__ = ["OtherVersion", "load", "pack", "save", "unpack"]

_VERSION = 3
#: A larger number means damaged data, not a version.
_MOST_VERSIONS = 1_000
_COLUMNS = [field.name for field in fields(Bars)[1:]]
_HEAD = struct.Struct("<IQ")


class OtherVersion(ValueError):
    """The state is valid, but only for the version that wrote it."""


def pack(meta: Any, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """`meta` (JSON) and one-dimensional arrays of fixed-width items, as bytes that `unpack` reads."""
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    shapes = [[name, array.dtype.str, len(array)] for name, array in kept.items()]
    head = json.dumps([meta, shapes]).encode()
    return b"".join([_HEAD.pack(_VERSION, len(head)), head, *(array.tobytes() for array in kept.values())])


def unpack(data: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """The arguments of `pack`, with writable arrays. Raises OtherVersion for a state of another version; bytes that are
    not a state may raise any exception.
    """
    version, length = _HEAD.unpack_from(data)
    if version > _MOST_VERSIONS:
        raise ValueError("not a saved state")
    if version != _VERSION:
        raise OtherVersion(f"this state has version {version}, and this program reads {_VERSION}")
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
    maker.pass_on()
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
            arrays[f"{period}/born"] = level.born
            arrays[f"{period}/changed"] = level.changed
        anew = [[*key, *value] for key, value in level.anew.items()]
        levels[period] = {
            "scales": scales,
            "since": level.since,
            "seeded": level.seeded,
            "anew": anew,
            "begins": level.begins,
        }
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
        "wanted": {ticker: sorted(periods) for ticker, periods in maker.wanted.items()},
        "left": [[*key, left.until, left.step, list(left.revisions.items())] for key, left in maker.left.items()],
        "step": maker.step,
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
    """The maker that `save` wrote; raises as `unpack`."""
    meta, arrays = unpack(data)
    ends = np.cumsum([entry["intervals"] for entry in meta["tickers"]], dtype=np.int64)[:-1]
    seen = zip(np.split(arrays["seen/first"], ends), np.split(arrays["seen/last"], ends), strict=True)
    states = []
    for entry, (first, last) in zip(meta["tickers"], seen, strict=False):
        ids = SeenIds(entry["limit"], entry["floor"], first, last)
        gaps = [(start, end) for start, end in entry["gaps"]]
        states.append(TickerState(ids, entry["clock"], entry["settled"], entry["covered_from"], gaps))
    levels = {int(period): _level(int(period), entry, arrays) for period, entry in meta["levels"].items()}
    left = {
        (number, period): Left(until, step, dict(revisions))
        for number, period, until, step, revisions in meta.get("left", [])
    }
    return BarMaker(
        periods=[period for period, level in levels.items() if level.begins is None],
        lateness_ns=meta["lateness_ns"],
        horizon_ns=meta["horizon_ns"],
        tickers=[entry["ticker"] for entry in meta["tickers"]],
        states=states,
        levels=levels,
        duplicates=meta["duplicates"],
        too_late=meta["too_late"],
        retired=meta["retired"],
        # States written before periods became per ticker lack this and the values below.
        wanted={ticker: frozenset(periods) for ticker, periods in meta.get("wanted", {}).items()},
        left=left,
        step=meta.get("step", 0),
    )


def _level(period: int, entry: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Level:
    since, seeded = ({int(number): time for number, time in entry[name].items()} for name in ("since", "seeded"))
    # Older states lack the birth steps of bars, or `unknown`.
    anew = {(number, time): (last, *(born or [0])) for number, time, last, *born in entry.get("anew", [])}
    begins = entry.get("begins")
    begins = None if begins is None else {int(number): time for number, time in begins.items()}
    level = Level(period_seconds=period, since=since, seeded=seeded, anew=anew, begins=begins)
    if f"{period}/revision" not in arrays:
        return level
    columns: dict[str, Any] = {}
    rows = len(arrays[f"{period}/revision"])
    for name in _COLUMNS:
        column = arrays.get(f"{period}/{name}", np.zeros(rows, np.uint8))
        if column.dtype.kind == "U":
            column = np.array([int(text) for text in column.tolist()], dtype=object)
        columns[name] = Scaled(column, entry["scales"][name]) if name in entry["scales"] else column
    level.bars = Bars(period_seconds=period, **columns)
    level.revision, level.is_changed = arrays[f"{period}/revision"], arrays[f"{period}/is_changed"]
    level.born, level.changed = (
        arrays.get(f"{period}/{name}", np.zeros(rows, np.int64)) for name in ("born", "changed")
    )
    return level
