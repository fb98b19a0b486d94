"""How three processes share the whole suite with `-n auto`, which `./run test` uses.

Tests with their own platform mostly wait for it, and many platforms at once need much memory. So one process takes
these from the front of a line of files, one after another, while another begins at its end, with the folder whose files
share one driver. In the middle are the files that need neither and mostly take a second: the third process takes those,
and ends when none is left; the first two then meet there. A file is never divided, because its shared fixtures start
once.

A test marked `alone` runs while the other processes run none: it measures times of a few milliseconds.
"""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: How many forks share the tests, if any: see `forks.py`.
FORKS = pytest.StashKey[int]()
#: Where the hooks find this process's turns.
TURNS = pytest.StashKey["Turns"]()

#: The line begins with files of these, in this order: first those that share a platform, of one folder and then of the
#: other. A file belongs to the longest name that it begins with.
FIRST = (
    "tests/faults/test_bad_requests.py",
    "tests/faults/test_frozen.py",
    "tests/faults/test_kill.py",
    "tests/faults/test_live_replay.py",
    "tests/system/",
    "tests/faults/",
    "tests/system/test_real_data.py",
    "tests/cluster/",
    "tests/system/test_match_benchmark.py",
    "tests/system/test_ohlc_benchmark.py",
    "tests/system/test_latency_benchmark.py",
    "tests/system/test_triggers_benchmark.py",
)
#: And it ends with these: files with some smaller processes each, those with one driver, one with several drivers, and
#: the longest test at the very end, because a test that wants to be alone would wait for it.
LAST = (
    "tests/faults/test_bus.py",
    "tests/faults/test_kafka_pixy.py",
    "tests/faults/test_numaflow_kill.py",
    "tests/faults/test_relay_failover.py",
    "tests/faults/test_shut_out.py",
    "tests/faults/test_udf_host.py",
    "tests/system/test_broker_kill.py",
    "tests/system/test_ingestor_process.py",
    "tests/system/test_kapacitor_udf.py",
    "tests/system/test_keys.py",
    "tests/system/test_longer_bars.py",
    "tests/system/test_numaflow_benchmark.py",
    "tests/system/test_realtime_ingestors.py",
    "tests/system/test_relay_process.py",
    "tests/system/test_rocketmq.py",
    "tests/system/test_sandbox_process.py",
    "tests/system/test_ticks_benchmark.py",
    "tests/system/test_trigger_memory_benchmark.py",
    "tests/flink_replacement_spark/test_hostile_topics.py",
    "tests/flink_replacement_spark/",
    "tests/flink_replacement_spark/test_trigger_kill.py",
    "tests/system/test_many_tickers.py",
)
_LINE = (*FIRST, "tests/", *LAST)
#: In the middle these come first. They mostly wait, for sockets and timers, while the second process computes; the
#: longest files are among them, and none of those is left to one process at the end.
WAITING = ("tests/ingestor/realtime/", "tests/relay/", "tests/broker/")


def processes_for(config: pytest.Config) -> int:
    """Three for the whole suite, six forks for its quick tests, many of which mostly wait.

    None but pytest's own for a selection of tests, or if output must appear immediately.
    """
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    chosen = config.option.keyword or config.option.markexpr
    if not whole or chosen or config.option.capture == "no":
        return 0
    return 6 if config.option.quick else 3


@cache
def _place(path: str) -> int:
    return _LINE.index(max((name for name in _LINE if path.startswith(name)), key=len))


def place_in_line(item: pytest.Item) -> tuple[int, bool]:
    path = item.nodeid.partition("::")[0]
    return _place(path), not path.startswith(WAITING)


def starts_no_spark(path: str) -> bool:
    return _LINE.index("tests/") <= _place(path) < _LINE.index("tests/flink_replacement_spark/test_hostile_topics.py")


def is_in_the_middle(path: str) -> bool:
    """Whether its folder or file is not one of those that start parts of the platform."""
    return _place(path) == _LINE.index("tests/")


class FromBothEnds(LoadFileScheduling):
    """Gives files to the first process from the front and to the second from the end.

    Further ones begin in the middle and take files that start no Spark: two platforms at once are enough.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        # The line is as collected, regardless of the number of tests in a file.
        config.option.loadscopereorder = False

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id == "gw1":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        elif node.gateway.id != "gw0" and (light := self._next_light()):
            self.workqueue.move_to_end(light, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node.gateway.id in ("gw0", "gw1") or self._next_light():
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()

    def _next_light(self) -> str | None:
        return next(filter(starts_no_spark, self.workqueue), None)


class Turns:
    """Asked by the processes of one run before each test. Uses files in the temporary folder, which `close` removes."""

    def __init__(self, run_id: str) -> None:
        self._paths = [Path(tempfile.gettempdir()) / f"candlewright-tests-{run_id}-{name}" for name in ("gate", "room")]
        self._gate, self._room = (path.open("w") for path in self._paths)

    @contextmanager
    def taken(self, *, alone: bool) -> Iterator[None]:
        """A test that waits to be alone keeps the gate closed, so that no other test enters before it."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            if not alone:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def close(self) -> None:
        for file in (self._gate, self._room):
            file.close()
        for path in self._paths:
            path.unlink(missing_ok=True)
