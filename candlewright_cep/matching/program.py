"""A row pattern as a small program, and the order in which its instructions are tried.

The instructions are those of a backtracking regular-expression machine: TAKE maps the current row to a variable; SPLIT
tries its targets in order; START and END are the anchors; ACCEPT is a match.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from candlewright_cep.limits import Limits
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import (
    Alternation,
    Anchor,
    Concatenation,
    Empty,
    Exclusion,
    Pattern,
    Permutation,
    Quantified,
    Variable,
)


class Op(enum.Enum):
    TAKE = "take"
    SPLIT = "split"
    JUMP = "jump"
    START = "start"
    END = "end"
    ACCEPT = "accept"


@dataclass(slots=True)
class Instruction:
    """`variable` and `excluded` for TAKE; `targets` for SPLIT and JUMP."""

    op: Op
    variable: int = -1
    excluded: bool = False
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    code: tuple[Instruction, ...]
    variables: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.code)


def variables_of(pattern: Pattern) -> Iterator[Variable]:
    """Every mention of a primary variable, from left to right."""
    match pattern:
        case Variable():
            yield pattern
        case Concatenation(parts) | Permutation(parts, _):
            for part in parts:
                yield from variables_of(part)
        case Alternation(branches):
            for branch in branches:
                yield from variables_of(branch)
        case Exclusion(inner, _):
            yield from variables_of(inner)
        case Quantified():
            yield from variables_of(pattern.inner)
        case _:
            return


def may_be_empty(pattern: Pattern) -> bool:
    match pattern:
        case Variable():
            return False
        case Concatenation(parts) | Permutation(parts, _):
            return all(may_be_empty(part) for part in parts)
        case Alternation(branches):
            return any(may_be_empty(branch) for branch in branches)
        case Exclusion(inner, _):
            return may_be_empty(inner)
        case Quantified():
            return pattern.lower == 0 or may_be_empty(pattern.inner)
        case _:
            return True


def is_single(pattern: Pattern) -> bool:
    """Whether the pattern matches in at most one way, wherever it begins."""
    match pattern:
        case Concatenation(parts):
            return all(is_single(part) for part in parts)
        case Exclusion(inner, _):
            return is_single(inner)
        case Quantified():
            return pattern.lower == pattern.upper and is_single(pattern.inner)
        case _:
            return not isinstance(pattern, Alternation | Permutation)


def has_exclusion(pattern: Pattern) -> bool:
    match pattern:
        case Exclusion():
            return True
        case Concatenation(parts) | Permutation(parts, _):
            return any(has_exclusion(part) for part in parts)
        case Alternation(branches):
            return any(has_exclusion(branch) for branch in branches)
        case Quantified():
            return has_exclusion(pattern.inner)
        case _:
            return False


def first_anchor(pattern: Pattern) -> Anchor | None:
    parts: tuple[Pattern, ...] = ()
    match pattern:
        case Anchor():
            return pattern
        case Concatenation(inner) | Permutation(inner, _) | Alternation(inner):
            parts = inner
        case Exclusion(single, _):
            parts = (single,)
        case Quantified():
            parts = (pattern.inner,)
    return next((found for part in parts if (found := first_anchor(part)) is not None), None)


def has_end_anchor(pattern: Pattern) -> bool:
    match pattern:
        case Anchor():
            return not pattern.start
        case Concatenation(parts) | Permutation(parts, _):
            return any(has_end_anchor(part) for part in parts)
        case Alternation(branches):
            return any(has_end_anchor(branch) for branch in branches)
        case Exclusion(inner, _):
            return has_end_anchor(inner)
        case Quantified():
            return has_end_anchor(pattern.inner)
        case _:
            return False


def has_unbounded_loop(pattern: Pattern) -> bool:
    match pattern:
        case Concatenation(parts) | Permutation(parts, _):
            return any(has_unbounded_loop(part) for part in parts)
        case Alternation(branches):
            return any(has_unbounded_loop(branch) for branch in branches)
        case Exclusion(inner, _):
            return has_unbounded_loop(inner)
        case Quantified():
            return pattern.upper is None or has_unbounded_loop(pattern.inner)
        case _:
            return False


class _Compiler:
    def __init__(self, numbers: dict[str, int], limits: Limits, at: Position) -> None:
        self.code: list[Instruction] = []
        self.numbers = numbers
        self.limits = limits
        self.at = at

    def emit(self, instruction: Instruction) -> int:
        if len(self.code) >= self.limits.instructions:
            raise self.at.reject(
                f"the pattern needs more than {self.limits.instructions} steps",
                "use smaller bounds or fewer PERMUTE parts",
            )
        self.code.append(instruction)
        return len(self.code) - 1

    @property
    def here(self) -> int:
        return len(self.code)

    def pattern(self, pattern: Pattern, *, excluded: bool) -> None:
        match pattern:
            case Variable(name, _):
                self.emit(Instruction(Op.TAKE, self.numbers[name], excluded))
            case Empty():
                return
            case Anchor(start, _):
                self.emit(Instruction(Op.START if start else Op.END))
            case Concatenation(parts):
                for part in parts:
                    self.pattern(part, excluded=excluded)
            case Alternation(branches):
                self.alternatives([(branch,) for branch in branches], excluded=excluded)
            case Permutation(parts, _):
                self.permuted(parts, excluded=excluded)
            case Exclusion(inner, _):
                self.pattern(inner, excluded=True)
            case Quantified():
                self.quantified(pattern, excluded=excluded)

    def alternatives(self, branches: list[tuple[Pattern, ...]], *, excluded: bool) -> None:
        split = self.emit(Instruction(Op.SPLIT))
        starts: list[int] = []
        jumps: list[int] = []
        for index, branch in enumerate(branches):
            starts.append(self.here)
            for part in branch:
                self.pattern(part, excluded=excluded)
            if index < len(branches) - 1:
                jumps.append(self.emit(Instruction(Op.JUMP)))
        self.code[split].targets = tuple(starts)
        for jump in jumps:
            self.code[jump].targets = (self.here,)

    def permuted(self, parts: tuple[Pattern, ...], *, excluded: bool, before: tuple[Pattern, ...] = ()) -> None:
        """`before` followed by all orders of `parts`, by list position.

        Orders share a prefix only if it matches in one way. Otherwise all ways of one order come before the next order,
        so each order has its own copy.
        """
        if len(parts) == 1:
            for part in (*before, *parts):
                self.pattern(part, excluded=excluded)
            return
        split = self.emit(Instruction(Op.SPLIT))
        starts: list[int] = []
        jumps: list[int] = []
        for index, part in enumerate(parts):
            starts.append(self.here)
            others = parts[:index] + parts[index + 1 :]
            if before or not is_single(part):
                self.permuted(others, excluded=excluded, before=(*before, part))
            else:
                self.pattern(part, excluded=excluded)
                self.permuted(others, excluded=excluded)
            jumps.append(self.emit(Instruction(Op.JUMP)))
        self.code[split].targets = tuple(starts)
        for jump in jumps:
            self.code[jump].targets = (self.here,)

    def quantified(self, pattern: Quantified, *, excluded: bool) -> None:
        if pattern.upper is None:
            for _ in range(pattern.lower - 1):
                self.pattern(pattern.inner, excluded=excluded)
            self.loop(pattern, excluded=excluded, optional=pattern.lower == 0)
            return
        for _ in range(pattern.lower):
            self.pattern(pattern.inner, excluded=excluded)
        splits: list[int] = []
        for _ in range(pattern.upper - pattern.lower):
            splits.append(self.emit(Instruction(Op.SPLIT)))
            self.pattern(pattern.inner, excluded=excluded)
        for split in splits:
            inside = split + 1
            self.code[split].targets = (inside, self.here) if pattern.greedy else (self.here, inside)

    def loop(self, pattern: Quantified, *, excluded: bool, optional: bool) -> None:
        before = self.emit(Instruction(Op.SPLIT)) if optional else -1
        begin = self.here
        self.pattern(pattern.inner, excluded=excluded)
        again = self.emit(Instruction(Op.SPLIT))
        for split in (before, again) if optional else (again,):
            self.code[split].targets = (begin, self.here) if pattern.greedy else (self.here, begin)


def compile_pattern(pattern: Pattern, variables: tuple[str, ...], limits: Limits, *, at: Position) -> Program:
    """Raises TriggerRejected if the program would be too long."""
    compiler = _Compiler({name: number for number, name in enumerate(variables)}, limits, at)
    compiler.pattern(pattern, excluded=False)
    compiler.emit(Instruction(Op.ACCEPT))
    return Program(tuple(compiler.code), variables)


def closure(
    program: Program, start: int, *, at_start: bool, at_end: bool, open_end: bool = False
) -> tuple[tuple[int, ...], int]:
    """The TAKE and ACCEPT instructions reachable from `start` without taking a row, most preferred first; and how many
    steps it took to find them.

    With `open_end` it is not known yet whether a row follows, so an END anchor is listed as itself. An instruction
    counts where it is first reached: a further iteration that takes no row leads nowhere.
    """
    found: dict[int, None] = {}
    seen: set[int] = set()
    pending = [start]
    while pending:
        where = pending.pop()
        if where in seen:
            continue
        seen.add(where)
        instruction = program.code[where]
        match instruction.op:
            case Op.TAKE | Op.ACCEPT:
                found.setdefault(where)
            case Op.SPLIT | Op.JUMP:
                pending.extend(reversed(instruction.targets))
            case Op.START:
                if at_start:
                    pending.append(where + 1)
            case Op.END:
                if at_end:
                    pending.append(where + 1)
                elif open_end:
                    found.setdefault(where)
    return tuple(found), len(seen)


def following(program: Program, place: int) -> tuple[int, ...]:
    """The instructions that may come after one."""
    each = program.code[place]
    return () if each.op is Op.ACCEPT else each.targets or (place + 1,)


def longest_match(program: Program, start: int = 0) -> int | None:
    """Rows of the longest match from a place on; None where a loop has no bound."""
    lengths: dict[int, int] = {}
    on_way: list[int] = [start]
    while on_way:
        place = on_way[-1]
        after = following(program, place)
        ahead = next((target for target in after if target not in lengths), None)
        if ahead is None:
            takes = program.code[place].op is Op.TAKE
            lengths[place] = max((lengths[target] for target in after), default=0) + takes
            on_way.pop()
        elif ahead in on_way:
            return None
        else:
            on_way.append(ahead)
    return lengths[start]
