"""Every file called state.py is a state machine of one shape, `handle(event)` to a list of commands, and pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Not servers: Spark's driver keeps what its micro-batches need, and a benchmark measures that.
OTHER_ROOMS = {"flink_replacement_spark", "benchmarks"}
#: What a pure module has no use for: sockets, clocks, threads, logs, stores.
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


def states() -> list[Path]:
    found = [path.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/state.py")]
    return sorted(path for path in found if path.parts[0] not in OTHER_ROOMS)


def called(name: str) -> list[Path]:
    """Files of this name that are the platform's own, without tests."""
    found = [path.relative_to(ROOT) for path in ROOT.glob(f"[a-z]*/**/{name}")]
    return sorted(path for path in found if path.parts[0] not in {"tests", "benchmarks"})


def public(path: Path) -> set[str]:
    """Names of the functions and classes of a module, and of the methods of its classes."""
    module = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    within = [each for top in module.body if isinstance(top, ast.ClassDef) for each in top.body]
    return {each.name for each in [*module.body, *within] if isinstance(each, kinds)}


def imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", states(), ids=str)
def test_a_state_takes_an_event_and_returns_commands(path: Path) -> None:
    module = ast.parse((ROOT / path).read_text())
    handlers = [
        method
        for each in module.body
        if isinstance(each, ast.ClassDef)
        for method in each.body
        if isinstance(method, ast.FunctionDef) and method.name == "handle"
    ]
    assert len(handlers) == 1
    assert [argument.arg for argument in handlers[0].args.args] == ["self", "event"]
    assert handlers[0].returns is not None
    assert ast.unparse(handlers[0].returns) == "list[Command]"


@pytest.mark.parametrize("path", states(), ids=str)
def test_a_state_has_neither_a_socket_nor_a_clock_nor_a_log(path: Path) -> None:
    names = set(imported(ast.parse((ROOT / path).read_text())))
    assert {name for name in names if name in IMPURE or name.split(".")[0] in IMPURE - {"bus"}} == set()


@pytest.mark.parametrize("path", states(), ids=str)
def test_a_state_has_its_loop_in_the_same_folder(path: Path) -> None:
    """A state inside another server, as those of the relay, has its loop in `desk.py`."""
    assert {each.name for each in (ROOT / path.parent).glob("*.py")} & {"server.py", "desk.py"}


@pytest.mark.parametrize("path", called("door.py"), ids=str)
def test_a_door_turns_frames_into_events(path: Path) -> None:
    module = ast.parse((ROOT / path).read_text())
    names = set(imported(module))
    assert f"{path.parts[0]}.events" in names
    assert "BadFrame" in (ROOT / path).read_text()


@pytest.mark.parametrize("path", called("feed.py"), ids=str)
def test_a_feed_has_a_class_of_this_name(path: Path) -> None:
    assert {name for name in public(path) if name.endswith(("Feed", "Reader"))}
