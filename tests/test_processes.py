"""Two processes take the suite's files from both ends of one line, and a third one from its middle."""

import fcntl
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import FIRST, LAST, FromBothEnds, Turns, place_in_line

ROOT = Path(__file__).resolve().parents[1]


class Process:
    """One of the two, as the scheduler sees it."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.given += tests

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduler(tests: list[str], processes: int = 2) -> tuple[Any, list[Process]]:
    config: Any = SimpleNamespace(getvalue=lambda name: ["popen"] * processes, option=SimpleNamespace())
    made: Any = FromBothEnds(config, None)
    started = [Process(f"gw{number}") for number in range(processes)]
    for process in started:
        made.add_node(process)
        made.add_node_collection(process, tests)
    made.schedule()
    return made, started


def run_all(made: Any, process: Process) -> None:
    done = 0
    while done < len(process.given):
        made.mark_test_complete(process, process.given[done])
        done += 1


def test_the_first_process_begins_at_the_front_and_the_other_at_the_end() -> None:
    _, (first, second) = scheduler([f"tests/{name}.py::test" for name in "abcdefgh"])
    assert first.given == [0, 1]
    assert second.given == [7, 6]


def test_a_process_that_finishes_early_helps_and_each_test_runs_once() -> None:
    tests = [f"tests/{name}.py::test_{number}" for name in "abcdef" for number in range(3)]
    made, (first, second) = scheduler(tests)
    run_all(made, second)
    assert first.given == [0, 1, 2]
    assert second.given == [15, 16, 17, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5]


def test_a_third_process_takes_the_files_without_spark_and_then_ends() -> None:
    tests = [
        "tests/faults/test_kill.py::test",
        "tests/system/test_live.py::test",
        "tests/faults/test_up.py::test",
        "tests/bars/test_exact.py::test",
        "tests/core/test_http.py::test",
        "tests/system/test_keys.py::test",
        "tests/flink_replacement_spark/test_live.py::test",
        "tests/flink_replacement_spark/test_trigger_kill.py::test",
    ]
    made, (first, second, third) = scheduler(tests, 3)
    assert (first.given, second.given, third.given) == ([0, 1], [7, 6], [3, 4])
    run_all(made, third)
    assert third.given == [3, 4, 5]
    assert third.shutting_down
    run_all(made, second)
    assert second.given == [7, 6, 2]
    assert second.shutting_down


@pytest.mark.parametrize("name", [*FIRST, *LAST])
def test_every_file_named_in_the_line_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_files_that_share_a_platform_follow_each_other() -> None:
    def place(path: str) -> int:
        return place_in_line(SimpleNamespace(nodeid=f"{path}::test_it"))  # type: ignore[arg-type]

    assert place("tests/system/test_live.py") == place("tests/system/test_history.py")
    assert (
        place("tests/faults/test_live_replay.py")
        < place("tests/system/test_live.py")
        < place("tests/faults/test_up.py")
    )
    assert place("tests/system/test_real_data.py") < place("tests/core/test_http.py") == place("tests/test_compose.py")
    assert place("tests/core/test_http.py") < place("tests/system/test_keys.py")
    assert place("tests/system/test_keys.py") < place("tests/flink_replacement_spark/test_live.py")
    assert place("tests/flink_replacement_spark/test_live.py") == place("tests/flink_replacement_spark/test_start.py")


def gate_is_closed() -> bool:
    with (Path(tempfile.gettempdir()) / "candlewright-tests-run-gate").open("w") as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_an_exclusive_test_waits_for_the_others_and_keeps_new_ones_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one, alone, another = (Turns("run") for _ in range(3))
    told: list[str] = []
    waits = threading.Event()

    def lonely() -> None:
        waits.set()
        with alone.taken(alone=True):
            told.append("alone")

    def new() -> None:
        with another.taken(alone=False):
            told.append("another")

    early, late = threading.Thread(target=lonely), threading.Thread(target=new)
    with one.taken(alone=False):
        with another.taken(alone=False):
            told.append("both")
        early.start()
        assert waits.wait(10)
        while not gate_is_closed():
            assert early.is_alive()
        late.start()
        told.append("first")
    early.join(10)
    late.join(10)
    assert told == ["both", "first", "alone", "another"]
    for turns in (one, alone, another):
        turns.close()
    assert list(tmp_path.iterdir()) == []
