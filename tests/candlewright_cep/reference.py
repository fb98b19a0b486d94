"""A slow matcher that defines the meaning of MATCH_RECOGNIZE: it enumerates mappings in order of preference.

It shares nothing with the library. Patterns are nested tuples, conditions and measures are Python functions of a
`View`; rows are dicts. Only small inputs are practical.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

Mapping = list[tuple[int, str, bool]]  # (row, variable, excluded), in row order
Rows = list[dict[str, Any]]


@dataclass
class View:
    """What an expression sees: the mapping so far (or of the whole match), the current row, the match number."""

    rows: Rows
    mapping: Mapping
    current: int | None
    number: int
    whole: Mapping = field(default_factory=list)

    def of(self, labels: set[str] | None, *, final: bool = False) -> list[int]:
        source = self.whole if final else self.mapping
        return [row for row, label, _ in source if labels is None or label in labels]

    def last(
        self, column: str, labels: set[str] | None = None, k: int = 0, *, move: int = 0, final: bool = False
    ) -> Any:
        found = self.of(labels, final=final)
        return self.at(column, found[-1 - k] + move) if len(found) > k else None

    def first(
        self, column: str, labels: set[str] | None = None, k: int = 0, *, move: int = 0, final: bool = False
    ) -> Any:
        found = self.of(labels, final=final)
        return self.at(column, found[k] + move) if len(found) > k else None

    def at(self, column: str, row: int) -> Any:
        return self.rows[row][column] if 0 <= row < len(self.rows) else None

    def values(self, column: str, labels: set[str] | None = None, *, final: bool = False) -> list[Any]:
        found = (self.rows[row][column] for row in self.of(labels, final=final))
        return [value for value in found if value is not None]

    def classifier(self, labels: set[str] | None = None, *, final: bool = False) -> str | None:
        source = self.whole if final else self.mapping
        found = [label for _, label, _ in source if labels is None or label in labels]
        return found[-1] if found else None

    def label_of(self, row: int) -> str | None:
        return next((label for mapped, label, _ in self.whole or self.mapping if mapped == row), None)


Condition = Callable[[View], bool | None]
Outcome = tuple[int, Mapping]


@dataclass(frozen=True)
class _Loop:
    """A quantified part of a pattern."""

    inner: Any
    greedy: bool
    excluded: bool


class Reference:
    def __init__(
        self,
        rows: Rows,
        defines: dict[str, Condition],
        *,
        within: int | None = None,
        gap: int | None = None,
    ) -> None:
        self.rows = rows
        self.defines = defines
        self.within = within
        self.gap = gap
        self.number = 1

    # -- all mappings from a row, most preferred first --------------------------------------------------------------

    def ways(self, pattern: Any, row: int, mapping: Mapping, *, excluded: bool) -> Iterator[Outcome]:
        kind = pattern[0]
        if kind == "var":
            yield from self._take(pattern[1], row, mapping, excluded=excluded)
        elif kind == "empty":
            yield row, mapping
        elif kind == "start":
            if row == 0:
                yield row, mapping
        elif kind == "end":
            if row == len(self.rows):
                yield row, mapping
        elif kind == "seq":
            yield from self._sequence(list(pattern[1]), row, mapping, excluded=excluded)
        elif kind == "alt":
            for branch in pattern[1]:
                yield from self.ways(branch, row, mapping, excluded=excluded)
        elif kind == "permute":
            for parts in permutations(pattern[1]):
                yield from self._sequence(list(parts), row, mapping, excluded=excluded)
        elif kind == "exclude":
            yield from self.ways(pattern[1], row, mapping, excluded=True)
        elif kind == "repeat":
            yield from self._repeat(pattern, row, mapping, excluded=excluded)

    def _take(self, name: str, row: int, mapping: Mapping, *, excluded: bool) -> Iterator[Outcome]:
        if row >= len(self.rows):
            return
        for limit, place in ((self.within, 0), (self.gap, -1)):
            if limit is not None and mapping and not self._is_sooner(row, mapping[place][0], limit):
                return
        extended = [*mapping, (row, name, excluded)]
        condition = self.defines.get(name)
        if condition is None or condition(View(self.rows, extended, row, self.number)) is True:
            yield row + 1, extended

    def _is_sooner(self, row: int, earlier: int, limit: int) -> bool:
        time, before = self.rows[row]["ts"], self.rows[earlier]["ts"]
        return time is not None and before is not None and time - before < limit

    def _sequence(self, parts: list[Any], row: int, mapping: Mapping, *, excluded: bool) -> Iterator[Outcome]:
        if not parts:
            yield row, mapping
            return
        for next_row, extended in self.ways(parts[0], row, mapping, excluded=excluded):
            yield from self._sequence(parts[1:], next_row, extended, excluded=excluded)

    def _repeat(self, pattern: Any, row: int, mapping: Mapping, *, excluded: bool) -> Iterator[Outcome]:
        _, inner, least, most, greedy = pattern
        loop = _Loop(inner, greedy, excluded)
        if most is None:
            yield from self._unbounded(loop, max(0, least - 1), row, mapping, optional=least == 0)
        else:
            yield from self._bounded(loop, least, most - least, row, mapping)

    def _once(self, loop: _Loop, row: int, mapping: Mapping) -> Iterator[Outcome]:
        return self.ways(loop.inner, row, mapping, excluded=loop.excluded)

    def _bounded(self, loop: _Loop, needed: int, allowed: int, row: int, mapping: Mapping) -> Iterator[Outcome]:
        if needed:
            for next_row, extended in self._once(loop, row, mapping):
                yield from self._bounded(loop, needed - 1, allowed, next_row, extended)
            return
        if not loop.greedy:
            yield row, mapping
        if allowed:
            for next_row, extended in self._once(loop, row, mapping):
                yield from self._bounded(loop, 0, allowed - 1, next_row, extended)
        if loop.greedy:
            yield row, mapping

    def _unbounded(self, loop: _Loop, needed: int, row: int, mapping: Mapping, *, optional: bool) -> Iterator[Outcome]:
        """`needed` iterations, then a loop. After the loop's first iteration, only iterations that take rows count."""
        if needed:
            for next_row, extended in self._once(loop, row, mapping):
                yield from self._unbounded(loop, needed - 1, next_row, extended, optional=optional)
            return
        if optional and not loop.greedy:
            yield row, mapping
        for next_row, extended in self._once(loop, row, mapping):
            if next_row == row:
                yield next_row, extended
            else:
                yield from self._further(loop, next_row, extended)
        if optional and loop.greedy:
            yield row, mapping

    def _further(self, loop: _Loop, row: int, mapping: Mapping) -> Iterator[Outcome]:
        if not loop.greedy:
            yield row, mapping
        for next_row, extended in self._once(loop, row, mapping):
            if next_row > row:
                yield from self._further(loop, next_row, extended)
        if loop.greedy:
            yield row, mapping

    # -- matches ----------------------------------------------------------------------------------------------------

    def matches(self, pattern: Any, skip: tuple[str, set[str]]) -> list[tuple[int, Mapping, int]] | None:
        """(start row, mapping, number) of every match, or None if AFTER MATCH SKIP fails."""
        found: list[tuple[int, Mapping, int]] = []
        row = 0
        while row < len(self.rows):
            self.number = len(found) + 1
            first = next(self.ways(pattern, row, [], excluded=False), None)
            if first is None:
                row += 1
                continue
            _, mapping = first
            found.append((row, mapping, self.number))
            if not mapping or skip[0] == "next":
                row += 1
            elif skip[0] == "past":
                row = mapping[-1][0] + 1
            else:
                targets = [mapped for mapped, label, _ in mapping if label in skip[1]]
                if not targets:
                    return None
                target = targets[0] if skip[0] == "first" else targets[-1]
                if target == row:
                    return None
                row = target
        return found

    def output(
        self,
        found: list[tuple[int, Mapping, int]],
        mode: str,
        measures: list[Callable[[View], Any]],
        *,
        empty: list[Any],
    ) -> list[tuple[Any, ...]]:
        """(input row, measures ...) for `mode` one, show, omit or unmatched; `empty` are the measures over no row
        (the string "number" stands for the match number)."""
        result: list[tuple[Any, ...]] = []
        touched: set[int] = set()
        for start, mapping, number in found:
            if not mapping:
                touched.add(start)
                if mode != "omit":
                    result.append((start, *(number if value == "number" else value for value in empty)))
                continue
            touched |= {row for row, _, _ in mapping}
            if mode == "one":
                view = View(self.rows, mapping, mapping[-1][0], number, mapping)
                result.append((start, *(measure(view) for measure in measures)))
                continue
            for place, (row, _, excluded) in enumerate(mapping):
                if not excluded:
                    view = View(self.rows, mapping[: place + 1], row, number, mapping)
                    result.append((row, *(measure(view) for measure in measures)))
        if mode == "unmatched":
            result += [(row, *(None for _ in measures)) for row in range(len(self.rows)) if row not in touched]
        return result
