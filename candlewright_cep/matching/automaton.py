"""Finds which ways through a pattern can still succeed. This pruning keeps matching linear.

A pass over the rows from last to first finds, for every row, the set of program places from which a match can be
reached (a lazily built deterministic automaton over the rows' condition masks). Going forward, only candidates whose
continuation is in the set of the next row are tried. If every condition is local, the sets are exact, so the most
preferred candidate never has to be abandoned: matching takes time linear in the rows, whatever the pattern. If
conditions depend on the match so far, the sets are an upper bound, and the search backtracks within them.
"""

from dataclasses import dataclass
from itertools import accumulate
from operator import getitem
from typing import Any

from candlewright_cep import work
from candlewright_cep.limits import Limits
from candlewright_cep.matching.program import Op, Program, closure
from candlewright_cep.syntax.tokens import Position

_LAYOUT_STEPS = 40_000
#: Beyond this number all states are discarded: a pattern can have two to the power of its places.
MOST_STATES = 20_000
#: This many places count as one step of work when a state is made.
_PLACES_A_STEP = 12
_GO_ON: Any = getitem


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to continue: take the row as `variable` (`label` = 2 * variable + excluded) and go to the place `then`.

    ACCEPT has variable -1, an END anchor that waits for the end of the partition -2.
    """

    variable: int
    label: int
    then: int


ACCEPT = Candidate(-1, -1, -1)
AWAIT_END = Candidate(-2, -1, -1)


class Candidates(dict[int, tuple[Candidate, ...]]):
    """From a place to its candidates for one row, most preferred first."""

    __slots__ = ("_automaton", "_bits", "_mask", "_start")

    def __init__(self, automaton: "Automaton", mask: int, bits: int, *, start: bool) -> None:
        super().__init__()
        self._automaton, self._mask, self._bits, self._start = automaton, mask, bits, start

    def __missing__(self, place: int) -> tuple[Candidate, ...]:
        mask, bits = self._mask, self._bits
        found = tuple(
            candidate
            for candidate in self._automaton.layout(place, start=self._start, end=False)
            if candidate.variable == -1
            or (candidate.variable >= 0 and mask >> candidate.variable & 1 and bits >> candidate.then & 1)
        )
        self[place] = found
        return found


class Best(dict[int, tuple[int, int]]):
    """From a place to (label, then) of its most preferred candidate; label -1 is ACCEPT, -2 a dead end."""

    __slots__ = ("_candidates",)

    def __init__(self, candidates: Candidates) -> None:
        super().__init__()
        self._candidates = candidates

    def __missing__(self, place: int) -> tuple[int, int]:
        candidates = self._candidates[place]
        found = self[place] = (candidates[0].label, candidates[0].then) if candidates else (-2, 0)
        return found


class Step(dict[int, "Step"]):
    """One row in its context: its mask, and what can follow it. Maps the mask of the preceding row to that row's
    step.
    """

    __slots__ = ("before", "best", "candidates", "startable")

    def __init__(self, before: "State", candidates: Candidates) -> None:
        super().__init__()
        self.before = before
        self.candidates = candidates
        self.best = Best(candidates)
        self.startable = bool(before.bits & 1)

    def __missing__(self, mask: int) -> "Step":
        found = self[mask] = self.before[mask]
        return found


class State(dict[int, Step]):
    """The places from which a match can be reached before some row, as bits. Maps the mask of the preceding row to the
    step over that row.
    """

    __slots__ = ("_automaton", "bits")

    def __init__(self, automaton: "Automaton", bits: int) -> None:
        super().__init__()
        self._automaton, self.bits = automaton, bits

    def __missing__(self, mask: int) -> Step:
        found = self._automaton.step(self.bits, mask, start=False)
        self[mask] = found
        return found


class Automaton:
    """The pattern's program in terms of places: place 0 is the start, each other place follows one TAKE.

    Masks have one bit per variable; the bit of a variable without a condition is always set.
    """

    def __init__(self, program: Program, limits: Limits, at: Position) -> None:
        self.program = program
        takes = [index for index, instruction in enumerate(program.code) if instruction.op is Op.TAKE]
        self._places = [0, *(index + 1 for index in takes)]
        self._place_after = {index: number + 1 for number, index in enumerate(takes)}
        self._variables = [program.code[index].variable for index in takes]
        self.has_start_anchor = any(instruction.op is Op.START for instruction in program.code)
        self._layouts: dict[tuple[int, bool, bool, bool], tuple[Candidate, ...]] = {}
        self._states: dict[int, State] = {}
        self._steps = 0
        self._lay_out(at)
        # For each TAKE, the places from which it can be next; and the places from which ACCEPT can.
        self._sources: dict[bool, list[int]] = {}
        self._accepting: dict[tuple[bool, bool], int] = {}
        self.everything = self.state((1 << len(self._places)) - 1)

    @property
    def places(self) -> int:
        return len(self._places)

    def _lay_out(self, at: Position) -> None:
        for place in range(len(self._places)):
            self.layout(place, start=False, end=False)
            if self._steps > _LAYOUT_STEPS:
                raise at.reject("the pattern has too many possible continuations", "use smaller bounds")

    def layout(self, place: int, *, start: bool, end: bool, open_end: bool = False) -> tuple[Candidate, ...]:
        """All candidates of a place in order. `start` and `end`: whether the anchors ^ and $ hold here."""
        key = (place, start, end, open_end)
        found = self._layouts.get(key)
        if found is None:
            reached, steps = closure(self.program, self._places[place], at_start=start, at_end=end, open_end=open_end)
            self._steps += steps
            found = tuple(self._candidate(index) for index in reached)
            self._layouts[key] = found
        return found

    def waits(self, place: int) -> bool:
        """Whether an attempt that comes to this place with the last row can only wait for another one."""
        found = self.layout(place, start=False, end=False, open_end=True)
        return bool(found) and found[0] is not ACCEPT

    def last_variables(self) -> frozenset[int]:
        """Those that the last row of a match can have."""
        places = [self.layout(place, start=False, end=True) for place in range(self.places)]
        taken = [candidate for layout in places for candidate in layout if candidate.variable >= 0]
        return frozenset(candidate.variable for candidate in taken if ACCEPT in places[candidate.then])

    def _candidate(self, index: int) -> Candidate:
        instruction = self.program.code[index]
        if instruction.op is Op.ACCEPT:
            return ACCEPT
        if instruction.op is Op.END:
            return AWAIT_END
        label = 2 * instruction.variable + instruction.excluded
        return Candidate(instruction.variable, label, self._place_after[index])

    def state(self, bits: int) -> State:
        found = self._states.get(bits)
        if found is None:
            if len(self._states) >= MOST_STATES:
                self._states = {}
                self.everything = self.state(self.everything.bits)
            found = self._states[bits] = State(self, bits)
        return found

    def ended(self) -> State:
        """The state after the last row of a closed partition."""
        return self.state(self._accept_places(start=False, end=True))

    def step(self, bits: int, mask: int, *, start: bool) -> Step:
        work.current().spend(len(self._variables) // _PLACES_A_STEP)
        sources = self._sources_of(start=start)
        before = self._accept_places(start=start, end=False)
        for number, variable in enumerate(self._variables):
            if mask >> variable & 1 and bits >> (number + 1) & 1:
                before |= sources[number]
        return Step(self.state(before), Candidates(self, mask, bits, start=start))

    def _sources_of(self, *, start: bool) -> list[int]:
        found = self._sources.get(start)
        if found is None:
            found = [0] * len(self._variables)
            for place in range(len(self._places)):
                for candidate in self.layout(place, start=start, end=False):
                    if candidate.variable >= 0:
                        found[candidate.then - 1] |= 1 << place
            self._sources[start] = found
        return found

    def _accept_places(self, *, start: bool, end: bool) -> int:
        found = self._accepting.get((start, end))
        if found is None:
            found = 0
            for place in range(len(self._places)):
                if ACCEPT in self.layout(place, start=start, end=end):
                    found |= 1 << place
            self._accepting[(start, end)] = found
        return found

    def read(self, masks: list[int], end: State, *, at_start: bool) -> list[Step]:
        """The steps over consecutive rows of one partition, given the state after the last of them.

        `at_start`: the first of the rows is the first of its partition.
        """
        # Step to step by the masks, from the last row to the first; the initial state itself is not part of the result.
        passed: list[Any] = list(accumulate(reversed(masks), _GO_ON, initial=end))
        steps: list[Step] = passed[:0:-1]
        if at_start and self.has_start_anchor and masks:
            behind = steps[1].before if len(masks) > 1 else end
            steps[0] = self.step(behind.bits, masks[0], start=True)
        return steps
