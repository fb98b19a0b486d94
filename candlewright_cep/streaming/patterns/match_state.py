"""The search state of one partition as plain data, and back. Candidates are written out; programs are not, because they
are compiled again from the trigger's text.
"""

from collections.abc import Mapping
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


def snapshot(search: PartitionSearch, masks: list[int]) -> dict[str, Any]:
    """The state, ready for JSON. `masks` are those of the rows from `search.base` on."""
    histories = _Histories()
    attempt = search.attempt
    written = None
    if attempt is not None:
        written = {
            "start": attempt.start,
            "row": attempt.row,
            "place": attempt.place,
            "registers": [_written(value, histories) for value in attempt.registers],
            "labels": attempt.labels,
            "steps": attempt.steps,
            "partial": attempt.partial,
            "stack": [
                [
                    [[c.variable, c.label, c.then] for c in candidates[index:]],
                    [_written(value, histories) for value in registers],
                    row,
                    place,
                ]
                for candidates, index, registers, row, place in attempt.stack
            ],
        }
    return {
        "base": search.base,
        "first_row": search.first_row,
        "next_start": search.next_start,
        "match_number": search.match_number,
        "covered": search.covered,
        "times": search.times,
        "masks": masks,
        "attempt": written,
        "histories": histories.nodes,
    }


def restore(state: Mapping[str, Any], plan: SearchPlan) -> PartitionSearch:
    search = PartitionSearch(plan, state["base"])
    search.first_row = state["first_row"]
    search.extend(list(state["masks"]), state["times"])
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

    stack = [
        (tuple(Candidate(*c) for c in candidates), 0, tuple(read(value) for value in registers), row, place)
        for candidates, registers, row, place in written["stack"]
    ]
    search.attempt = Attempt(
        start=written["start"],
        row=written["row"],
        place=written["place"],
        registers=tuple(read(value) for value in written["registers"]),
        labels=list(written["labels"]),
        stack=stack,
        steps=written["steps"],
        partial=written["partial"],
        spent=written["steps"],
    )
    return search
