"""The search state of one partition as plain data, and back. Candidates are written out; programs are not, because they
are compiled again from the trigger's text. What the rows themselves bring (times, masks) is saved with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from candlewright_cep.matching.automaton import Candidate
from candlewright_cep.matching.conditions import History
from candlewright_cep.matching.search import Attempt, PartitionSearch, SearchPlan


class _Histories:
    """Label histories share their tails; each node is written only once."""

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[History] = []

    def number(self, history: History | None) -> int:
        pending: list[History] = []
        current = history
        while current is not None and id(current) not in self._numbers:
            pending.append(current)
            current = current.previous
        for node in reversed(pending):
            previous = -1 if node.previous is None else self._numbers[id(node.previous)]
            self._numbers[id(node)] = len(self.nodes)
            self._kept.append(node)
            self.nodes.append([node.label, previous])
        return -1 if history is None else self._numbers[id(history)]


def _written(value: Any, histories: _Histories) -> Any:
    """The JSON form of a register; values without one are tagged with the name of their type."""
    if isinstance(value, History):
        return {"history": histories.number(value)}
    if isinstance(value, tuple):
        return {"tuple": [_written(part, histories) for part in value]}
    return {"set": list(value)} if isinstance(value, frozenset) else value


@dataclass(slots=True)
class _Saved:
    """The last written form of an attempt's stack and labels, of which the unchanged part is used again.

    `stack`: the places with candidates still to try. Places that differ only in being at consecutive rows are one,
    which ends with their count; `ends`: where each ends in the stack. `runs`: labels and their counts. `size`,
    `length`: of the stack and of the labels.
    """

    stack: list[list[Any]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    runs: list[list[int]] = field(default_factory=list)
    size: int = 0
    length: int = 0

    def update(self, attempt: Attempt, histories: _Histories) -> None:
        """Follow the changes of the attempt. `histories`: new for each snapshot, so values that name one are not used
        again.
        """
        kept = min(attempt.kept, self.size)
        if kept < self.size:
            # Labels are dropped only with the places from which they were taken.
            self._cut_labels(min(self.length, attempt.stack[kept - 1][3] - attempt.start if kept else 0))
            while self.ends and self.ends[-1] > kept:
                self.stack.pop()
                self.ends.pop()
        self._extend_stack(attempt.stack, histories)
        self.size = attempt.kept = len(attempt.stack)
        while self.length < len(attempt.labels):
            label, count = attempt.labels[self.length], _run(attempt.labels, self.length)
            self.length += count
            if self.runs and self.runs[-1][0] == label:
                self.runs[-1][1] += count
            else:
                self.runs.append([label, count])

    def _cut_labels(self, length: int) -> None:
        while self.length > length:
            left = self.runs[-1][1] - (self.length - length)
            if left > 0:
                self.runs[-1][1], self.length = left, length
            else:
                self.length -= self.runs.pop()[1]

    def _extend_stack(self, stack: Sequence[Any], histories: _Histories) -> None:
        found, ends, end = self.stack, self.ends, self.ends[-1] if self.ends else 0
        before: tuple[Any, ...] = ()
        if end:
            candidates, index, registers, _, place = stack[end - 1]
            before = candidates, index, place, registers
        for number in range(end, len(stack)):
            candidates, index, registers, row, place = stack[number]
            if index == len(candidates):
                continue
            this = candidates, index, place, registers
            is_next = bool(found) and row == found[-1][2] + found[-1][4] and this[:3] == before[:3]
            if is_next and _are_same(registers, before[3]):
                found[-1][4] += 1
                ends[-1] = number + 1
            else:
                left = [[c.variable, c.label, c.then] for c in candidates[index:]]
                found.append([left, [_written(value, histories) for value in registers], row, place, 1])
                ends.append(number + 1)
            before = this


def _run(labels: bytearray, start: int) -> int:
    """How many labels from `start` on are equal. Bytes are compared much faster together than one by one."""
    label, size, at = labels[start], 1, start + 1
    while labels[at : at + size] == bytes((label,)) * size:
        at += size
        size *= 2
    while size > 1:
        size //= 2
        if labels[at : at + size] == bytes((label,)) * size:
            at += size
    return at - start


def _are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))


_WITHOUT = '{"base":%d,"first_row":%d,"next_start":%d,"match_number":%d,"covered":%d,"attempt":null,"histories":[]}'


def without_attempt(search: PartitionSearch) -> str:
    """The state as JSON, like that of `snapshot`, if no attempt is open; an empty string if one is."""
    if search.attempt is not None:
        return ""
    return _WITHOUT % (search.base, search.first_row, search.next_start, search.match_number, search.covered)


def snapshot(search: PartitionSearch) -> dict[str, Any]:
    """The state, ready for JSON."""
    histories = _Histories()
    attempt = search.attempt
    written = None
    if attempt is not None:
        saved = attempt.saved if isinstance(attempt.saved, _Saved) else _Saved()
        saved.update(attempt, histories)
        attempt.saved = None if histories.nodes else saved
        written = {
            "start": attempt.start,
            "row": attempt.row,
            "place": attempt.place,
            "registers": [_written(value, histories) for value in attempt.registers],
            "runs": saved.runs,
            "steps": attempt.steps,
            "partial": attempt.partial,
            "stack": saved.stack,
        }
    return {
        "base": search.base,
        "first_row": search.first_row,
        "next_start": search.next_start,
        "match_number": search.match_number,
        "covered": search.covered,
        "attempt": written,
        "histories": histories.nodes,
    }


def restore(state: Mapping[str, Any], plan: SearchPlan) -> PartitionSearch:
    """The search without its rows, which must be given to it again."""
    search = PartitionSearch(plan, state["base"])
    search.first_row = state["first_row"]
    search.next_start = state["next_start"]
    search.match_number = state["match_number"]
    search.covered = state["covered"]
    written = state["attempt"]
    if written is None:
        return search
    nodes: list[History] = []
    for label, previous in state["histories"]:
        nodes.append(History(label, None if previous < 0 else nodes[previous]))

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "tuple" in value:
            return tuple(read(part) for part in value["tuple"])
        if "set" in value:
            return frozenset(value["set"])
        return None if value["history"] < 0 else nodes[value["history"]]

    stack: list[tuple[tuple[Candidate, ...], int, tuple[Any, ...], int, int]] = []
    # In states of older versions, each place stands for one row, and labels are not in runs.
    for candidates, registers, row, place, *count in written["stack"]:
        left, values = tuple(Candidate(*c) for c in candidates), tuple(read(value) for value in registers)
        stack += [(left, 0, values, row + further, place) for further in range(*count or (1,))]
    labels = written.get("labels") or [label for label, count in written.get("runs", ()) for _ in range(count)]
    search.attempt = Attempt(
        start=written["start"],
        row=written["row"],
        place=written["place"],
        registers=tuple(read(value) for value in written["registers"]),
        labels=bytearray(labels),
        stack=stack,
        steps=written["steps"],
        partial=written["partial"],
        spent=written["steps"],
    )
    return search
