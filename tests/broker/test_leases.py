"""When a job is lost, exactly to the tick."""

from itertools import count

import pytest

from broker.commands import AskHolder, Command, Dispatch, StopWork
from broker.events import (
    ClockTicked,
    ConnectionLost,
    HeartbeatHeard,
    HolderAsked,
    Kind,
    SlotOffered,
    VenueLearned,
)
from broker.state import BrokerState
from core.settings import BrokerSettings
from tests.broker.accepted import MINUTE, START, accepted

NOW = START + 1_000 * MINUTE


class Clock:
    """A state with one job of connection `a`, and its time in whole seconds."""

    def __init__(self) -> None:
        numbers = count()
        self.state = BrokerState(BrokerSettings(lease_seconds=5), lambda: f"job-{next(numbers)}", 0.0, wall_ns=NOW)
        self.state.handle(VenueLearned("TEST", 1_000, 0))
        self.state.handle(accepted())
        self.offer(b"a", 0.0)

    def offer(self, connection: bytes, at: float) -> list[Command]:
        return self.state.handle(SlotOffered(connection, ("TEST",), (Kind.HISTORICAL,), at))

    def lost_at(self, until: int) -> int | None:
        for second in range(1, until + 1):
            commands = self.state.handle(ClockTicked(float(second), NOW))
            if any(isinstance(command, StopWork) for command in commands):
                return second
        return None


def test_a_job_is_lost_one_lease_after_its_dispatch() -> None:
    assert Clock().lost_at(20) == 5


@pytest.mark.parametrize("heard_at", [1, 2, 4])
def test_a_job_is_lost_one_lease_after_its_last_heartbeat(heard_at: int) -> None:
    clock = Clock()
    clock.state.handle(HeartbeatHeard(b"a", "job-0", float(heard_at)))
    assert clock.lost_at(20) == heard_at + 5


def test_a_pause_of_the_broker_itself_costs_no_lease() -> None:
    clock = Clock()
    commands = clock.state.handle(ClockTicked(60.0, NOW))
    assert not any(isinstance(command, StopWork) for command in commands)


def test_no_lease_ends_while_the_bus_does_not_answer_about_leases() -> None:
    clock = Clock()
    for second in range(1, 61):
        commands = clock.state.handle(ClockTicked(float(second), NOW, leases_wait=True))
        assert not any(isinstance(command, StopWork | Dispatch) for command in commands)
    for second in range(61, 65):
        commands = clock.state.handle(ClockTicked(float(second), NOW))
        assert not any(isinstance(command, StopWork | Dispatch) for command in commands)
    assert any(isinstance(command, StopWork) for command in clock.state.handle(ClockTicked(65.0, NOW)))


def test_a_connection_silent_for_a_whole_lease_gets_nothing_until_it_is_heard() -> None:
    clock = Clock()
    clock.offer(b"a", 0.0)
    assert clock.lost_at(5) == 5
    other = accepted("other", offset=1)
    assert not any(isinstance(command, Dispatch) for command in clock.state.handle(other))
    commands = clock.state.handle(HeartbeatHeard(b"a", "job-0", 6.0))
    [dispatch] = [command for command in commands if isinstance(command, Dispatch)]
    assert (dispatch.connection, dispatch.note.request_id) == (b"a", "other")


def test_a_job_that_another_connection_names_follows_its_ingestor_once_the_holder_is_gone() -> None:
    """The job used to be stopped, and no trades arrived for 20 s, until the lease of the previous connection had
    expired.
    """
    clock = Clock()
    clock.offer(b"b", 0.0)
    (asked,) = clock.state.handle(HeartbeatHeard(b"b", "job-0", 1.0))
    assert asked == AskHolder(b"a", b"b", "job-0", 1.0)
    clock.state.handle(ConnectionLost(b"a"))
    assert not any(isinstance(each, StopWork) for each in clock.state.handle(HolderAsked(b"b", "job-0", 1.0)))
    assert clock.state.handle(HeartbeatHeard(b"b", "job-0", 4.0)) == []
    assert clock.lost_at(20) == 9


def test_a_stranger_is_stopped_while_the_holder_of_a_job_is_there() -> None:
    clock = Clock()
    clock.state.handle(HeartbeatHeard(b"b", "job-0", 1.0))
    assert StopWork(b"b", "job-0") in clock.state.handle(HolderAsked(b"b", "job-0", 1.0))
    assert clock.lost_at(20) == 5
