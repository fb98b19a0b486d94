"""Calls are readable: few positional arguments, and never a positional bool."""

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import PACKAGES, ROOT

#: The folders that are checked.
ROOMS = (*PACKAGES, "distributions", "examples")
MOST = 3
MOST_FIELDS = 6
#: Methods of Redis', ccxt's, jinja's and pyiceberg's classes; the contract fixes `evaluate` and the client's `load`.
NAMED_BY_OTHERS = {"read_response", "handle_errors", "call_binop", "fetch_manifest_entry", "evaluate", "load"}
#: Methods whose only argument is the value that they set.
OF_AN_ANSWER = {"give_back", "yes_or_no"}
#: Calls of the trigger language's aggregates, all of which have the same signature.
KERNELS = {"framed", "joined_whole", "most_frequent", "reduced", "whole_arrays"}
#: Decorators of functions that no one calls by position.
_CALL_BY_NAME = (".command(", "fixture", "rule(", "given(")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Declared:
    place: str
    name: str
    #: Name and annotation of the parameters that may be given by position.
    positional: tuple[tuple[str, str], ...]
    #: A nested function is called by position by whatever it is passed to.
    is_inner: bool

    @property
    def is_public(self) -> bool:
        return not self.is_inner and (self.name == "__init__" or not self.name.startswith("_"))


@dataclass(frozen=True)
class File:
    functions: tuple[Declared, ...]
    #: Dataclasses of many fields that are made by position.
    wide: tuple[str, ...]


@cache
def files() -> list[File]:
    """Without their syntax trees, which the garbage collector would scan repeatedly."""
    gc.disable()
    try:
        return [_read(path) for room in (*ROOMS, "tests") for path in sorted((ROOT / room).rglob("*.py"))]
    finally:
        gc.enable()


def _read(path: Path) -> File:
    place, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
    wide = [
        f"{place}:{node.lineno} {node.name}"
        for node in _statements(tree)
        if isinstance(node, ast.ClassDef) and _fields(node) > MOST_FIELDS and not _is_made_by_name(node)
    ]
    return File(tuple(_functions(place, tree)), tuple(wide))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly inside, without expressions, which are most of a tree."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        yield from getattr(node, name, ())


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for each in _inside(node):
        yield each
        yield from _statements(each)


def declared() -> list[Declared]:
    return [
        each for file in files() for each in file.functions if each.name not in NAMED_BY_OTHERS | OF_AN_ANSWER | KERNELS
    ]


def _functions(path: str, parent: ast.AST, *, is_inner: bool = False) -> Iterator[Declared]:
    for node in _inside(parent):
        if isinstance(node, Function) and not _is_called_by_name(node):
            is_method = isinstance(parent, ast.ClassDef) and not _is_static(node)
            arguments = [*node.args.posonlyargs, *node.args.args][is_method:]
            positional = tuple(
                (each.arg, ast.unparse(each.annotation) if each.annotation is not None else "") for each in arguments
            )
            yield Declared(f"{path}:{node.lineno} {node.name}", node.name, positional, is_inner)
        yield from _functions(path, node, is_inner=is_inner or isinstance(node, Function))


def _is_called_by_name(node: Function) -> bool:
    """Called only by typer, pytest or hypothesis, which pass every argument by name."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    return node.name.startswith("test_") or any(word in each for each in decorators for word in _CALL_BY_NAME)


def _is_static(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def test_public_functions_take_few_arguments_by_position() -> None:
    assert [each.place for each in declared() if each.is_public and len(each.positional) > MOST] == []


def test_a_bool_is_passed_by_name() -> None:
    found = [each.place for each in declared() if "bool" in {annotation for _, annotation in each.positional}]
    assert found == []


def test_dataclasses_of_many_fields_are_made_by_name() -> None:
    assert [place for file in files() for place in file.wide] == []


def _fields(node: ast.ClassDef) -> int:
    """The fields of a dataclass that its constructor takes."""
    if not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return 0
    own = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return sum("ClassVar" not in ast.unparse(each.annotation) and "init=False" not in ast.unparse(each) for each in own)


def _is_made_by_name(node: ast.ClassDef) -> bool:
    return any("kw_only=True" in ast.unparse(each) for each in node.decorator_list)
