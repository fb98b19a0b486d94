"""Which gateways live."""

import os
import subprocess
import sys

import pytest

from bus.memory_bus import MemoryBus
from gateways.kafka_pixy import instances
from gateways.kafka_pixy.instances import PREFIX, TABLE, Instances, ended


def test_who_says_so_lives_until_it_leaves() -> None:
    bus = MemoryBus()
    one, two = Instances(bus), Instances(bus)
    one.beat()
    two.beat()
    assert one.living() == {one.name, two.name}
    two.leave()
    assert one.living() == {one.name}


def test_a_process_that_is_no_more_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus()
    here = Instances(bus)
    here.beat()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        place, _, _ = bus.items(TABLE)[here.name].decode().rsplit(" ", 2)
        started = instances._started(process.pid)
        bus.put(TABLE, {"other": f"{place} {process.pid} {started}".encode()}, keep_seconds=60)
        assert here.living() == {here.name, "other"}
        process.kill()
        process.wait()
        assert here.living() == {here.name}
    # The number may be another process's by now.
    bus.put(TABLE, {"other": f"{place} {os.getpid()} 1".encode()}, keep_seconds=60)
    assert here.living() == {here.name}
    # Of another machine that cannot be known.
    bus.put(TABLE, {"far": b"elsewhere 1 1"}, keep_seconds=60)
    assert here.living() == {here.name, "far"}


def test_only_gateways_are_looked_for() -> None:
    asked: list[int] = []

    def living() -> frozenset[str]:
        asked.append(1)
        return frozenset({PREFIX + "a"})

    assert ended(["somebody", "nobody"], living) == set()
    assert not asked
    assert ended(["somebody", PREFIX + "a", PREFIX + "b"], living) == {PREFIX + "b"}
