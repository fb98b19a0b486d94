"""One use of a function, and what may be sent to the daemon."""

import zlib
from collections.abc import Sequence

import pytest

from gateways.kapacitor.function import Batch, Options, OptionsRefused
from gateways.kapacitor.functions import NAMES, function_named
from gateways.kapacitor.session import FunctionKind, Refused, Session
from gateways.kapacitor.writer import MAX_BATCH_POINTS, ResponseWriter, UnsoundResponse
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import EdgeType, Point, Request, Response
from tests.gateways.kapacitor.daemon import init, option, point, request, seconds


class Counting:
    """A function whose state is the number of points it has taken."""

    def __init__(self) -> None:
        self.counts = {"points": 0}
        self.restored: list[bytes | None] = []
        self.closed = 0

    def take(self, points: Sequence[Point]) -> list[Response]:
        self.counts["points"] += len(points)
        return []

    def take_batch(self, batch: Batch) -> list[Response]:
        return self.take(batch.points)

    def pass_time(self, now_ns: int) -> list[Response]:
        self.counts["time"] = now_ns
        return []

    def finish(self) -> list[Response]:
        return [Response(point=Point(time=1))]

    def close(self) -> None:
        self.closed += 1

    def snapshot(self) -> bytes:
        return str(self.counts["points"]).encode() if self.counts["points"] else b""

    def restore(self, state: bytes | None) -> None:
        self.restored.append(state)
        if state == b"broken":
            raise OSError("what libraries raise")
        self.counts["points"] = 0 if state is None else int(state)


def _session(*, is_batch: bool = False) -> tuple[Session, Counting]:
    function = Counting()

    def make(options: Options, *, is_batch: bool) -> Counting:
        if "fail" in options.calls:
            raise OptionsRefused("as asked")
        return function

    return Session(kind=FunctionKind("counting", {"fail": ()}, make), is_batch=is_batch), function


def _points(count: int) -> list[Request]:
    return [Request(point=point(i, {"price": 1.0})) for i in range(count)]


def _one(session: Session, asked: Request) -> Response:
    (response,) = session.answer([asked])
    return response


def test_answers_go_in_the_order_of_the_requests() -> None:
    session, _ = _session()
    requests = [init([]), *_points(3), request("snapshot"), request("info")]
    responses = session.answer(requests)
    assert [response.WhichOneof("message") for response in responses] == ["init", "snapshot", "info"]
    assert responses[0].init.success


@pytest.mark.parametrize(("is_batch", "told"), [(False, 9), (True, None)])
def test_keepalive_gives_a_function_of_a_stream_the_time(is_batch: bool, told: int | None) -> None:
    session, function = _session(is_batch=is_batch)
    assert session.answer([request("keepalive", time=1)], now_ns=8) == []
    session.answer([init([]), request("keepalive", time=2)], now_ns=9)
    assert function.counts.get("time") == told


def test_a_snapshot_holds_and_restores_the_points_before_it() -> None:
    session, _ = _session()
    before, after = (r.snapshot.snapshot for r in session.answer(
        [init([]), *_points(2), request("snapshot"), *_points(3), request("snapshot")]
    )[1:])  # fmt: skip
    for state, count in ((before, 2), (after, 5)):
        other, function = _session()
        other.answer([init([])])
        assert _one(other, request("restore", snapshot=state)).restore.success
        assert function.counts["points"] == count


def test_function_without_a_state_gives_an_empty_snapshot() -> None:
    session, _ = _session()
    response = session.answer([init([]), request("snapshot")])[1]
    assert response.WhichOneof("message") == "snapshot"
    assert response.snapshot.snapshot == b""


@pytest.mark.parametrize(
    "state",
    [
        b"\x02" + bytes(4) + b"5",
        b"\x01" + bytes(4) + b"5",
        b"x",
        b"\x01" + zlib.crc32(b"five").to_bytes(4, "little") + b"five",
        b"\x01" + zlib.crc32(b"broken").to_bytes(4, "little") + b"broken",
    ],
    ids=["unknown version", "damaged", "too short", "not understood", "not readable"],
)
def test_snapshot_that_cannot_be_read_gives_a_fresh_state_and_never_a_failure(state: bytes) -> None:
    session, function = _session()
    session.answer([init([])])
    response = _one(session, request("restore", snapshot=state))
    assert response.restore.success
    assert response.restore.error == ""
    assert function.restored[-1] is None


def test_a_refused_init_gives_the_reason_and_later_requests_change_nothing() -> None:
    session, function = _session()
    responses = session.answer([init([option("fail")]), *_points(2), request("snapshot")])
    assert not responses[0].init.success
    assert responses[0].init.error == "counting: as asked"
    assert [response.WhichOneof("message") for response in responses[1:]] == ["snapshot"]
    assert function.counts["points"] == 0
    assert session.finish() == []


