"""Fixtures that every folder of tests may use."""

import gc
import os
import re
import subprocess
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from tests.processes import FORKS, TURNS, FromBothEnds, Turns, is_in_the_middle, place_in_line, processes_for
from tests.rounds import rounds, take_all, take_few

pytest_plugins = ("tests.forks", "tests.timeouts")

ROOT = Path(__file__).resolve().parent.parent
#: The packages of the repository, without the tests.
PACKAGES = sorted(path.parent.name for path in ROOT.glob("[a-z]*/__init__.py") if path.parent.name != "tests")

# No deadlines, as hypothesis has if CI is set: how long an example takes depends on how busy the machine is. Each test
# has a timeout.
_SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


#: JVMs of the suite live for a few minutes, and need less processor time in total with only the first compiler.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
#: The mark of a whole file.
_ALL_START_PROCESSES = re.compile(r"^pytestmark = .*\bmark\.processes\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="also run the tests marked long: many rounds, clusters, other tools"
    )
    parser.addoption("--quick", action="store_true", help="run only tests that start no process but the embedded Redis")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    count = processes_for(config)
    if not config.option.quick:
        return count
    config.stash[FORKS] = count
    return 0


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return FromBothEnds(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--quick`, excluded files are not even imported."""
    if not config.option.quick:
        return None
    path = collection_path.relative_to(ROOT).as_posix()
    if collection_path.is_dir():
        return None if is_in_the_middle(f"{path}/") else True
    is_marked = collection_path.suffix == ".py" and _ALL_START_PROCESSES.search(collection_path.read_text())
    return None if is_in_the_middle(path) and not is_marked else True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imported and collected objects stay until the end: scanning them for garbage took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.long:
        _deselect(config, items, [item for item in items if item.get_closest_marker("long")])
    if config.option.quick:
        slow = [
            item
            for item in items
            if item.get_closest_marker("processes") or not is_in_the_middle(item.nodeid.partition("::")[0])
        ]
        _deselect(config, items, slow)
    if hasattr(config, "workerinput") or config.stash.get(FORKS, 0):
        # In one of several processes; pytest alone keeps the order of the folders.
        items.sort(key=place_in_line)


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left_out)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.long:
        take_all()
    else:
        _start_jvms_lightly()
    if config.option.quick:
        take_few()
    _build_commands_once()
    settings.register_profile("chosen", _SETTINGS, max_examples=rounds(_SETTINGS.max_examples))
    settings.load_profile("chosen")
    config.addinivalue_line("markers", "alone: the other processes run no test meanwhile")
    config.addinivalue_line("markers", "processes: starts other processes than Redis; left out with --quick")
    config.addinivalue_line("markers", "long: many rounds, clusters or other tools; runs only with --long")
    if hasattr(config, "workerinput"):
        config.stash[TURNS] = Turns(config.workerinput["testrunuid"])


def _build_commands_once() -> None:
    """Typer's runner builds every command for each call, which takes longer than most calls."""
    typer.testing._get_command = cache(typer.testing._get_command)


def _start_jvms_lightly() -> None:
    given = os.environ.get("JDK_JAVA_OPTIONS", "")
    if _FIRST_COMPILER not in given:
        os.environ["JDK_JAVA_OPTIONS"] = f"{given} {_FIRST_COMPILER}".strip()


def pytest_unconfigure(config: pytest.Config) -> None:
    if turns := config.stash.get(TURNS, None):
        turns.close()


@pytest.fixture(autouse=True, scope="session")
def _only_redis(request: pytest.FixtureRequest) -> Generator[None]:
    """Enforces the promise of `--quick`."""
    start = subprocess.Popen.__init__

    def checked(self: "subprocess.Popen[Any]", args: Any, *rest: Any, **named: Any) -> None:
        program = named.get("executable") or (args if isinstance(args, str | bytes | os.PathLike) else args[0])
        if not os.fsdecode(program).endswith("redis-server"):
            raise RuntimeError(f"a quick test starts {program}: mark it with pytest.mark.processes")
        start(self, args, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.quick:
            patch.setattr(subprocess.Popen, "__init__", checked)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Outermost, so that a test's timeout does not include the wait for its turn."""
    turns = item.config.stash.get(TURNS, None)
    if turns is None:
        return (yield)
    with turns.taken(alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their number: those of a message with a map differ between processes, but names must not."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded market data beside the checkout; a test that needs it skips where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"recorded market data is missing: {folder}")
        pytest.skip(f"no recorded market data at {folder}")
    return folder
