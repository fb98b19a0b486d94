"""References to earlier rows of a match that are always the same number of rows back.

In `PATTERN (A B)`, `A.price` in the condition of B is the price of the row before. Written so, the condition needs the
row and its neighbours alone: it is computed for all rows at once, and triggers that wait for it share their work.

The numbers are found by a forward data-flow analysis of the pattern's program: what is known at an instruction is
joined over all ways to it (Kildall, "A Unified Approach to Global Program Optimization", 1973).
"""

from collections.abc import Iterable, Sequence

from candlewright_cep.binding.expressions import Expression, Label, Navigation, Shift, rewrite, walk
from candlewright_cep.matching.program import Op, Program, following

#: Conditions that look further back stay as they are, because each stream keeps as many rows to compute them.
_MOST_ROWS = 32
#: The distance differs between the ways to an instruction.
_VARIES = -1
#: The rows of which the last (True) or the first one is meant.
_Key = tuple[bool, frozenset[str]]
#: How far each of these rows is behind the newest row of the match; None if there is none yet.
_Known = tuple[int | None, ...]


class Distances:
    """`at(variable, reference)`: how many rows before a row of `variable` the rows lie that `reference` means, None if
    this differs or they may not exist.
    """

    def __init__(self, program: Program, definitions: Iterable[Expression]) -> None:
        keys = dict.fromkeys(key for node in definitions for part in walk(node) if (key := _key(part)) is not None)
        self._keys = {key: place for place, key in enumerate(keys)}
        self._of: dict[str, _Known] = {}
        if keys:
            self._find(program, list(keys))

    def at(self, variable: str, reference: Navigation) -> int | None:
        key = _key(reference)
        found = self._of.get(variable) if key is not None else None
        distance = None if found is None or key is None else found[self._keys[key]]
        return None if distance is None or not 0 <= distance <= _MOST_ROWS else distance

    def _find(self, program: Program, keys: Sequence[_Key]) -> None:
        before: dict[int, _Known] = {0: (None,) * len(keys)}
        changed = [0]
        while changed:
            place = changed.pop()
            instruction, known = program.code[place], before[place]
            if instruction.op is Op.TAKE:
                variable = program.variables[instruction.variable]
                known = _taken(known, keys, variable)
                self._of[variable] = _joined(self._of.get(variable, known), known)
            for after in following(program, place):
                joined = _joined(before.get(after, known), known)
                if before.get(after) != joined:
                    before[after] = joined
                    changed.append(after)


def _key(node: Expression) -> _Key | None:
    is_plain = isinstance(node, Navigation) and not node.offset and node.labels is not None
    if not is_plain or any(isinstance(part, Label) for part in walk(node)):
        return None
    assert isinstance(node, Navigation) and node.labels is not None
    return node.last, node.labels


def _taken(known: _Known, keys: Sequence[_Key], variable: str) -> _Known:
    found: list[int | None] = []
    for distance, (is_last, labels) in zip(known, keys, strict=True):
        if variable in labels and (is_last or distance is None):
            found.append(0)
        elif distance is None or distance == _VARIES or distance > _MOST_ROWS:
            found.append(distance)
        else:
            found.append(distance + 1)
    return tuple(found)


def _joined(one: _Known, other: _Known) -> _Known:
    return tuple(left if left == right else _VARIES for left, right in zip(one, other, strict=True))


def with_neighbours(condition: Expression, variable: str, distances: Distances) -> Expression:
    """The condition of `variable` with its references to rows at a known distance as references to earlier rows."""

    def change(part: Expression) -> Expression | None:
        distance = distances.at(variable, part) if isinstance(part, Navigation) else None
        if distance is None:
            return None
        assert isinstance(part, Navigation)
        delta = part.delta - distance
        if not -_MOST_ROWS <= delta <= 0:
            return None
        return Shift(part.argument, delta) if delta else part.argument

    return rewrite(condition, change)
