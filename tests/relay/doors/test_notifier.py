"""The notifications socket, used by several threads."""

import select
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import zmq

from relay.doors import notifier as doors
from relay.doors.notifier import Notifier
from relay.settings import RelayLimits

pytestmark = pytest.mark.timeout(60)
PATIENCE_MILLISECONDS = 20_000


@dataclass
class Served:
    """A notifier whose thread runs; `subscribed`: when each topic was reported."""

    notifier: Notifier
    address: str
    stack: ExitStack
    subscribed: dict[bytes, float] = field(default_factory=dict)

    def socket(self) -> "zmq.Socket[bytes]":
        """A connected subscriber without topics."""
        socket: zmq.Socket[bytes] = self.stack.enter_context(self.notifier._context.socket(zmq.SUB))
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MILLISECONDS)
        socket.connect(self.address)
        return socket

    def subscriber(self, topic: bytes) -> "zmq.Socket[bytes]":
        socket = self.socket()
        socket.subscribe(topic)
        self.wait_for(topic)
        return socket

    def wait_for(self, topic: bytes) -> None:
        until = time.monotonic() + 20
        while topic not in self.subscribed:
            assert time.monotonic() < until, "the subscription was not reported"
            time.sleep(0.002)


@pytest.fixture
def served() -> Iterator[Served]:
    with ExitStack() as stack:
        context: zmq.Context[zmq.Socket[bytes]] = stack.enter_context(zmq.Context())
        notifier = Notifier(context, RelayLimits())
        stack.callback(notifier.close)
        found, stop = Served(notifier, notifier.bind("tcp://127.0.0.1:*"), stack), threading.Event()
        with running(found, stop):
            yield found


@contextmanager
def running(found: Served, stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(
        target=found.notifier.run,
        args=(stop, lambda topic, _: found.subscribed.setdefault(topic, time.monotonic()), lambda topic: None),
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        found.notifier.wake()
        thread.join()


def test_a_few_messages_are_sent_without_the_other_thread(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = served.subscriber(b"t")
    # Time for the other thread to go to sleep.
    time.sleep(0.2)
    monkeypatch.setattr(served.notifier._inbox, "put", lambda batch, seconds: False)
    assert served.notifier.publish([(b"t", b"one"), (b"t", b"two")], 0.0)
    assert [socket.recv_multipart()[2] for _ in range(2)] == [b"one", b"two"]
    assert not served.notifier.publish([(b"t", b"x")] * (doors._FEW_MESSAGES + 1), 0.0)


def test_small_and_large_batches_of_a_thread_keep_their_order(served: Served) -> None:
    socket, sent = served.subscriber(b"t"), 0
    for size in [1, 40, 1, 3, 100, 2, 1, 17, 16, 1] * 20:
        assert served.notifier.publish([(b"t", b"%d" % (sent + place)) for place in range(size)], 10.0)
        sent += size
    assert [int(socket.recv_multipart()[2]) for _ in range(sent)] == list(range(sent))


class LatePoll:
    """A poll that begins only when `may_begin` is set."""

    is_due, may_begin = threading.Event(), threading.Event()

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, milliseconds: int) -> object:
        self.is_due.set()
        assert self.may_begin.wait(20)
        return self._poll.poll(milliseconds)


def test_a_subscription_whose_news_another_thread_takes_is_reported_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of the socket takes the news of a subscription, and its descriptor is then no longer readable."""
    first, late = served.subscriber(b"first"), served.socket()
    monkeypatch.setattr(doors, "select", SimpleNamespace(poll=LatePoll, POLLIN=select.POLLIN))
    if not LatePoll.is_due.wait(0.2):
        served.notifier.wake()
    assert LatePoll.is_due.wait(20)
    late.subscribe(b"late")
    # Time for it to arrive.
    time.sleep(0.3)
    assert served.notifier.publish([(b"first", b"1")], 0.0)
    assert first.recv_multipart()[2] == b"1"
    began = time.monotonic()
    LatePoll.may_begin.set()
    served.wait_for(b"late")
    assert served.subscribed[b"late"] - began < 0.9
