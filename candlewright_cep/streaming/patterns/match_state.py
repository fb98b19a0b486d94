"""The search state of one partition as plain data, and back. Candidates are written out; programs are not, because they
are compiled again from the trigger's text. What the rows themselves bring (times, masks) is saved with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
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


def _stack(attempt: Attempt, histories: _Histories) -> list[list[Any]]:
    """The places with candidates still to try. Places that differ only in being at consecutive rows become one, which
    ends with their count.
    """
    found: list[list[Any]] = []
    before: tuple[Any, ...] = ()
    for candidates, index, registers, row, place in attempt.stack:
        if index == len(candidates):
            continue
        this = candidates, index, place, registers
        is_next = bool(found) and row == found[-1][2] + found[-1][4] and this[:3] == before[:3]
        if is_next and _are_same(registers, before[3]):
            found[-1][4] += 1
        else:
            left = [[c.variable, c.label, c.then] for c in candidates[index:]]
            found.append([left, [_written(value, histories) for value in registers], row, place, 1])
        before = this
    return found


def _are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))


def _runs(labels: Iterable[int]) -> list[list[int]]:
    return [[label, len(list(same))] for label, same in groupby(labels)]


def snapshot(search: PartitionSearch) -> dict[str, Any]:
    """The state, ready for JSON."""
    histories = _Histories()
    attempt = search.attempt
    written = None
    if attempt is not None:
        written = {
            "start": attempt.start,
            "row": attempt.row,
            "place": attempt.place,
            "registers": [_written(value, histories) for value in attempt.registers],
            "runs": _runs(attempt.labels),
            "steps": attempt.steps,
            "partial": attempt.partial,
            "stack": _stack(attempt, histories),
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
        labels=labels,
        stack=stack,
        steps=written["steps"],
        partial=written["partial"],
        spent=written["steps"],
    )
    return search
