"""Which gateways are alive."""

import os
import subprocess
import sys

import pytest

from gateways.kafka_pixy import instances
from gateways.kafka_pixy.instances import KEEP_SECONDS, PREFIX, TABLE, Instances
from tests.fresh_bus import FreshBus


def test_a_heartbeat_keeps_an_instance_alive_until_it_leaves() -> None:
    bus = FreshBus()
    one, two = Instances(bus), Instances(bus)
    one.beat()
    assert one.is_alone
    two.beat()
    one.beat()
    assert not one.is_alone
    assert not two.is_alone
    assert one.ended([one.name, two.name, PREFIX + "gone"]) == {PREFIX + "gone"}
    two.leave()
    assert one.ended([two.name]) == {two.name}


@pytest.mark.processes
def test_a_process_that_has_ended_is_seen_at_once() -> None:
    bus = FreshBus()
    here = Instances(bus)
    here.beat()
    other, far = PREFIX + "other", PREFIX + "far"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        place, _, _ = bus.items(TABLE)[here.name].decode().rsplit(" ", 2)
        started = instances._started(process.pid)
        bus.put(TABLE, {other: f"{place} {process.pid} {started}".encode()}, keep_seconds=60)
        assert here.ended([other]) == set()
        process.kill()
        process.wait()
        assert here.ended([other]) == {other}
    # By now the number may belong to another process.
    bus.put(TABLE, {other: f"{place} {os.getpid()} 1".encode()}, keep_seconds=60)
    assert here.ended([other]) == {other}
    here.beat()
    assert here.is_alone
    # For another machine this cannot be known.
    bus.put(TABLE, {far: b"elsewhere 1 1"}, keep_seconds=60)
    assert here.ended([other, far]) == {other}


def test_only_gateways_are_looked_for() -> None:
    class Unasked(FreshBus):
        def items(self, table: str) -> dict[str, bytes]:
            raise AssertionError("nothing is to be asked")

    here = Instances(Unasked())
    assert here.ended(["somebody", "nobody", here.name]) == set()


def test_gateways_that_could_not_beat_while_the_bus_was_down_are_not_taken_for_dead() -> None:
    bus, now = FreshBus(), [0.0]
    here, other = Instances(bus, lambda: now[0]), PREFIX + "other"
    here.beat()
    assert here.ended([other]) == {other}
    now[0] = 20.0
    assert here.ended([other]) == set()
    for seconds in range(20, 20 + int(KEEP_SECONDS) + 1):
        now[0] = float(seconds)
        here.beat()
        assert here.ended([other]) == ({other} if seconds >= 20 + KEEP_SECONDS else set())
