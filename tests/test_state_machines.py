"""One dialect: a file called state.py is a state machine, `handle(event)` to a list of commands, and pure. The files
beside it do what CONTRIBUTING.md says under their names.
"""

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PACKAGES, ROOT

#: Not part of the platform: a module in them is named for the subject that it tests, measures or shows.
OTHER_ROOMS = {"benchmarks", "documentation"}
#: CONTRIBUTING.md promises that each of these files has a class whose name ends like this, and that every such class is
#: in such a file.
CLASSES = {"feed": "Feed", "writer": "Writer", "desk": "Desk", "store": "Store"}
#: The exchange of the sandbox, and the address where it listens: two complete objects, which most tests need as one.
JOINED = {"Sandbox"}
#: Operations that run as generators: the steps that they yield are commands, and they are resumed with events.
CLIENT = Path("candlewright/client/session/session.py")
#: Imports that a pure module does not need: sockets, clocks, threads, logs, stores.
IMPURE = {
    "aiohttp",
    "asyncio",
    "bus",
    "ccxt",
    "core.log",
    "grpc",
    "pyiceberg",
    "redis",
    "socket",
    "threading",
    "time",
    "zmq",
}


MODULES = sorted(
    path.relative_to(ROOT) for name in PACKAGES if name not in OTHER_ROOMS for path in (ROOT / name).glob("**/*.py")
)


def called(name: str) -> list[Path]:
    return [path for path in MODULES if path.name == name]


@pytest.fixture(autouse=True, scope="module")
def _trees_are_not_searched() -> Iterator[None]:
    """The garbage collector would scan the trees of all files repeatedly."""
    gc.disable()
    yield
    parsed.cache_clear()
    gc.enable()


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def classes(path: Path) -> list[ast.ClassDef]:
    return [each for each in parsed(path).body if isinstance(each, ast.ClassDef)]


def assigned(path: Path) -> set[str]:
    """Names that a module gives to types and values, at its top."""
    return {
        ast.unparse(target) for each in parsed(path).body if isinstance(each, ast.Assign) for target in each.targets
    }


def imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", called("state.py"), ids=str)
def test_a_state_takes_an_event_and_returns_commands(path: Path) -> None:
    handlers = [
        method
        for each in classes(path)
        for method in each.body
        if isinstance(method, ast.FunctionDef) and method.name == "handle"
    ]
    assert len(handlers) == 1
    assert [argument.arg for argument in handlers[0].args.args] == ["self", "event"]
    assert handlers[0].returns is not None
    assert ast.unparse(handlers[0].returns) == "list[Command]"


@pytest.mark.parametrize("path", called("state.py"), ids=str)
def test_a_state_has_neither_a_socket_nor_a_clock_nor_a_log(path: Path) -> None:
    names = set(imported(parsed(path)))
    assert {name for name in names if name in IMPURE or name.split(".")[0] in IMPURE - {"bus"}} == set()


@pytest.mark.parametrize("path", called("state.py"), ids=str)
def test_a_state_has_its_loop_in_the_same_folder(path: Path) -> None:
    """A state inside another server, as those of the relay, has its loop in `desk.py`."""
    assert {each.name for each in (ROOT / path.parent).glob("*.py")} & {"server.py", "desk.py"}


@pytest.mark.parametrize("path", called("door.py"), ids=str)
def test_a_door_turns_frames_into_events(path: Path) -> None:
    assert f"{path.parts[0]}.events" in set(imported(parsed(path)))
    assert "BadFrame" in (ROOT / path).read_text()


@pytest.mark.parametrize("path", called("desk.py"), ids=str)
def test_a_desk_is_the_loop_of_a_state_inside_another_server(path: Path) -> None:
    beside = {each.name for each in (ROOT / path.parent).glob("*.py")}
    assert "state.py" in beside
    assert "server.py" not in beside


@pytest.mark.parametrize("name", ["events", "commands"])
def test_events_and_commands_are_those_of_a_state(name: str) -> None:
    kind = name.removesuffix("s").capitalize()
    defined = {path: assigned(path) for path in MODULES if path.name in ("state.py", "events.py", "commands.py")}
    for path in called(f"{name}.py"):
        assert defined[path] & {"Event", "Command"} == {kind}, path
        assert path.with_name("state.py") in defined, path
        assert kind not in defined[path.with_name("state.py")], path
    # A value that a state returns has this name too, wherever it is defined.
    for path in called("state.py"):
        beside = defined.get(path.with_name("commands.py"), set())
        assert "Command" in defined[path] | beside, path


def test_only_a_state_has_events_and_commands() -> None:
    for path in MODULES:
        if path.name not in ("state.py", "events.py", "commands.py") and path != CLIENT:
            assert not assigned(path) & {"Event", "Command"}, path


@pytest.mark.parametrize("name", CLASSES)
def test_a_file_has_the_class_of_its_name(name: str) -> None:
    for path in called(f"{name}.py"):
        assert [each for each in classes(path) if each.name.endswith(CLASSES[name])], path


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_in_the_file_of_its_name(name: str) -> None:
    """A file of several feeds is called `feeds.py`."""
    for path in MODULES:
        for each in classes(path):
            if each.name.endswith(CLASSES[name]) and not each.name.startswith("_"):
                assert path.name in (f"{name}.py", f"{name}s.py"), f"{path}: {each.name}"


def test_only_a_state_handles() -> None:
    for path in MODULES:
        methods = {method.name for each in classes(path) for method in each.body if isinstance(method, ast.FunctionDef)}
        assert path.name == "state.py" or "handle" not in methods, path


def test_a_class_has_at_most_one_base_with_fields() -> None:
    """A class that inherits fields from several classes cannot be read in one file."""
    own = {each.name: each for path in MODULES for each in classes(path)}

    def has_fields(base: str) -> bool:
        found = own.get(base)
        return found is not None and any(isinstance(m, ast.FunctionDef) and m.name == "__init__" for m in found.body)

    for path in MODULES:
        for each in classes(path):
            bases = [ast.unparse(base).partition("[")[0] for base in each.bases]
            assert sum(map(has_fields, bases)) <= 1 or each.name in JOINED, f"{path}: {each.name}"
