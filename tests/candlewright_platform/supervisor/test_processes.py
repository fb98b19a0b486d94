"""Which processes belong to a part, among all processes of the machine."""

import os
import subprocess
from contextlib import ExitStack

import pytest

from candlewright_platform.supervisor import processes

pytestmark = pytest.mark.processes


def test_a_part_is_its_marked_processes_and_the_session_of_its_leader() -> None:
    run = f"test-{os.getpid()}"
    with ExitStack() as stack:

        def sleeper(mark: str) -> int:
            environment = {processes.MARK: mark} if mark else {}
            process = stack.enter_context(
                subprocess.Popen(["/bin/sleep", "60"], env=environment, start_new_session=True)
            )
            stack.callback(process.kill)
            return process.pid

        relay, child, unmarked, stranger = (sleeper(m) for m in (f"{run}/relay", f"{run}/relay", "", "other/relay"))
        found = processes.of_parts(run, {"relay": relay, "bus": unmarked, "broker": os.getpid()})
        assert found["relay"] == {relay, child}
        assert found["bus"] == {unmarked}
        assert set(processes.marked(run)) == {relay, child}
        assert stranger in processes.marked("other")
