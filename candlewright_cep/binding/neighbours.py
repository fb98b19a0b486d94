"""How the arguments of a call adapt to each other, and hints if they do not."""

import re
from collections.abc import Sequence

from candlewright_cep.binding.dialects import COLUMNS, OF_DAY, TIME_OF_DAY
from candlewright_cep.binding.expressions import Constant, Expression
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions import decimals
from candlewright_cep.functions.scalars.text import read
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import CallNode, LiteralNode, NameNode, Node
from candlewright_cep.times import UNITS, unit_name
from candlewright_cep.types import DOUBLE, Kind, SqlType, is_array, is_struct

COMPARING = frozenset(["=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN", "IS DISTINCT", "NULLIF", "DATE_DIFF", "-"])
_PERIOD = re.compile(r"(\d{1,6})\s*([A-Za-z]+)")
#: Operators that make a number beside a DECIMAL a DECIMAL as well.
EXACT = COMPARING | {"+", "*", "/", "%", "MOD", "CASE", "IF", "COALESCE", "IFNULL", "GREATEST", "LEAST"}


def adapted_constant(node: Constant, target: SqlType) -> Constant | None:
    """A NULL, a parameter or a time written as text, converted to the type that its context requires."""
    if node.value is None and node.text is None:
        return Constant(None, target)
    if target.kind is Kind.DOUBLE and node.type.is_integer:
        return Constant(float(node.value), target, node.text)
    if target.kind is Kind.BIGINT and node.type.kind is Kind.INT:
        return Constant(node.value, target, node.text)
    if node.text is None or target.kind in (Kind.INTERVAL, Kind.OPAQUE, Kind.NULL):
        return None
    value = read(node.text, target)
    return None if value is None else Constant(value, target, node.text)


def exact_literals(arguments: list[Expression], nodes: Sequence[Node]) -> list[Expression]:
    """Number literals next to a DECIMAL, as DECIMALs with the same digits, unless one of the arguments is a DOUBLE."""
    if not any(argument.type.kind is Kind.DECIMAL for argument in arguments):
        return arguments
    if any(argument.type.kind is Kind.DOUBLE and not isinstance(argument, Constant) for argument in arguments):
        return arguments
    texts = [node.digits if isinstance(node, LiteralNode) else "" for node in nodes]
    if len(texts) != len(arguments):
        texts = [""] * len(arguments)
    found: list[Expression] = []
    for argument, digits in zip(arguments, texts, strict=True):
        if isinstance(argument, Constant) and argument.type.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE):
            exact = decimals.written_exactly(argument.text or digits or str(argument.value))
            found.append(argument if exact is None else Constant(*exact, argument.text))
        else:
            found.append(argument)
    return found


def adapted_arguments(name: str, arguments: list[Expression], at: Position) -> list[Expression]:
    """Converts text next to a time, and parameters next to a value, to the type of their neighbour."""
    if name not in COMPARING:
        return arguments
    fixed = [argument for argument in arguments if not isinstance(argument, Constant)]
    target = next((argument.type for argument in fixed if argument.type.kind is not Kind.NULL), None)
    if target is None or target.kind in (Kind.INTERVAL, Kind.OPAQUE):
        return arguments
    found: list[Expression] = []
    for argument in arguments:
        wanted = isinstance(argument, Constant) and argument.text is not None and argument.type.kind is not target.kind
        if wanted and isinstance(argument, Constant) and (target.is_time or target.kind is Kind.STRING):
            adapted = adapted_constant(argument, target)
            if adapted is None:
                is_part = target.is_time and TIME_OF_DAY.fullmatch(argument.text or "")
                hint = OF_DAY if is_part else "write '2024-01-31 09:30:00'" if target.is_time else ""
                raise at.reject(f"'{(argument.text or '')[:40]}' is not a valid {target}", hint)
            found.append(adapted)
        else:
            found.append(argument)
    return found


