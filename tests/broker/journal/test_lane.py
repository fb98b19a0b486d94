"""Writes by the loop's own poll, and by the thread where that fails."""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest
import zmq

from broker.journal.batch import Leases
from broker.journal.lane import Lane
from broker.journal.writer import BusWriter, OutcomeLog
from candlewright.wire.errors import BusUnavailable
from tests.fresh_bus import FreshBus

PATIENCE_SECONDS = 20.0


class Answer:
    """A grant that is done once `come` was called, or lost once `lose` was."""

    def __init__(self, bus: FreshBus, leases: Mapping[str, bytes], revoking: Sequence[str]) -> None:
        self._grant = lambda: bus.grant(leases, revoking=revoking)
        self._near, self._far = socket.socketpair()
        self._is_lost = False

    def come(self) -> None:
        self._far.send(b":1\r\n")

    def lose(self) -> None:
        self._is_lost = True
        self.come()

    def fileno(self) -> int:
        return self._near.fileno()

    def is_done(self) -> bool:
        try:
            self._near.recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        if self._is_lost:
            raise BusUnavailable("the connection broke")
        self._grant()
        return True

    def close(self) -> None:
        self._near.close()
        self._far.close()


class PolledBus(FreshBus):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []

    def begin_grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> Answer:  # type: ignore[override]
        self.answers.append(Answer(self, leases, revoking))
        return self.answers[-1]


class Stand:
    def __init__(self) -> None:
        self.bus = PolledBus()
        self.poller = zmq.Poller()
        self.woken = threading.Event()
        writer = BusWriter(self.bus, OutcomeLog(self.bus, {}))
        self.lane = Lane[Leases](
            "leases", writer.begin_leases, writer.write_leases, wake=self.woken.set, poller=self.poller
        )

    def submit(self, **fields: object) -> Leases:
        batch = Leases(**fields)  # type: ignore[arg-type]
        self.lane.submit(batch)
        assert self.lane.is_busy
        return batch


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand()
    yield made
    made.lane.close(PATIENCE_SECONDS)
    for answer in made.bus.answers:
        answer.close()
    made.bus.close()


def test_a_batch_comes_back_once_the_bus_has_answered(stand: Stand) -> None:
    stand.bus.grant({"old": b"0"})
    batch = stand.submit(grant={"job": b"1"}, finished=["old"])
    assert stand.lane.done() is None
    assert stand.bus.leases() == {"old": b"0"}
    stand.bus.answers[0].come()
    assert stand.poller.poll(PATIENCE_SECONDS * 1_000)
    assert stand.lane.done() is batch
    assert stand.bus.leases() == {"job": b"1"}
    assert not stand.lane.is_busy
    assert stand.lane.done() is None
    assert not stand.poller.sockets


def test_a_lost_answer_leaves_the_batch_to_the_thread(stand: Stand) -> None:
    batch = stand.submit(grant={"job": b"1"}, revoke={"old": None})
    stand.bus.answers[0].lose()
    assert stand.lane.done() is None
    assert stand.lane.is_busy
    assert stand.woken.wait(PATIENCE_SECONDS)
    assert stand.lane.done() is batch
    assert stand.bus.leases() == {"job": b"1"}
    assert not stand.poller.sockets


def test_marks_are_written_before_the_leases_that_need_them(stand: Stand) -> None:
    batch = stand.submit(marks={"A/B.TEST": b""}, grant={"job": b"1"})
    assert not stand.bus.answers
    assert stand.woken.wait(PATIENCE_SECONDS)
    assert stand.lane.done() is batch
    assert stand.bus.state("tick_marks")
    assert stand.bus.leases() == {"job": b"1"}


def test_an_answer_is_due_soon_for_a_moment_only(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.journal.lane.SOON_SECONDS", PATIENCE_SECONDS)
    assert not stand.lane.is_due_soon
    stand.submit(grant={"job": b"1"})
    assert stand.lane.is_due_soon
    monkeypatch.setattr("broker.journal.lane.SOON_SECONDS", 0.0)
    assert not stand.lane.is_due_soon


def test_a_bus_that_does_not_answer_is_a_complaint(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.submit(grant={"job": b"1"})
    assert stand.lane.complaint() == ""
    monkeypatch.setattr("broker.journal.writer.SLOW_SECONDS", -1.0)
    assert "not answered" in stand.lane.complaint()
