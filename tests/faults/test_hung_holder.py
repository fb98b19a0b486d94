"""A holder of a role whose main thread hangs while its others run: its lease is still renewed, so it has to notice."""

import json
import signal
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

import pytest

from bus.redis.embedded import EmbeddedRedis
from bus.roles import HANG_SECONDS
from candlewright_platform.supervisor.ports import free_port
from core.background import EXIT_CODE
from tests.faults.harness import until
from tests.faults.link import Link
from tests.faults.process import Process

PATIENCE_SECONDS = 60.0
pytestmark = pytest.mark.processes


class _Heard(Process):
    stderr = PIPE


@pytest.mark.timeout(240)
@pytest.mark.parametrize("part", ["broker", "alerts"])
def test_a_holder_that_hangs_ends_with_an_error_and_its_standby_takes_over(tmp_path: Path, part: str) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(tmp_path / "redis", fsync="no"))

        def started(kind: type[Process], name: str) -> Process:
            made = kind(
                "tests.faults.hanging",
                tmp_path,
                stack.enter_context(Link(redis.url)),
                HANGING_PART=part,
                CANDLEWRIGHT_DATA_DIR=str(tmp_path / name),
                CANDLEWRIGHT_BROKER__BIND=f"tcp://127.0.0.1:{free_port()}",
            )
            stack.callback(made.end)
            return made

        holder = started(_Heard, "holder")
        until(holder.is_ready, PATIENCE_SECONDS, "the part serves")
        standby = started(Process, "standby")
        until(standby.is_standby, PATIENCE_SECONDS, "the other stands by")
        holder.process.send_signal(signal.SIGUSR1)
        _, errors = holder.process.communicate(timeout=HANG_SECONDS + PATIENCE_SECONDS)
        assert holder.process.returncode == EXIT_CODE
        until(standby.is_ready, PATIENCE_SECONDS, "the other serves")
    said = json.loads(errors.splitlines()[0])
    assert (said["event"], said["level"]) == ("background_failed", "error")
    assert f"its loop has not moved for {HANG_SECONDS:g} s" in said["error"]
