"""Turns checked expressions back into text, with the names of their columns."""

from collections.abc import Sequence

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
    WindowFunction,
)
from candlewright_cep.functions.aggregates.aggregates import ORDERED, written
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.plans import Filter, Group, Join, Plan, Project, Renamed
from candlewright_cep.tracing.values import shown

_INFIX = {
    "OR": 1, "AND": 2, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6,
}  # fmt: skip
_NOT, _COMPARED, _WHOLE = 3, 4, 9
_OVER = " OVER (…)"
_DIRECTIONS = {"0": "", "1": " DESC", "2": " NULLS FIRST", "3": " DESC NULLS FIRST"}


def column_names(plan: Plan) -> tuple[str, ...]:
    """The names of a plan's columns for readers; a column without a name is named after its expression."""
    match plan:
        case Over(inner=inner, functions=functions):
            names = column_names(inner)
            made = [*names, *(_windowed(each, names) for each in functions)]
        case Group(inner=inner, keys=keys, aggregates=aggregates):
            names = column_names(inner)
            made = [text_of(each, names) for each in (*keys, *aggregates)]
        case Project(inner=inner, expressions=expressions):
            names = column_names(inner)
            made = [text_of(each, names) for each in expressions]
        case Filter(inner=inner, is_of_changes=is_of_changes):
            # Running values of a group are named as the text names them.
            made = [name.removesuffix(_OVER) if is_of_changes else name for name in column_names(inner)]
        case Renamed(inner=inner):
            made = list(column_names(inner))
        case Join(left=left, right=right):
            made = [*column_names(left), *column_names(right)]
        case _:
            made = []
    is_joined = isinstance(plan, Join)
    return tuple(
        (f"{field.qualifier}.{field.name}" if is_joined and field.qualifier else field.name)
        or (made[index] if index < len(made) else f"column {index + 1}")
        for index, field in enumerate(plan.fields)
    )


def text_of(node: Expression, names: Sequence[str], variable: str = "") -> str:
    """The expression as text. `variable`: the one that a row is tested as, whose own columns need no prefix."""
    return _text(node, names, variable, "")[0]


def _text(node: Expression, names: Sequence[str], variable: str, prefix: str) -> tuple[str, int]:
    """The text, and its precedence."""
    match node:
        case Constant(value=value, type=kind):
            return shown(value, kind), _WHOLE
        case Column(index=index):
            return prefix + names[index], _WHOLE
        case Label():
            return "CLASSIFIER()", _WHOLE
        case MatchNumber():
            return "MATCH_NUMBER()", _WHOLE
        case Shift(argument=argument, delta=delta):
            return _moved(_text(argument, names, variable, prefix)[0], delta), _WHOLE
        case Navigation():
            return _navigation(node, names, variable), _WHOLE
        case Aggregation(function=function, labels=labels, arguments=arguments):
            inner = [_text(each, names, variable, _prefix(labels))[0] for each in arguments]
            return _aggregated(function, inner or [f"{_prefix(labels)}*"]), _WHOLE
        case Apply():
            return _applied(node, names, variable, prefix)


def _prefix(labels: frozenset[str] | None) -> str:
    return "" if labels is None else "|".join(sorted(labels)) + "."


def _moved(text: str, delta: int) -> str:
    far = f", {abs(delta)}" if abs(delta) > 1 else ""
    return text if not delta else f"{'PREV' if delta < 0 else 'NEXT'}({text}{far})"


def _navigation(node: Navigation, names: Sequence[str], variable: str) -> str:
    is_own_row = node.last and not node.offset and (node.labels is None or variable in node.labels)
    text, binds = _text(node.argument, names, variable, "" if is_own_row else _prefix(node.labels))
    if not node.last or node.offset or (node.labels is None and not is_own_row) or binds < _WHOLE:
        if not is_own_row:
            back = f", {node.offset}" if node.offset else ""
            text = f"{'LAST' if node.last else 'FIRST'}({text}{back})"
        elif binds < _WHOLE and not node.delta:
            text = f"({text})"
    return _moved(text, node.delta)


def _applied(node: Apply, names: Sequence[str], variable: str, prefix: str) -> tuple[str, int]:
    parts = [_text(each, names, variable, prefix) for each in node.arguments]
    texts = [text for text, _ in parts]
    name = node.function
    if name == "IF" and node.extra:
        return f"GROUPING({names[int(node.extra)]})", _WHOLE
    if name in _INFIX:
        binds = _INFIX[name]
        # The right operand of equal precedence needs its parentheses: a - (b - c).
        inner = [
            text if tight > binds or (tight == binds and not place) else f"({text})"
            for place, (text, tight) in enumerate(parts)
        ]
        return f" {name} ".join(inner), binds
    if name == "CAST":
        return (
            parts[0] if node.type.is_measured and node.type.is_numeric else (f"CAST({texts[0]} AS {node.type})", _WHOLE)
        )
    tight = [text if binds > _COMPARED else f"({text})" for text, binds in parts]
    if name == "NOT":
        return f"NOT {tight[0]}", _NOT
    if name == "NEGATE":
        return f"-{tight[0]}", _WHOLE
    if name in ("IS NULL", "IS TRUE"):
        return f"{tight[0]} {name}", _COMPARED
    if name == "IS DISTINCT":
        return f"{tight[0]} IS DISTINCT FROM {tight[1]}", _COMPARED
    if name == "BETWEEN":
        return f"{tight[0]} BETWEEN {tight[1]} AND {tight[2]}", _COMPARED
    if name == "IN":
        return f"{tight[0]} IN ({', '.join(texts[1:])})", _COMPARED
    if name == "CASE":
        pairs = zip(texts[:-1:2], texts[1::2], strict=False)
        branches = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
        return f"CASE {branches} ELSE {texts[-1]} END", _WHOLE
    return _called(name, [*texts, *([node.extra] if node.extra else [])]), _WHOLE


def _windowed(function: WindowFunction, names: Sequence[str]) -> str:
    arguments = [text_of(each, names) for each in function.arguments] or (["*"] if function.name == "COUNT" else [])
    offset = [str(function.offset)] if function.offset != 1 else []
    numbers = [f"{each:g}" for each in function.numbers]
    return f"{_aggregated(function.name, [*arguments, *offset, *numbers])}{_OVER}"


def _aggregated(name: str, arguments: Sequence[str]) -> str:
    if not name.endswith(ORDERED):
        return _called(name, arguments)
    count = 1 if name.startswith("ARRAY_AGG") else 2
    keys = list(zip(arguments[count::2], arguments[count + 1 :: 2], strict=True))
    order = ", ".join(key + _DIRECTIONS[direction] for key, direction in keys if direction in _DIRECTIONS)
    wanted = [key for key, direction in keys if direction not in _DIRECTIONS]
    values = f"{', '.join(arguments[:count])}{f' ORDER BY {order}' if order else ''}"
    return f"{written(name)}({values}){''.join(f' FILTER (WHERE {_condition_in(key)})' for key in wanted)}"


def _condition_in(key: str) -> str:
    """The condition of a FILTER, from the CASE that a list has in its place."""
    return key.removeprefix("CASE WHEN ").removesuffix(" THEN true ELSE NULL END")


def _called(name: str, arguments: Sequence[str]) -> str:
    return f"{name}({', '.join(arguments)})"
