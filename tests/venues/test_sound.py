"""Records that readers of the bus accept as valid."""

import time

import pytest

from protobuf import records_pb2 as records
from venues import sound


def control(version: int) -> records.TriggerControl:
    registration = records.TriggerRegistration(trigger_id="t", sql="price > 0", registered_at=1, version=version)
    return records.TriggerControl(register=registration)


@pytest.mark.parametrize("version", [1, time.time_ns()], ids=["counted", "a time, as the relay gives it"])
def test_a_trigger_of_the_relay_is_sound(version: int) -> None:
    assert sound.problem_with_control(control(version)) == ""


def test_a_version_that_no_counter_holds_is_not() -> None:
    assert "version" in sound.problem_with_control(control(2**64 - 1))
