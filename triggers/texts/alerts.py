"""Where a trigger's events are delivered and with which text: its parameters `alert_to` and `alert_message`.
`alert_resolved_by` names the trigger whose events resolve the alert.

Templates are a subset of jinja2's that can neither run for long nor reach anything outside: values, comparisons,
arithmetic on numbers, and some filters. There are no loops, calls, attributes or assignments.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.filters import do_round
from jinja2.sandbox import SandboxedEnvironment

from candlewright.wire.errors import InvalidRequest

__all__ = ["ALERT_PARAMETERS", "AlertAsked", "engine_parameters", "render"]

TO, MESSAGE, RESOLVED_BY = "alert_to", "alert_message", "alert_resolved_by"
ALERT_PARAMETERS = frozenset({TO, MESSAGE, RESOLVED_BY})
#: `alert_to` of a trigger whose events are not delivered automatically.
NOWHERE = "none"
#: Names that a template may use besides the columns of its trigger.
_ALWAYS = frozenset({"trigger_id", "ticker", "time"})
_MAX_TEMPLATE, _MAX_TEXT = 2_000, 4_000
_FILTERS = frozenset({"abs", "default", "float", "int", "lower", "round", "title", "trim", "upper"})
_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.If, nodes.CondExpr, nodes.Compare,
    nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div,
    nodes.FloorDiv, nodes.Mod, nodes.Concat, nodes.Filter, nodes.Keyword, nodes.Test,
)  # fmt: skip


#: How Python reports a template whose code it cannot compile.
_TOO_DEEP = (RecursionError, SyntaxError, MemoryError)
_NESTED = "nested too deeply"
#: The time that jinja2 takes to compile filters of filters grows with the third power of their number.
_MOST_NESTED = 50
#: Python computes a power of ten with this many digits, which takes hours for a large number.
_MOST_DIGITS = 30


class _Environment(SandboxedEnvironment):
    """Limits arithmetic to numbers: text could be multiplied, or padded by a format, to any length."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise TemplateError(f"{operator} needs two numbers")
        return super().call_binop(context, operator, left, right)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if not -_MOST_DIGITS <= precision <= _MOST_DIGITS:
        raise TemplateError(f"round takes a precision of at most {_MOST_DIGITS} digits")
    return do_round(value, precision, method)


_ENVIRONMENT = _Environment(undefined=StrictUndefined, autoescape=False)
_ENVIRONMENT.filters["round"] = _round


class AlertAsked:
    """The alert parameters of a trigger; `to` is empty if the routes in the settings decide."""

    def __init__(self, to: tuple[str, ...], message: str, resolved_by: str = "") -> None:
        self.to = to
        self.message = message
        self.resolved_by = resolved_by

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "AlertAsked":
        names = (name.strip().lower() for name in parameters.get(TO, "").split(","))
        return cls(
            tuple(name for name in names if name), parameters.get(MESSAGE, ""), parameters.get(RESOLVED_BY, "").strip()
        )

    def check(self, columns: Iterable[str] | None, destinations: Collection[str] | None) -> None:
        """Raises InvalidRequest. An argument of None is unknown and is not checked."""
        if destinations is not None and (unknown := [name for name in self.to if name not in (*destinations, NOWHERE)]):
            known = ", ".join(sorted(destinations)) or "none"
            raise InvalidRequest(f"{TO}: no destination {unknown[0]!r} in the settings; configured: {known}")
        if self.message:
            _check(self.message, columns)


def engine_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters without those for alerts, so that triggers that differ only in these share their stream."""
    return {name: value for name, value in parameters.items() if name not in ALERT_PARAMETERS}


def render(message: str, values: Mapping[str, Any]) -> str:
    """Raises ValueError for a template that cannot be rendered with these values."""
    # A template can repeat a value hundreds of times.
    short = {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in values.items()}
    try:
        return str(_compiled(message).render(short))[:_MAX_TEXT]
    except _TOO_DEEP as error:
        raise ValueError(_NESTED) from error
    except (TemplateError, ArithmeticError, TypeError) as error:
        raise ValueError(str(error)) from error


def _check(message: str, columns: Iterable[str] | None) -> None:
    if len(message) > _MAX_TEMPLATE:
        raise InvalidRequest(f"{MESSAGE}: longer than {_MAX_TEMPLATE} characters")
    try:
        tree = _ENVIRONMENT.parse(message)
        _check_depth(tree)
        _check_nodes(tree)
        _compiled(message)
    except TemplateSyntaxError as error:
        raise InvalidRequest(f"{MESSAGE} line {error.lineno}: {error.message}") from error
    except _TOO_DEEP as error:
        raise InvalidRequest(f"{MESSAGE}: {_NESTED}") from error
    if columns is None:
        return
    # The trigger language, with pyarrow: only a check needs it, and the process that delivers alerts makes none.
    from candlewright_cep.binding.binder import closest

    known = _ALWAYS | set(columns)
    for name in tree.find_all(nodes.Name):
        if name.name not in known:
            place = f"{name.lineno}:{_column(message, name)}"
            hint = closest(name.name, known) or f"the columns are {', '.join(sorted(known - _ALWAYS))}"
            raise InvalidRequest(f"{MESSAGE} {place}: no column '{name.name}'; {hint}")


def _check_depth(tree: nodes.Template) -> None:
    level: list[nodes.Node] = [tree]
    for _ in range(_MOST_NESTED):
        level = [child for node in level for child in node.iter_child_nodes()]
    if level:
        raise InvalidRequest(f"{MESSAGE}: {_NESTED}")


def _check_nodes(tree: nodes.Template) -> None:
    for node in tree.find_all(nodes.Node):
        if not isinstance(node, _ALLOWED):
            raise InvalidRequest(f"{MESSAGE} line {node.lineno}: {type(node).__name__.lower()} is not allowed here")
        if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
            raise InvalidRequest(
                f"{MESSAGE} line {node.lineno}: no filter '{node.name}'; allowed: {', '.join(sorted(_FILTERS))}"
            )


def _column(message: str, name: nodes.Name) -> int:
    """The column of an error: jinja2 reports only lines."""
    line = message.splitlines()[name.lineno - 1]
    return max(0, line.find(name.name, max(0, line.find("{{")))) + 1


@lru_cache(maxsize=1_000)
def _compiled(message: str) -> Any:
    return _ENVIRONMENT.from_string(message)