def by_parts(
    name: str, arguments: Sequence[Expression]
) -> tuple[str, list[tuple[str, tuple[Expression, Expression]]]] | None:
    """IN and BETWEEN of STRUCTs and arrays as comparisons, and what joins them; None for other calls."""
    if name not in ("IN", "BETWEEN") or not any(is_struct(part.type) or is_array(part.type) for part in arguments):
        return None
    value, *others = arguments
    if name == "IN":
        return "OR", [("=", (value, other)) for other in others]
    return "AND", [(">=", (value, others[0])), ("<=", (value, others[1]))]


def quoted_number(arguments: Sequence[Expression], node: CallNode) -> TriggerRejected | None:
    """The error for a number in quotes next to a number."""
    if not any(argument.type.is_numeric for argument in arguments) or len(arguments) != len(node.arguments):
        return None
    for argument, given in zip(arguments, node.arguments, strict=True):
        text = argument.text if isinstance(argument, Constant) and argument.type.kind is Kind.STRING else None
        if text is not None and isinstance(given, LiteralNode):
            number = text if read(text, DOUBLE) is not None else _seconds(text, node.arguments) or "the number"
            return given.at.reject(f"the text '{text[:40]}' beside a number", f"write {number[:40]} without quotes")
    return None


def _seconds(text: str, beside: Sequence[Node]) -> str | None:
    """The seconds of a period such as 1m, if it is beside the column of periods."""
    names = {part.parts[-1].text.lower() for part in beside if isinstance(part, NameNode)}
    if not any(name == "period_seconds" or "period_seconds" in COLUMNS.get(name, ()) for name in names):
        return None
    found = _PERIOD.fullmatch(text.strip())
    unit = unit_name(found[2]) if found is not None else None
    # M alone is a month.
    if found is None or unit not in UNITS or UNITS[unit] < UNITS["SECOND"] or found[2] == "M":
        return None
    return str(int(found[1]) * UNITS[unit] // UNITS["SECOND"])


def moves_by_days(name: str, arguments: Sequence[Expression], unit: str) -> bool:
    """Whether the call adds whole days to a date, which gives a date."""
    kinds = {argument.type.kind for argument in arguments}
    if name == "DATE_ADD":
        return Kind.DATE in kinds and UNITS.get(unit, 0) % UNITS["DAY"] == 0
    if name not in ("+", "-"):
        return False
    amounts = [a.value for a in arguments if isinstance(a, Constant) and a.type.kind is Kind.INTERVAL]
    return Kind.DATE in kinds and len(amounts) == 1 and amounts[0] is not None and amounts[0] % UNITS["DAY"] == 0


def conversion_hint(name: str, types: Sequence[SqlType]) -> str:
    """What to do about types that a function does not take."""
    if any(map(is_array, types)):
        return "a[1] is one of the values of an array; = and <> compare all of them"
    if any(map(is_struct, types)):
        with_fields = "a STRUCT is compared with another one of like fields; " if name in COMPARING else ""
        return f"{with_fields}r.name is one of the fields of a STRUCT r"
    kinds = {kind.kind for kind in types}
    if name in ("+", "-") and any(kind.is_time for kind in types) and any(kind.is_numeric for kind in types):
        return f"write {name} INTERVAL '5' SECOND"
    if name == "+" and kinds == {Kind.STRING}:
        return "write || between texts"
    if Kind.INTERVAL in kinds and any(kind.is_numeric for kind in types):
        return "write INTERVAL '5' SECOND"
    if any(kind.is_time for kind in types) and any(kind.is_numeric for kind in types):
        return "compare a time with a text, as in ts > '2024-01-31 09:30:00'"
    if Kind.BOOLEAN in kinds and any(kind.is_numeric for kind in types):
        return "compare the number first, as in x > 0, and join comparisons with AND"
    return "convert one side with CAST" if Kind.STRING in kinds and len(kinds) > 1 else ""
