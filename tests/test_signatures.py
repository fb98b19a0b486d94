"""Calls that read by themselves: few arguments by position, and a bool never."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.conftest import ROOT

#: Rooms that are held to it.
ROOMS = (
    "alerts",
    "bars",
    "benchmarks",
    "broker",
    "bus",
    "candlewright",
    "candlewright_cep",
    "candlewright_platform",
    "console",
    "core",
    "datasets",
    "distributions",
    "documentation",
    "examples",
    "flink_replacement_spark",
    "gateways",
    "iceberg",
    "ingestor",
    "protobuf",
    "relay",
    "sandbox",
    "triggers",
    "venues",
)
MOST = 3
MOST_FIELDS = 6
#: Of Redis', ccxt's, jinja's and pyiceberg's classes; `evaluate` and the client's `load` are the contract's.
NAMED_BY_OTHERS = {"read_response", "handle_errors", "call_binop", "fetch_manifest_entry", "evaluate", "load"}
#: Whose one argument is the answer itself.
OF_AN_ANSWER = {"give_back", "yes_or_no"}
#: Of the trigger language's aggregates: one call for every aggregate, which names only what they share.
KERNELS = {"framed", "most_frequent", "reduced"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Declared:
    place: str
    node: Function
    is_method: bool
    #: A function in a function: what it is given to calls it by position.
    is_inner: bool

    @property
    def is_public(self) -> bool:
        return not self.is_inner and (self.node.name == "__init__" or not self.node.name.startswith("_"))

    @property
    def positional(self) -> list[ast.arg]:
        return [*self.node.args.posonlyargs, *self.node.args.args][self.is_method :]


def trees(rooms: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


@cache
def declared() -> list[Declared]:
    return [
        each
        for path, tree in trees(ROOMS)
        for each in _functions(path, tree)
        if each.node.name not in NAMED_BY_OTHERS | OF_AN_ANSWER | KERNELS and not _is_command(each.node)
    ]


def _functions(path: str, parent: ast.AST, *, is_inner: bool = False) -> Iterator[Declared]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function):
            is_method = isinstance(parent, ast.ClassDef) and not _is_static(node)
            yield Declared(f"{path}:{node.lineno} {node.name}", node, is_method=is_method, is_inner=is_inner)
        yield from _functions(path, node, is_inner=is_inner or isinstance(node, Function))


def _is_command(node: Function) -> bool:
    """Called by typer alone: its parameters are a command line's."""
    return any(".command(" in ast.unparse(each) for each in node.decorator_list)


def _is_static(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def test_public_functions_take_few_arguments_by_position() -> None:
    assert [each.place for each in declared() if each.is_public and len(each.positional) > MOST] == []


def test_a_bool_is_passed_by_name() -> None:
    found = [
        each.place
        for each in declared()
        for argument in each.positional
        if argument.annotation is not None and ast.unparse(argument.annotation) == "bool"
    ]
    assert found == []


def test_dataclasses_of_many_fields_are_made_by_name() -> None:
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees((*ROOMS, "tests"))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _fields(node) > MOST_FIELDS and not _is_made_by_name(node)
    ]
    assert found == []


def _fields(node: ast.ClassDef) -> int:
    """Of a dataclass, those that its maker takes."""
    if not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return 0
    own = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return sum("ClassVar" not in ast.unparse(each.annotation) and "init=False" not in ast.unparse(each) for each in own)


def _is_made_by_name(node: ast.ClassDef) -> bool:
    return any("kw_only=True" in ast.unparse(each) for each in node.decorator_list)