def test_the_end_closes_the_function() -> None:
    session, function = _session()
    session.close()
    session.answer([init([])])
    session.close()
    assert function.closed == 1


def test_second_init_is_refused() -> None:
    session, _ = _session()
    session.answer([init([])])
    assert not _one(session, init([])).init.success


@pytest.mark.parametrize("kind", ["point", "snapshot", "restore"])
def test_data_before_init_ends_the_task(kind: str) -> None:
    with pytest.raises(Refused, match="before init"):
        _session()[0].answer([request(kind)])


def test_request_with_nothing_in_it_ends_the_task() -> None:
    session, _ = _session()
    session.answer([init([])])
    with pytest.raises(Refused):
        session.answer([Request()])


def test_batch_is_taken_at_its_end() -> None:
    session, function = _session(is_batch=True)
    session.answer([init([]), request("begin"), *_points(2)])
    assert function.counts["points"] == 0
    session.answer([*_points(1), request("end")])
    assert function.counts["points"] == 3


def test_half_a_batch_is_not_part_of_a_snapshot_and_is_dropped_at_the_end() -> None:
    session, function = _session(is_batch=True)
    responses = session.answer([init([]), request("begin"), *_points(2), request("snapshot")])
    assert responses[1].snapshot.snapshot == b""
    session.finish()
    assert function.counts["points"] == 0


@pytest.mark.parametrize(
    ("is_batch", "kinds"), [(True, ["end"]), (True, ["begin", "begin"]), (True, ["point"]), (False, ["begin"])]
)
def test_edges_that_do_not_fit_end_the_task(is_batch: bool, kinds: list[str]) -> None:
    session, _ = _session(is_batch=is_batch)
    session.answer([init([])])
    with pytest.raises(Refused):
        session.answer([request(kind) for kind in kinds])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_batch", [False, True])
def test_info_lists_edges_and_options(name: str, is_batch: bool) -> None:
    def no_bus() -> object:
        raise AssertionError("a question needs no bus")

    kind = function_named(name, no_bus)  # type: ignore[arg-type]
    info = _one(Session(kind=kind, is_batch=is_batch), request("info")).info
    assert info.wants == info.provides == (EdgeType.BATCH if is_batch else EdgeType.STREAM)
    assert {option: list(told.valueTypes) for option, told in info.options.items()} == {
        option: list(types) for option, types in kind.options.items()
    }


def test_options_are_distinguished_by_calls_and_types() -> None:
    offered = function_named("match", lambda: None).options  # type: ignore[arg-type, return-value]
    options = Options.of([option("parameter", "a", "1"), option("parameter", "b", "2"), option("as", "x")], offered)
    assert [list(call) for call in options.every("parameter")] == [["a", "1"], ["b", "2"]]
    assert options.text("as") == "x"
    for wrong in (option("parameter", "a"), option("as", 1), option("lateness", 1), option("nope"), option("as")):
        with pytest.raises(OptionsRefused):
            Options.of([wrong], offered)
    lying = option("as", "x")
    lying.values[0].intValue = 5
    with pytest.raises(OptionsRefused, match="not of its type"):
        Options.of([lying], offered)
    assert Options.of([option("lateness", seconds(2))], offered).number("lateness") == 2_000_000_000


def _begin(size: int) -> Response:
    response = Response()
    response.begin.size = size
    return response


def _end() -> Response:
    response = Response()
    response.end.SetInParent()
    return response


@pytest.mark.parametrize(
    "responses",
    [
        [Response()],
        [_end()],
        [_begin(-1)],
        [_begin(MAX_BATCH_POINTS + 1)],
        [_begin(0), _begin(0)],
        [_begin(0), _end(), _end()],
    ],
    ids=["empty", "end alone", "negative", "huge", "begin in begin", "two ends"],
)
def test_responses_that_end_the_daemon_are_never_written(responses: list[Response]) -> None:
    written: list[bytes] = []
    writer = ResponseWriter(written.append)
    with pytest.raises(UnsoundResponse):
        writer.send([Response(point=Point()), *responses])
    assert written == []
    # An unwritten message has not begun a batch either.
    assert writer.send([_begin(0), _end()]) == 2


def test_the_responses_of_one_call_stay_together() -> None:
    written: list[bytes] = []
    assert ResponseWriter(written.append).send([_begin(1), Response(point=Point(time=3)), _end()]) == 3
    (data,) = written
    pieces = iter([data, b""])
    reader = FrameReader(lambda _: next(pieces), Response)
    assert [found.WhichOneof("message") for found in iter(reader.next, None)] == ["begin", "point", "end"]
