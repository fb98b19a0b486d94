"""Calls that read by themselves: few arguments by position, and a bool never."""

import ast
from collections.abc import Iterator

from tests.conftest import ROOT

#: Rooms that are held to it.
ROOMS = (
    "alerts",
    "bars",
    "broker",
    "bus",
    "candlewright_platform",
    "console",
    "core",
    "datasets",
    "distributions",
    "documentation",
    "gateways",
    "iceberg",
    "ingestor",
    "sandbox",
    "triggers",
    "venues",
)
MOST = 3
#: Of Redis', ccxt's and jinja's classes, and a callback whose one argument is the answer.
NAMED_BY_OTHERS = {"read_response", "handle_errors", "give_back", "call_binop"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function, bool]]:
    """(place, function, whether it is a method) of every room, generated code left out."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(path.read_text())
            methods = {id(each) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
            for node in ast.walk(tree):
                if isinstance(node, Function) and node.name not in NAMED_BY_OTHERS and not _is_command(node):
                    place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                    yield place, node, id(node) in methods and not _is_static(node)


def _is_command(node: Function) -> bool:
    """Called by typer alone: its parameters are a command line's."""
    return any(".command(" in ast.unparse(each) for each in node.decorator_list)


def _is_static(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def _positional(node: Function, *, is_method: bool) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args][is_method:]


def test_public_functions_take_few_arguments_by_position() -> None:
    found = [
        place
        for place, node, is_method in functions()
        if (node.name == "__init__" or not node.name.startswith("_"))
        and len(_positional(node, is_method=is_method)) > MOST
    ]
    assert found == []


def test_a_bool_is_passed_by_name() -> None:
    found = [
        place
        for place, node, is_method in functions()
        for argument in _positional(node, is_method=is_method)
        if argument.annotation is not None and ast.unparse(argument.annotation) == "bool"
    ]
    assert found == []
