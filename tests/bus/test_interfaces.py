"""A part takes the interface of the bus that it needs, not the whole bus."""

import ast
from collections.abc import Iterator

import pytest

from bus import api
from tests.conftest import PACKAGES, ROOT

SMALL = (api.Log, api.Registries, api.Holds, api.Groups, api.Leases, api.KeyedTables, api.Budgets)
INTERFACES = {name: each.__name__ for each in SMALL for name in vars(each) if not name.startswith("_")}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def needs(place: ast.AST, names: set[str]) -> set[str]:
    """The interfaces whose methods are called on the bus inside `place`; with "Bus", if it is passed on as well."""
    owners = {id(node.value): node.attr for node in ast.walk(place) if isinstance(node, ast.Attribute)}
    kept = {id(node.value) for node in ast.walk(place) if isinstance(node, ast.Assign) if _names(node.targets) & names}
    return {
        INTERFACES.get(owners.get(id(node), ""), "Bus")
        for node in ast.walk(place)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        if ast.unparse(node) in names and id(node) not in kept
    }


def _names(targets: list[ast.expr]) -> set[str]:
    return {ast.unparse(target) for target in targets}


def too_wide(tree: ast.Module) -> Iterator[str]:
    """Functions, and classes by their constructors, that take a bus and use only one small interface of it."""
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, Function):
                continue
            is_constructor = isinstance(parent, ast.ClassDef) and node.name == "__init__"
            for argument in (*node.args.args, *node.args.kwonlyargs):
                if argument.annotation is not None and ast.unparse(argument.annotation) == "Bus":
                    names = {argument.arg, f"self._{argument.arg}"}
                    found = needs(parent, names) if is_constructor else needs(node, {argument.arg})
                    if len(found) == 1 and found != {"Bus"}:
                        yield f"{node.lineno}: {node.name} needs {found.pop()}"


def test_a_part_takes_only_the_interface_that_it_uses() -> None:
    parts = [name for name in PACKAGES if name != "benchmarks"]
    files = {path: path.read_text() for part in parts for path in (ROOT / part).rglob("*.py")}
    takers = [path for path, text in files.items() if ": Bus" in text]
    assert len(takers) > 30
    assert [f"{path.relative_to(ROOT)}:{each}" for path in takers for each in too_wide(ast.parse(files[path]))] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def put(bus: Bus): bus.put('t', {})", ["1: put needs KeyedTables"]),
        ("def put(bus: KeyedTables): bus.put('t', {})", []),
        ("def put(bus: Bus): bus.put('t', {}); bus.publish('t', [])", []),
        ("def put(bus: Bus): other(bus)", []),
        ("class A:\n def __init__(self, bus: Bus): self._bus = bus\n def a(self): self._bus.read('t', 0, 0)",
         ["2: __init__ needs Log"]),
        ("class A:\n def __init__(self, bus: Bus): self._bus = bus\n def a(self): other(self._bus)", []),
    ],
)  # fmt: skip
def test_a_bus_that_is_too_wide_is_found(text: str, found: list[str]) -> None:
    assert list(too_wide(ast.parse(text))) == found
