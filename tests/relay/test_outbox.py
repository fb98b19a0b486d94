import threading

import pytest

from relay.events import Peer
from relay.inbox import Inbox
from relay.outbox import Outbox, PeerStalled, Sent

ONE, TWO = Peer(b"one", False), Peer(b"two", False)


class Wire:
    """Takes what is sent to it as long as a client has room."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.outcome: dict[bytes, Sent] = {}

    def __call__(self, frames: list[bytes]) -> Sent:
        outcome = self.outcome.get(frames[0], Sent.DONE)
        if outcome is Sent.DONE:
            self.sent.append(frames[1])
        return outcome


def test_a_full_client_keeps_its_order_and_does_not_stop_another() -> None:
    wire = Wire()
    outbox = Outbox(wire, max_backlog=10)
    wire.outcome[b"one"] = Sent.FULL
    for number in range(3):
        outbox.post(ONE, [b"one", b"a%d" % number])
        outbox.post(TWO, [b"two", b"b%d" % number])
    assert outbox.flush()
    assert wire.sent == [b"b0", b"b1", b"b2"]
    del wire.outcome[b"one"]
    assert not outbox.flush()
    assert wire.sent[3:] == [b"a0", b"a1", b"a2"]
    outbox.close()


def test_answers_beyond_the_bound_and_of_clients_that_are_gone_are_dropped() -> None:
    wire = Wire()
    outbox = Outbox(wire, max_backlog=2)
    for number in range(5):
        outbox.post(ONE, [b"one", b"%d" % number])
    outbox.flush()
    assert wire.sent == [b"0", b"1"]
    wire.outcome[b"one"] = Sent.GONE
    outbox.post(ONE, [b"one", b"x"])
    assert not outbox.flush()
    del wire.outcome[b"one"]
    assert not outbox.flush()
    assert wire.sent == [b"0", b"1"]
    outbox.close()


def test_a_long_answer_goes_at_the_speed_of_its_client() -> None:
    wire = Wire()
    outbox = Outbox(wire, max_backlog=1_000)
    wanted = [b"%d" % number for number in range(100)]

    def write() -> None:
        for page in wanted:
            outbox.stream(ONE, [b"one", page], 10.0)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive() or len(wire.sent) < len(wanted):
        before = len(wire.sent)
        outbox.flush()
        assert len(wire.sent) - before <= 8
    assert wire.sent == wanted
    outbox.close()


def test_a_client_that_stops_reading_ends_its_long_answer() -> None:
    wire = Wire()
    wire.outcome[b"one"] = Sent.FULL
    outbox = Outbox(wire, max_backlog=1_000)
    with pytest.raises(PeerStalled):
        for _ in range(100):
            outbox.stream(ONE, [b"one", b"page"], 0.0)
    outbox.close()


def test_a_full_inbox_slows_its_writer_and_loses_nothing() -> None:
    inbox: Inbox[int] = Inbox(3)
    assert [inbox.put(number, 0.0) for number in range(5)] == [True, True, True, False, False]
    writer = threading.Thread(target=lambda: inbox.put(3, 10.0))
    writer.start()
    taken = inbox.take()
    writer.join()
    assert [*taken, *inbox.take()] == [0, 1, 2, 3]
    inbox.close()
