"""The connection of one daemon to one use: what waits for what."""

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from gateways.kapacitor.connection import Connection
from gateways.kapacitor.function import Options, field_of
from gateways.kapacitor.session import FunctionKind
from protobuf import udf_frames
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import Point, Request, Response
from tests.gateways.kapacitor.daemon import init, request
from tests.gateways.kapacitor.test_session import Counting


class _Held(Counting):
    """Takes points once allowed; `takes`: how many at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()
        self.takes: list[int] = []

    def take(self, points: Sequence[Point]) -> list[Response]:
        assert self.may_go.wait(30)
        self.takes.append(len(points))
        return super().take(points)


class _Daemon:
    def __init__(self, function: Counting) -> None:
        self._sent: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def make(options: Options, *, is_batch: bool) -> Counting:
            return function

        self.connection = Connection(
            FunctionKind("held", {}, make),
            is_batch=False,
            read=lambda _: self._sent.get(timeout=30),
            write=self._answers.put,
            give_up=lambda: None,
        )
        self._frames = FrameReader(lambda _: self._answers.get(timeout=30), Response)

    def send(self, *requests: Request) -> None:
        self._sent.put(b"".join(map(udf_frames.encode, requests)))

    def end(self) -> None:
        self._sent.put(b"")

    def receive(self) -> Response:
        found = self._frames.next()
        assert found is not None
        return found


@contextmanager
def _daemon(function: Counting) -> Iterator[_Daemon]:
    daemon = _Daemon(function)
    thread = threading.Thread(target=daemon.connection.run, daemon=True)
    thread.start()
    yield daemon
    daemon.end()
    thread.join(30)
    assert not thread.is_alive()


POINT = Request(point=Point(time=1))


def test_keepalives_are_answered_while_the_function_is_busy_however_many_come() -> None:
    function = _Held()
    with _daemon(function) as daemon:
        daemon.send(init([]))
        assert daemon.receive().init.success
        daemon.send(POINT)
        for number in range(1, 40):
            daemon.send(request("keepalive", time=number))
            assert daemon.receive().keepalive.time == number
        function.may_go.set()
        daemon.send(request("snapshot"))
        assert daemon.receive().snapshot.snapshot[-1:] == b"1"


def test_points_that_came_meanwhile_are_taken_together() -> None:
    function = _Held()
    with _daemon(function) as daemon:
        daemon.send(init([]))
        assert daemon.receive().init.success
        daemon.send(POINT)
        for _ in range(5):
            daemon.send(POINT, POINT)
        daemon.send(request("keepalive", time=1))
        # It has been read after them.
        assert daemon.receive().keepalive.time == 1
        function.may_go.set()
        daemon.send(request("snapshot"))
        daemon.receive()
        assert sum(function.takes) == 11
        assert len(function.takes) <= 3


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        (("String", "Int", "Double", "Bool"), True),
        (("String", "Int", "Double"), 0.5),
        (("String", "Int"), 7),
        (("String",), "x"),
        ((), None),
    ],
)
def test_a_field_in_several_maps_has_the_value_that_the_daemon_takes(maps: tuple[str, ...], expected: object) -> None:
    values = {"String": "x", "Int": 7, "Double": 0.5, "Bool": True}
    point = Point()
    for kind in maps:
        getattr(point, f"fields{kind}")["f"] = values[kind]
    found = field_of(point, "f")
    assert (found, type(found)) == (expected, type(expected))
