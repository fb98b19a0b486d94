"""Interval joins: the times of one side are in a band around the times of the other.

A band is `lower <= right - left <= upper` over two integers (times in nanoseconds). `b.ts BETWEEN a.ts - INTERVAL '5'
SECOND AND a.ts` and its other spellings all take this form.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression, rewrite, walk
from candlewright_cep.planning.relation import Relation, partition_codes
from candlewright_cep.types import NANOSECONDS, Kind, SqlType
from candlewright_cep.vector import Bools, Index, Vector, concatenate, is_ascending, ranges

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_WHOLE = (Kind.TIMESTAMP, Kind.DATE, Kind.BIGINT, Kind.INT, Kind.INTERVAL)
_LEAST, _MOST = -(2**63), 2**63 - 1
#: A key and a time are combined into one number if they fit, with room for the ends.
_ROOM = 2**62


@dataclass(frozen=True, slots=True)
class Band:
    """`left` and `right`: expressions over one side each, as columns of that side. A bound of None: no bound."""

    left: Expression
    right: Expression
    lower: int | None = None
    upper: int | None = None

    def narrowed(self, other: "Band") -> "Band":
        """The intersection of two bands over the same two expressions."""
        lowers = [bound for bound in (self.lower, other.lower) if bound is not None]
        uppers = [bound for bound in (self.upper, other.upper) if bound is not None]
        return replace(self, lower=max(lowers, default=None), upper=min(uppers, default=None))

    def turned(self) -> "Band":
        """The same band from the other side."""
        lower, upper = (None if bound is None else -bound for bound in (self.upper, self.lower))
        return Band(self.right, self.left, lower, upper)

    def is_of(self, other: "Band") -> bool:
        return (self.left, self.right) == (other.left, other.right)


def side_of(node: Expression, width: int) -> bool | None:
    """True if it reads only the left side, False if only the right; None for both or neither."""
    used = {part.index < width for part in walk(node) if isinstance(part, Column)}
    return used.pop() if len(used) == 1 else None


def moved_right(node: Expression, width: int) -> Expression:
    """The expression over the columns of the right side."""

    def moved(part: Expression) -> Expression | None:
        return Column(part.index - width, part.type) if isinstance(part, Column) else None

    return rewrite(node, moved)


def bands_in(part: Expression, width: int) -> list[Band]:
    """The bands that a comparison or BETWEEN sets between the sides of a join; empty for other conditions."""
    if not isinstance(part, Apply):
        return []
    if part.function == "BETWEEN":
        value, low, high = part.arguments
        found = [_band(">=", value, low, width), _band("<=", value, high, width)]
    elif part.function in _MIRRORED:
        one, other = part.arguments
        found = [_band(part.function, one, other, width)]
    else:
        return []
    bands = [band for band in found if band is not None]
    return bands if len(bands) == len(found) else []


def _band(symbol: str, one: Expression, other: Expression, width: int) -> Band | None:
    sides = side_of(one, width), side_of(other, width)
    if sides == (True, False):
        symbol, one, other = _MIRRORED[symbol], other, one
    elif sides != (False, True):
        return None
    right, left = _linear(one), _linear(other)
    if right is None or left is None:
        return None
    distance = left[1] - right[1]
    strict = symbol in ("<", ">")
    lower = distance + strict if symbol in (">", ">=", "=") else None
    upper = distance - strict if symbol in ("<", "<=", "=") else None
    return Band(left[0], moved_right(right[0], width), lower, upper)


def _linear(node: Expression) -> tuple[Expression, int] | None:
    """`node` as another expression and a distance from it; None if it is not an integer."""
    if node.type.kind not in _WHOLE:
        return None
    if isinstance(node, Apply) and node.function == "CAST" and _is_exact(node.arguments[0].type, node.type):
        return _linear(node.arguments[0])
    if isinstance(node, Apply) and node.function in ("+", "-") and node.type.kind is not Kind.DATE:
        one, other = node.arguments
        if node.function == "+" and isinstance(one, Constant):
            one, other = other, one
        if isinstance(other, Constant) and not isinstance(one, Constant) and other.value is not None:
            unit = NANOSECONDS[node.type.unit] if node.type.kind is Kind.TIMESTAMP else 1
            inner = _linear(one) if one.type.kind is node.type.kind else None
            if inner is not None and other.value % unit == 0:
                return inner[0], inner[1] + (other.value if node.function == "+" else -other.value)
    return node, 0


def _is_exact(source: SqlType, target: SqlType) -> bool:
    """Whether the conversion keeps the number."""
    if source.kind is Kind.TIMESTAMP and target.kind is Kind.TIMESTAMP:
        return NANOSECONDS[source.unit] >= NANOSECONDS[target.unit]
    return source.kind is Kind.INT and target.kind is Kind.BIGINT


def key_codes(left: Relation, right: Relation, keys: Sequence[tuple[Expression, Expression]]) -> tuple[Index, Index]:
    """Common numbers for the keys of both sides; negative where a key is NULL, which equals nothing."""
    if not keys:
        return np.zeros(left.length, np.int64), np.zeros(right.length, np.int64)
    parts: list[Vector] = []
    for one, other in keys:
        parts.append(concatenate([left.values().value(one), right.values().value(other)]))
    numbers = partition_codes(parts, left.length + right.length)
    missing = np.zeros(len(numbers), dtype=np.bool_)
    for part in parts:
        missing |= ~part.mask
    return (
        np.where(missing[: left.length], -1, numbers[: left.length]),
        np.where(missing[left.length :], -2, numbers[left.length :]),
    )


class Ordered:
    """The right side of a join in the order of (key, time); rows of equal time keep their order."""

    def __init__(self, codes: Index, times: Vector) -> None:
        times = times.expand()
        rows = np.flatnonzero(times.mask & (codes >= 0))
        values: Index = times.values
        self._least = int(values[rows].min()) if len(rows) else 0
        span = (int(values[rows].max()) - self._least if len(rows) else 0) + 3
        self._steps: Index | None = None
        count = int(codes.max(initial=0)) + 1
        offsets = values[rows]
        if span >= _ROOM // count:
            self._steps = np.unique(offsets)
            offsets, span = np.searchsorted(self._steps, offsets), len(self._steps) + 2
        else:
            offsets = offsets - self._least
        self._span = span
        placed = codes[rows] * span + offsets + 1
        if not is_ascending(placed):
            order = np.argsort(placed, kind="stable")
            rows, placed = rows[order], placed[order]
        #: Row numbers of the right side in this order.
        self.rows: Index = rows.astype(np.int64)
        self._placed = placed
        self._starts = np.searchsorted(placed, np.arange(count + 1, dtype=np.int64) * span).astype(np.int64)

    def before(self, codes: Index, times: Index, *, inclusive: bool) -> Index:
        """How many rows come, in this order, before these times of these keys (`inclusive`: or at them)."""
        if self._steps is not None:
            at = np.searchsorted(self._steps, times, side="right" if inclusive else "left")
            # The number of smaller distinct times, which is the 1-based rank of the last of them.
            offsets: Index = at.astype(np.int64)
            side = True
        else:
            last = min(_MOST, self._least + self._span - 2)
            offsets = np.clip(times, max(_LEAST, self._least - 1), last) - self._least + 1
            side = inclusive
        wanted = codes * self._span + offsets
        found: Index = np.searchsorted(self._placed, wanted, side="right" if side else "left").astype(np.int64)
        return found

    def starts(self, codes: Index) -> Index:
        """The positions at which the rows of these keys begin."""
        found: Index = self._starts.take(np.minimum(codes, len(self._starts) - 1))
        return found


def shifted(times: Index, distance: int) -> Index:
    """The sum, clamped to the range of times."""
    distance = max(_LEAST, min(_MOST, distance))
    if distance >= 0:
        moved: Index = np.minimum(times, _MOST - distance) + distance
    else:
        moved = np.maximum(times, _LEAST - distance) + distance
    return moved


@dataclass(frozen=True, slots=True)
class BandSearch:
    """For each left row, its band in `ordered`: positions `begin` to `end`, where `known`."""

    ordered: Ordered
    begin: Index
    end: Index
    known: Bools

    @classmethod
    def of(
        cls, left: Relation, right: Relation, keys: Sequence[tuple[Expression, Expression]], *, band: Band
    ) -> "BandSearch":
        one, other = key_codes(left, right, keys)
        ordered = Ordered(other, right.values().value(band.right))
        times = left.values().value(band.left).expand()
        known = times.mask & (one >= 0)
        codes = np.where(known, one, 0)
        begin = (
            ordered.starts(codes)
            if band.lower is None
            else ordered.before(codes, shifted(times.values, band.lower), inclusive=False)
        )
        end = (
            ordered.starts(codes + 1)
            if band.upper is None
            else ordered.before(codes, shifted(times.values, band.upper), inclusive=True)
        )
        return cls(ordered, begin, end, known)

    @property
    def counts(self) -> Index:
        found: Index = np.where(self.known, np.maximum(self.end - self.begin, 0), 0)
        return found

    def pairs(self) -> tuple[Index, Index]:
        """Row numbers of both sides; a left row's partners are in the order of their times."""
        counts = self.counts
        return np.repeat(np.arange(len(counts), dtype=np.int64), counts), self.ordered.rows[ranges(self.begin, counts)]

    def nearest(self, *, is_last: bool) -> Index:
        """For each left row the row number of its last, or first, match; -1 if it has none."""
        found = np.full(len(self.begin), -1, np.int64)
        some = np.flatnonzero(self.counts)
        found[some] = self.ordered.rows[self.end[some] - 1 if is_last else self.begin[some]]
        return found
