"""DEFINE conditions: which part needs only the row itself, and how the rest is tested inside the search.

A condition is split at its ANDs. Local parts (the row itself, PREV and NEXT of it, earlier rows of the match that are
always the same number of rows back) are computed for all rows at once and become one bit per row. The rest depends on
the mapping so far: it is compiled to a small Python function over immutable registers (the rows that LAST and FIRST
need, running aggregates). The source of that function is generated only from the checked tree: names are generated, and
every value of the trigger is passed as an object, never as text.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from candlewright_cep.binding.evaluation import apply
from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Constant,
    Expression,
    Label,
    MatchNumber,
    Navigation,
    Shift,
    conjunction,
    conjuncts,
    is_local,
    rewrite,
    walk,
)
from candlewright_cep.functions.aggregates.folds import FOLDS, Fold
from candlewright_cep.functions.scalars.arrays import cells, from_cell
from candlewright_cep.matching.distances import Distances, with_neighbours
from candlewright_cep.matching.outlooks import Outlook, in_loop
from candlewright_cep.matching.program import Program
from candlewright_cep.types import BOOLEAN, STRING, Kind, is_array
from candlewright_cep.vector import constant

Labels = frozenset[str] | None
Registers = tuple[Any, ...]
#: (registers, row, first row of the match, match number) -> registers with the row mapped, or None if the condition is
#: not true.
Trial = Callable[[Registers, int, int, int], Registers | None]
#: (registers, first row of the match, match number) -> the values of an outlook's points, None for NULL.
Known = Callable[[Registers, int, int], tuple[Any, ...]]
Bound = tuple[list[Trial | None], list[Known | None]]


class History:
    """The labels of the rows mapped so far, newest first; equal only to itself."""

    __slots__ = ("label", "previous")

    def __init__(self, label: str, previous: "History | None") -> None:
        self.label = label
        self.previous = previous

    def back(self, count: int) -> str | None:
        found: History | None = self
        for _ in range(count):
            if found is None:
                return None
            found = found.previous
        return None if found is None else found.label


@dataclass(slots=True)
class PathCode:
    """The compiled path conditions of all variables. `make(lists, base)` binds them to the values of the hoisted
    columns and returns the trials and the values of the points of `outlooks`. `steady`: the variables whose rows
    change no register.
    """

    initial: Registers
    hoisted: list[Expression]
    make: Callable[[Sequence[list[Any]], int], Bound]
    conditions: tuple[Expression | None, ...]
    outlooks: tuple[Outlook | None, ...]
    steady: frozenset[int]


@dataclass(slots=True)
class Conditions:
    """`local[v]`: the row expression of variable number v, None if it is always true. `before_match`: how many rows
    before the first one of a match they read; `lookback` may be more.
    """

    local: list[Expression | None]
    path: PathCode | None
    before_match: int = 0

    @property
    def lookahead(self) -> int:
        """How many rows after a row its conditions read."""
        expressions = [node for node in self.local if node is not None]
        if self.path is not None:
            expressions += self.path.hoisted
        deltas = [part.delta for node in expressions for part in walk(node) if isinstance(part, Shift)]
        return max([0, *deltas])

    @property
    def lookback(self) -> int:
        """How many rows before a row its conditions read."""
        expressions = [node for node in self.local if node is not None]
        if self.path is not None:
            expressions += self.path.hoisted
        deltas = [-part.delta for node in expressions for part in walk(node) if isinstance(part, Shift)]
        return max([0, *deltas])


def localised(node: Expression, variable: str) -> Expression:
    """The condition while a row is tested as `variable`, with every navigation to that row itself written as a row
    expression.
    """

    def change(part: Expression) -> Expression | None:
        if not isinstance(part, Navigation) or not part.last or part.offset:
            return None
        if part.labels is not None and variable not in part.labels:
            return None
        if any(isinstance(inner, Label) for inner in walk(part.argument)):
            if part.delta:
                return None
            return rewrite(
                part.argument, lambda inner: Constant(variable, STRING) if isinstance(inner, Label) else None
            )
        return Shift(part.argument, part.delta) if part.delta else part.argument

    return rewrite(node, change)


def named_rows(conditions: Iterable[Expression]) -> int:
    """The rows of a match that are known by their place among those of a variable: each costs time with every row."""
    known: dict[tuple[bool, frozenset[str]], int] = {}
    for condition in conditions:
        for part in walk(condition):
            if isinstance(part, Navigation) and part.labels is not None:
                kind = part.last, part.labels
                known[kind] = max(known.get(kind, 0), part.offset + 1)
    return sum(known.values())


def compile_conditions(variables: Sequence[str], definitions: Mapping[str, Expression], program: Program) -> Conditions:
    """The conditions of all primary variables, in their order. `program`: of the pattern."""
    distances = Distances(program, definitions.values())
    before_match = 0
    local: list[Expression | None] = []
    rest: list[Expression | None] = []
    for variable in variables:
        definition = definitions.get(variable)
        if definition is None:
            local.append(None)
            rest.append(None)
            continue
        whole = localised(definition, variable)
        moved = [-part.delta for part in walk(whole) if isinstance(part, Shift | Navigation)]
        before_match = max(before_match, *moved, 0)
        parts = conjuncts(with_neighbours(whole, variable, distances))
        local.append(conjunction([part for part in parts if is_local(part)]))
        rest.append(conjunction([part for part in parts if not is_local(part)]))
    if not any(rest):
        return Conditions(local, None, before_match)
    return Conditions(local, _Generator(variables, rest).compiled(), before_match)


# -- code generation ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    """Where an expression is evaluated: at row `row` (a Python name); `label` is the name of its variable, or None."""

    row: str
    delta: int = 0
    label: str | None = None


_OUTERMOST = 2


@dataclass(slots=True)
class _Source:
    lines: list[str] = field(default_factory=list)
    indent: int = _OUTERMOST
    names: int = 0
    #: Values that every later line can use, by what they hold; and names that never hold None.
    known: dict[str, str] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def fresh(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def cell(self, text: str) -> str:
        """The name that holds the value of a column at a row."""
        found = self.known.get(text)
        if found is None:
            found = self.fresh()
            self.add(f"{found} = {text}")
            if self.indent == _OUTERMOST:
                self.known[text] = found
        return found

    def missing(self, names: Sequence[str], word: str = "is", join: str = "or") -> list[str]:
        """A test of each name that may hold None, followed by `join`."""
        return [f"{name} {word} None {join}" for name in dict.fromkeys(names) if name not in self.present]


#: Python allows 100 levels of indentation.
_MOST_INDENTED = 60
_COMPARE = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class _Generator:
    def __init__(self, variables: Sequence[str], conditions: Sequence[Expression | None]) -> None:
        self.variables = variables
        self.conditions = conditions
        self.columns: dict[Expression, str] = {}
        self.objects: dict[str, Any] = {}
        self.registers: list[tuple[Any, ...]] = []
        self.initial: list[Any] = []
        self.folds: dict[Aggregation, Fold] = {}
        self.steady: set[int] = set()
        for condition in conditions:
            if condition is not None:
                self._gather(condition)

    # Registers have the keys ("last", labels, k), ("first", labels, k), ("fold", aggregation, i) and ("history",).

    def _register(self, key: tuple[Any, ...], initial: Any) -> None:
        if key not in self.registers:
            self.registers.append(key)
            self.initial.append(initial)

    def _gather(self, node: Expression) -> None:
        for part in walk(node):
            if isinstance(part, Navigation):
                if part.labels is not None:
                    for offset in range(part.offset + 1):
                        self._register(("last" if part.last else "first", part.labels, offset), -1)
                if any(isinstance(inner, Label) for inner in walk(part.argument)):
                    self._register(("history",), None)
            elif isinstance(part, Aggregation):
                fold = FOLDS[part.function] if part.arguments else FOLDS["COUNT ROWS"]
                self.folds[part] = fold
                for index, value in enumerate(fold.initial):
                    self._register(("fold", part, index), value)

    def _name(self, key: tuple[Any, ...]) -> str:
        return f"q{self.registers.index(key)}"

    def compiled(self) -> PathCode:
        source: list[str] = ["def make(lists, o):"]
        bodies: list[str] = []
        made: list[str] = []
        known: list[str] = []
        outlooks: list[Outlook | None] = []
        for number, (variable, condition) in enumerate(zip(self.variables, self.conditions, strict=True)):
            lines = self._trial(number, variable)
            made.append("None" if lines is None else f"trial{number}")
            if lines is not None:
                bodies += [f"    def trial{number}(q, r, s, m):", *lines]
            outlook = None if condition is None else in_loop(condition, variable)
            known.append("None" if outlook is None else f"known{number}")
            if outlook is not None:
                bodies += [f"    def known{number}(q, s, m):", *self._known(outlook, variable)]
            outlooks.append(outlook)
        if self.columns:
            source.append("    " + ", ".join(self.columns.values()) + ", = lists")
        source += [*bodies, f"    return [{', '.join(made)}], [{', '.join(known)}]"]
        space: dict[str, Any] = {"__builtins__": {"float": float, "max": max, "min": min, "abs": abs, "len": len}}
        space.update(self.objects)
        exec(compile("\n".join(source), "<conditions>", "exec"), space)
        return PathCode(
            tuple(self.initial), list(self.columns), space["make"], tuple(self.conditions), tuple(outlooks),
            frozenset(self.steady),
        )  # fmt: skip

    def _known(self, outlook: Outlook, variable: str) -> list[str]:
        """The values of an outlook's points. They are the same at every row of the loop, so the first row stands for
        all.
        """
        source = _Source()
        source.add("r = s")
        values = [self._value(source, point, _Place("r"), variable) for point in outlook.points]
        source.add(f"return ({''.join(f'{value}, ' for value in values)})")
        return self._unpacked() + source.lines

    def _unpacked(self) -> list[str]:
        if not self.registers:
            return []
        return ["        " + ", ".join(f"q{i}" for i in range(len(self.registers))) + ", = q"]

    def _trial(self, number: int, variable: str) -> list[str] | None:
        source = _Source()
        touched = self._update(source, variable)
        condition = self.conditions[number]
        if not touched:
            self.steady.add(number)
            if condition is None:
                return None
        if condition is not None:
            for part in conjuncts(condition):
                self._require(source, part, variable)
        result = "(" + ", ".join(f"q{i}" for i in range(len(self.registers))) + ",)" if self.registers else "()"
        source.add(f"return {result}")
        return self._unpacked() + source.lines

    def _update(self, source: _Source, variable: str) -> bool:
        """The registers after row r became `variable`."""
        touched = False
        for key in reversed(self.registers):
            name = self._name(key)
            if key[0] == "last" and variable in key[1]:
                source.add(f"{name} = " + ("r" if key[2] == 0 else self._name(("last", key[1], key[2] - 1))))
                touched = True
            elif key[0] == "first" and variable in key[1]:
                before = "" if key[2] == 0 else f" and {self._name(('first', key[1], key[2] - 1))} >= 0"
                source.add(f"if {name} < 0{before}: {name} = r")
                touched = True
            elif key[0] == "history":
                self.objects["History"] = History
                source.add(f"{name} = History({self._object(variable)}, {name})")
                touched = True
        for aggregation, fold in self.folds.items():
            if aggregation.labels is None or variable in aggregation.labels:
                place = _Place("r", label=self._object(variable))
                arguments = [self._value(source, argument, place, variable) for argument in aggregation.arguments]
                names = [self._name(("fold", aggregation, index)) for index in range(len(fold.initial))]
                touched = True
                if (inlined := _inlined(aggregation, names, arguments)) is not None:
                    source.add(inlined[0])
                    continue
                step = self._object(fold.step)
                source.add(f"{', '.join(names)}, = {step}(({', '.join(names)},), {', '.join(arguments) or 'None'})")
        return touched

    def _object(self, value: Any) -> str:
        for name, known in self.objects.items():
            if known is value:
                return name
        name = f"k{len(self.objects)}"
        self.objects[name] = value
        return name

    def _column(self, node: Expression) -> str:
        return self.columns.setdefault(node, f"c{len(self.columns)}")

    def _require(self, source: _Source, node: Expression, variable: str) -> None:
        """Emit a return unless the condition is TRUE."""
        found = source.fresh()
        self._hold(source, node, variable, found)
        source.add(f"if not {found}: return None")

    def _hold(self, source: _Source, node: Expression, variable: str, found: str) -> None:
        """Emit code that sets `found` to whether a condition is TRUE; FALSE and NULL need not be distinguished here."""
        function = node.function if isinstance(node, Apply) else ""
        arguments = node.arguments if isinstance(node, Apply) else ()
        if function in ("AND", "OR"):
            depth = source.indent
            for index, argument in enumerate(arguments):
                if index and source.indent >= _MOST_INDENTED:
                    other = source.fresh()
                    self._hold(source, argument, variable, other)
                    source.add(f"{found} = {found} {function.lower()} {other}")
                    continue
                if index:
                    source.add(f"if {found}:" if function == "AND" else f"if not {found}:")
                    source.indent += 1
                self._hold(source, argument, variable, found)
            source.indent = depth
            return
        if function in _COMPARE and not is_array(arguments[0].type):
            left, right = (self._value(source, part, _Place("r"), variable) for part in arguments)
            present = source.missing([left, right], "is not", "and")
            source.add(" ".join([f"{found} =", *present, left, _COMPARE[function], right]))
            return
        value = self._value(source, arguments[0] if function == "IS NULL" else node, _Place("r"), variable)
        source.add(f"{found} = {value} is {None if function == 'IS NULL' else True}")

    # -- values: each returns a Python name that holds the value or None ------------------------------------------

    def _value(self, source: _Source, node: Expression, place: _Place, variable: str) -> str:
        if isinstance(node, Constant):
            if node.value is None:
                return "None"
            found = self._object(cells(constant(node.type, node.value, 1))[0] if is_array(node.type) else node.value)
            source.present.add(found)
            return found
        if isinstance(node, Label):
            return place.label or "None"
        if is_local(node):
            at = Shift(node, place.delta) if place.delta else node
            return source.cell(f"{self._column(at)}[{place.row} - o]")
        if isinstance(node, MatchNumber):
            return "m"
        if isinstance(node, Navigation):
            return self._navigation(source, node, variable)
        if isinstance(node, Aggregation):
            fold = self.folds[node]
            names = [self._name(("fold", node, index)) for index in range(len(fold.initial))]
            found = source.fresh()
            if (inlined := _inlined(node, names, [])) is not None:
                source.add(f"{found} = {inlined[1]}")
                return found
            source.add(f"{found} = {self._object(fold.result)}(({', '.join(names)},))")
            return found
        assert isinstance(node, Apply)
        return self._apply(source, node, place, variable)

    def _navigation(self, source: _Source, node: Navigation, variable: str) -> str:
        row, found = source.fresh(), source.fresh()
        if node.labels is not None:
            row = self._name(("last" if node.last else "first", node.labels, node.offset))
            test = f"{row} >= 0"
        elif node.last:
            source.add(f"{row} = r - {node.offset}")
            test = f"{row} >= s"
        else:
            source.add(f"{row} = s + {node.offset}")
            test = f"{row} <= r"
        if is_local(node.argument) and not isinstance(node.argument, Constant):
            at = Shift(node.argument, node.delta) if node.delta else node.argument
            source.add(f"{found} = {self._column(at)}[{row} - o] if {test} else None")
            return found
        source.add(f"{found} = None")
        source.add(f"if {test}:")
        source.indent += 1
        if not any(isinstance(part, Label) for part in walk(node.argument)):
            value = self._value(source, node.argument, _Place(row, node.delta), variable)
            source.add(f"{found} = {value}")
        else:
            label = source.fresh()
            target = f"{row} + {node.delta}"
            source.add(f"{label} = {self._name(('history',))}.back(r - ({target})) if s <= {target} <= r else None")
            exists = self._column(Shift(Constant(True, BOOLEAN), node.delta) if node.delta else Constant(True, BOOLEAN))
            source.add(f"if {exists}[{row} - o]:")
            source.indent += 1
            value = self._value(source, node.argument, _Place(row, node.delta, label), variable)
            source.add(f"{found} = {value}")
            source.indent -= 1
        source.indent -= 1
        return found

    def _apply(self, source: _Source, node: Apply, place: _Place, variable: str) -> str:
        if node.function in ("AND", "OR"):
            return self._logic(source, node, place, variable)
        arguments = [self._value(source, argument, place, variable) for argument in node.arguments]
        found = source.fresh()
        none = " or ".join(f"{argument} is None" for argument in arguments)
        simple = self._simple(node, arguments)
        if node.function == "IS NULL":
            source.add(f"{found} = {arguments[0]} is None")
        elif node.function == "COALESCE":
            source.add(f"{found} = {arguments[-1]}")
            for argument in reversed(arguments[:-1]):
                source.add(f"if {argument} is not None: {found} = {argument}")
        elif node.function == "CASE":
            # From the last branch to the first, so that the first branch that holds is assigned last.
            source.add(f"{found} = {arguments[-1]}")
            for index in range(len(arguments) - 3, -1, -2):
                source.add(f"if {arguments[index]} is True: {found} = {arguments[index + 1]}")
        elif node.function == "IN":
            source.add(f"{found} = {self._object(_in)}({', '.join(arguments)})")
        elif node.function == "BETWEEN":
            value, low, high = arguments
            unknown = f"{self._object(_between)}({value}, {low}, {high})"
            source.add(f"{found} = {unknown} if {none} else {low} <= {value} <= {high}")
        elif simple is not None:
            source.add(f"{found} = None if {none} else {simple}")
        else:
            source.add(f"{found} = {self._object(_general(node))}({', '.join(arguments)})")
        return found

    def _simple(self, node: Apply, arguments: list[str]) -> str | None:
        """Python text for functions that have the same meaning in Python."""
        name = node.function
        types = [argument.type for argument in node.arguments]
        if name in _COMPARE and not is_array(types[0]):
            return f"{arguments[0]} {_COMPARE[name]} {arguments[1]}"
        if name == "NOT":
            return f"not {arguments[0]}"
        exact = (Kind.BIGINT, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL)
        if name in ("+", "-") and all(kind.kind in exact for kind in types):
            return f"{self._object(_within_64_bits)}({arguments[0]} {name} {arguments[1]})"
        if name in ("+", "-", "*") and all(kind.kind is Kind.DOUBLE for kind in types):
            return f"{arguments[0]} {name} {arguments[1]}"
        if name == "/" and all(kind.kind is Kind.DOUBLE for kind in types):
            return f"{self._object(_quotient)}({arguments[0]}, {arguments[1]})"
        if name in ("ABS", "NEGATE") and types[0].kind is Kind.DOUBLE:
            return f"abs({arguments[0]})" if name == "ABS" else f"-{arguments[0]}"
        if name == "CAST" and node.type.kind is Kind.DOUBLE and types[0].is_integer:
            return f"float({arguments[0]})"
        if name == "CAST" and node.type.kind is Kind.BIGINT and types[0].kind is Kind.INT:
            return arguments[0]
        return None

    def _logic(self, source: _Source, node: Apply, place: _Place, variable: str) -> str:
        found = source.fresh()
        decides = node.function == "OR"
        depth = source.indent
        source.add(f"{found} = {not decides}")
        for index, argument in enumerate(node.arguments):
            source.indent = depth
            if index and depth < _MOST_INDENTED:
                source.add(f"if {found} is not {decides}:")
                source.indent += 1
            value = self._value(source, argument, place, variable)
            source.add(f"if {value} is {decides}: {found} = {decides}")
            source.add(f"elif {value} is None and {found} is not {decides}: {found} = None")
        source.indent = depth
        return found


def _inlined(node: Aggregation, state: list[str], arguments: list[str]) -> tuple[str, str] | None:
    """The step and the value of the simplest aggregates as text; equivalent to their `Fold`."""
    value = arguments[0] if arguments else ""
    if node.function == "COUNT":
        return f"if {value} is not None: {state[0]} += 1" if value else f"{state[0]} += 1", state[0]
    if node.function in ("MIN", "MAX"):
        best = state[0]
        is_better = f"{best} is None or {best} != {best} or {value} {'<' if node.function == 'MIN' else '>'} {best}"
        return f"if {value} is not None and ({is_better}): {best} = {value}", best
    if node.arguments[0].type.kind is not Kind.DOUBLE:
        return None
    if node.function == "SUM":
        return f"if {value} is not None: {state[0]} = {value} if {state[0]} is None else {state[0]} + {value}", state[0]
    if node.function == "AVG":
        count, total = state
        return f"if {value} is not None: {count} += 1; {total} += {value}", f"{total} / {count} if {count} else None"
    return None


def _quotient(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or left != left or right != right:
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return left / right


def _in(value: Any, *options: Any) -> bool | None:
    if value is None:
        return None
    if any(option == value for option in options if option is not None):
        return True
    return None if None in options else False


def _between(value: Any, low: Any, high: Any) -> bool | None:
    """For NULL arguments: FALSE if a known bound decides alone, otherwise NULL."""
    is_outside = value is not None and ((low is not None and value < low) or (high is not None and value > high))
    return False if is_outside else None


def _within_64_bits(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def _general(node: Apply) -> Callable[..., Any]:
    """Any other function: its vectorised form applied to single values."""
    types = [argument.type for argument in node.arguments]

    def run(*values: Any) -> Any:
        vectors = [from_cell(kind, value) for kind, value in zip(types, values, strict=True)]
        return cells(apply(node, vectors))[0]

    return run
