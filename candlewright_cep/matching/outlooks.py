"""Path conditions in a form that can be judged for many rows at once.

Inside a loop whose rows no condition reads, a condition compares the tested row with values that do not change. At the
start of a match, conditions that read only its first row can be judged before anything is tried.
"""

from collections.abc import Callable
from dataclasses import dataclass

from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Column,
    Constant,
    Expression,
    Label,
    MatchNumber,
    Navigation,
    Shift,
    is_local,
    is_slot,
    rewrite,
    walk,
)
from candlewright_cep.matching.intervals import is_measured, is_telling

#: Column AMONG + i of an outlook's condition is `among[i]`.
AMONG = 1 << 20
#: Aggregates whose value is between the least and the greatest argument, up to rounding.
_BETWEEN = ("MIN", "MAX", "AVG", "ANY_VALUE", "FIRST_VALUE", "LAST_VALUE")


@dataclass(frozen=True, slots=True)
class Among:
    """A value computed from `argument` at unknown rows of the match.

    `kind` VALUE: the value of one row, or between those of two; AVG: the same up to rounding; SUM: the sum of some
    rows; COUNT: how many values there are (of rows, without argument).
    """

    kind: str
    argument: Expression | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """A condition in which column i is `rows[i]` at the tested row, and column -1 - i is `points[i]`, which is the same
    for all tested rows. A `Label` stands for a part that cannot be judged.
    """

    condition: Expression
    rows: tuple[Expression, ...]
    points: tuple[Expression, ...]
    among: tuple[Among, ...] = ()

    @property
    def picked(self) -> Expression | None:
        """The row expression whose value at one other row is all that the condition reads besides the tested row; else
        None.
        """
        is_one = len(self.among) == 1 and not self.points and self.among[0].kind == "VALUE"
        return self.among[0].argument if is_one else None

    @property
    def columns(self) -> tuple[Expression, ...]:
        """The row expressions that are read at rows other than a point's."""
        return (*self.rows, *(part.argument for part in self.among if part.argument is not None))


def in_loop(condition: Expression, variable: str) -> Outlook | None:
    """The condition of `variable` while the rows before the tested one change nothing that it reads; None if spans can
    never decide it. Its points are path expressions.
    """

    def is_settled(node: Expression) -> bool:
        if isinstance(node, Navigation):
            if any(isinstance(part, Label) for part in walk(node.argument)):
                return False
            if node.labels is None:
                return not node.last and not node.offset and not node.delta
            return variable not in node.labels
        if isinstance(node, Aggregation):
            return node.labels is not None and variable not in node.labels
        if isinstance(node, Apply):
            return all(is_settled(part) for part in node.arguments)
        return isinstance(node, Constant | MatchNumber) or is_slot(node)

    return _outlook(condition, lambda node: node if is_settled(node) else None)


def at_start(condition: Expression, first: str, *, is_once: bool) -> Outlook | None:
    """The condition of a variable when `first` is the variable of the first row, and of no other row if `is_once`. Its
    points are row expressions at the first row; values of other rows may come from anywhere in the match.
    """

    def point(node: Expression) -> Expression | None:
        if isinstance(node, Navigation):
            if not is_local(node.argument) or isinstance(node.argument, Constant) or node.offset:
                return None
            begins = node.labels is None or first in node.labels
            stays = is_once and node.labels == frozenset([first])
            if not (stays if node.last else begins):
                return None
            return Shift(node.argument, node.delta) if node.delta else node.argument
        if isinstance(node, Apply):
            parts = [point(part) for part in node.arguments]
            known = tuple(part for part in parts if part is not None)
            return Apply(node.function, known, node.type, node.extra) if len(known) == len(parts) else None
        return node if isinstance(node, Constant) or is_slot(node) else None

    return _outlook(condition, point, _among)


def _among(node: Expression) -> Among | None:
    """How a navigation or an aggregate depends on rows of the match; None if that cannot be judged."""
    if isinstance(node, Navigation):
        if not is_local(node.argument) or isinstance(node.argument, Constant) or not is_measured(node.type):
            return None
        return Among("VALUE", Shift(node.argument, node.delta) if node.delta else node.argument)
    if not isinstance(node, Aggregation) or not all(is_local(part) for part in node.arguments):
        return None
    if node.function == "COUNT":
        return Among("COUNT", None)
    is_plain = len(node.arguments) == 1 and not isinstance(node.arguments[0], Constant)
    if not is_plain or not is_measured(node.arguments[0].type) or node.function not in (*_BETWEEN, "SUM"):
        return None
    kind = node.function if node.function in ("SUM", "AVG") else "VALUE"
    return Among(kind, node.arguments[0])


def _outlook(
    condition: Expression,
    point: Callable[[Expression], Expression | None],
    elsewhere: Callable[[Expression], Among | None] = lambda _: None,
) -> Outlook | None:
    rows: dict[Expression, int] = {}
    points: dict[Expression, int] = {}
    among: dict[Among, int] = {}

    def change(node: Expression) -> Expression | None:
        if isinstance(node, Constant):
            return node
        if is_measured(node.type):
            found = point(node)
            if found is not None:
                return Column(-1 - points.setdefault(found, len(points)), node.type)
            if is_local(node):
                return Column(rows.setdefault(node, len(rows)), node.type)
            other = elsewhere(node)
            if other is not None:
                return Column(AMONG + among.setdefault(other, len(among)), node.type)
        return None if isinstance(node, Apply) else Label()

    judged = rewrite(condition, change)
    return Outlook(judged, tuple(rows), tuple(points), tuple(among)) if is_telling(judged) else None
