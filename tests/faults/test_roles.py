"""Three take-overs after each fault, with a minimal part that has a role: the basis of broker, driver and relay.

Broker, relay and driver, with and without Spark, do three of each as well, and twenty in their long forms.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from tests.faults.harness import until
from tests.faults.link import Link
from tests.faults.numbering import TOPIC
from tests.faults.process import Process
from tests.faults.take_overs import FAULTS, SUITE_ROUNDS

PATIENCE_SECONDS = 60.0
pytestmark = pytest.mark.processes


class Stage:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        redis = stack.enter_context(EmbeddedRedis(folder, fsync="no"))
        self.bus = RedisBus(redis.url)
        stack.callback(self.bus.close)
        self.bus.create_topic(TOPIC, 1)
        self.parts = []
        for _ in range(2):
            link = stack.enter_context(Link(redis.url))
            self.parts.append(Process("tests.faults.numbering", folder, link))
            stack.callback(self.parts[-1].end)
            until(self.numbers, PATIENCE_SECONDS, "the first has the role")

    def numbers(self) -> list[tuple[int, int]]:
        """The numbers, each with the epoch of its publisher."""
        records = self.bus.read(TOPIC, 0, 0, max_records=1_000_000, max_bytes=1 << 30)
        return [(int(record.value), int(record.key)) for record in records]

    def has_begun(self, epoch: int) -> bool:
        (newest,) = self.bus.read(TOPIC, 0, self.bus.state(TOPIC)[0].end - 1, max_records=1)
        return int(newest.key) == epoch


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def test_three_take_overs_after_each_fault_leave_no_hole_and_no_double(stage: Stage) -> None:
    holder, standby = stage.parts
    for epoch, fault in enumerate(SUITE_ROUNDS * FAULTS, start=2):
        assert standby.said() == b"standby\n"
        with fault(holder):
            until(partial(stage.has_begun, epoch), PATIENCE_SECONDS, "a number of the next term")
        holder.start()
        holder, standby = standby, holder
    found = stage.numbers()
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    epochs = [each for _, each in found]
    assert epochs == sorted(epochs) and set(epochs) == set(range(1, SUITE_ROUNDS * len(FAULTS) + 2))
