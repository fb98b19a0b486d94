"""External functions that misbehave: faults that bring down a Kapacitor daemon cost the platform one restart."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from core.settings_gateways import KapacitorFunctionSettings
from protobuf.udf_superset_pb2 import EdgeType, Request
from triggers.udf import use as use_module
from triggers.udf.hosted import LOG_BURST, LOG_PER_SECOND, BatchOutcome, HostedFunction
from triggers.udf.options import Duration, UdfRefused
from triggers.udf.points import batch_requests, point_request
from triggers.udf.use import UdfFailed, Use, ask_info

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "triggers" / "udf" / "function.py"
TIMEOUT = 15.0
ONCE = [
    "empty", "batch-end-alone", "batch-negative", "batch-huge", "stream-begin", "garbage", "long-frame", "crash",
    "half-frame", "error",
]  # fmt: skip


def _settings(mode: str = "", note: Path | None = None, timeout: float = TIMEOUT) -> KapacitorFunctionSettings:
    arguments = (str(SCRIPT), mode, *([str(note)] if note else []))
    return KapacitorFunctionSettings(
        prog=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)}, timeout_seconds=timeout
    )


@contextmanager
def _hosted(settings: KapacitorFunctionSettings, **more: object) -> Iterator[HostedFunction]:
    hosted = HostedFunction(name="theirs", settings=settings, pause=lambda _: None, **more)  # type: ignore[arg-type]
    try:
        yield hosted
    finally:
        hosted.close()


def _point(x: int, symbol: str = "BTC", time: int = 1) -> Request:
    return point_request(time, "trades", ["symbol"], tags={"symbol": symbol}, fields={"x": x})


def _batch(*numbers: int) -> list[Request]:
    return batch_requests([_point(x, time=time).point for time, x in enumerate(numbers, 1)], end_ns=60)


def _sums(outcome: BatchOutcome) -> list[int]:
    return [point.fieldsInt["sum"] for output in outcome.outputs for point in output.points]


def test_state_goes_from_batch_to_batch_and_a_batch_can_be_done_again() -> None:
    with _hosted(_settings()) as hosted:
        first = hosted.run(1, [_point(1), _point(2, "ETH")], b"")
        assert _sums(first) == [1, 2]
        assert _sums(hosted.run(2, [_point(10)], first.state)) == [11]
        assert hosted.counts.uses == 1
        assert _sums(hosted.run(2, [_point(10)], first.state)) == [11]
        assert hosted.counts.uses == 2
    with _hosted(_settings()) as hosted:
        assert _sums(hosted.run(2, [_point(5, "ETH")], first.state)) == [7]


def test_outputs_keep_the_name_and_tags_of_their_group() -> None:
    with _hosted(_settings()) as hosted:
        (output,) = hosted.run(1, [_point(1)], b"").outputs
        assert (output.points[0].group, list(output.points[0].dimensions)) == ("symbol=BTC", ["symbol"])


def test_batches_are_written_and_read_whole() -> None:
    requests = _batch(1, 2)
    with _hosted(_settings("batch")) as hosted:
        assert hosted.check().wants == EdgeType.BATCH
        (output,) = hosted.run(1, requests, b"").outputs
        assert output.begin is not None
        assert output.end is not None
        assert (output.begin.size, output.end.tmax, dict(output.end.tags)) == (2, 60, {"symbol": "BTC"})
        assert [point.fieldsInt["sum"] for point in output.points] == [1, 3]


@pytest.mark.parametrize("mode", ONCE)
def test_misbehaviour_costs_one_restart_and_no_output(mode: str, tmp_path: Path) -> None:
    is_batch = mode.startswith("batch")
    with _hosted(_settings(mode, tmp_path / "note")) as hosted:
        numbers = 1, 13, 2
        requests = _batch(*numbers) if is_batch else [_point(x) for x in numbers]
        outcome = hosted.run(1, requests, b"")
        assert _sums(outcome) == [1, 14, 16]
        assert (hosted.counts.failures, hosted.counts.uses) == (1, 2)
        assert _sums(hosted.run(2, requests[:2] + requests[-1:] if is_batch else requests[:1], outcome.state)) == [17]


#: Its first answer must arrive within this time: a busy machine takes a second or two to start Python.
_HANGS_SECONDS = 4.0


@pytest.mark.parametrize(("mode", "told"), [("silence", "no sign of life for 4 s"), ("hang", "it did nothing for 4 s")])
def test_a_function_that_hangs_is_killed_after_its_timeout_and_not_retried(
    mode: str, told: str, tmp_path: Path
) -> None:
    with _hosted(_settings(mode, tmp_path / "note", timeout=_HANGS_SECONDS)) as hosted:
        state = hosted.run(1, [_point(1)], b"").state
        began = time.monotonic()
        with pytest.raises(UdfFailed, match=told):
            hosted.run(2, [_point(13)], state)
        assert time.monotonic() - began < 2 * _HANGS_SECONDS + 4.0
        assert hosted.counts.failures == 1
        # Another batch may succeed.
        assert _sums(hosted.run(2, [_point(13)], state)) == [14]


def test_a_function_that_works_for_longer_than_its_timeout_is_left_to_it() -> None:
    with _hosted(_settings("slow", timeout=1.0)) as hosted:
        assert len(_sums(hosted.run(1, [_point(1) for _ in range(25)], b""))) == 25


def test_a_flood_of_log_lines_leaves_room_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    with _hosted(_settings("log")) as hosted:
        hosted.run(1, [_point(13)], b"")
        hosted.close()
        assert hosted.counts.log_lines == 20_001
        assert 0 < 20_001 - hosted.counts.log_lines_dropped < LOG_BURST + 60 * LOG_PER_SECOND
    told = capsys.readouterr().err
    assert "udf_log_cut" in told and "200000 bytes" in told


def test_a_batch_that_always_fails_is_given_up_with_the_reason() -> None:
    with _hosted(_settings("crash"), attempts=3) as hosted:
        state = hosted.run(1, [_point(1)], b"").state
        with pytest.raises(UdfFailed, match=r"closed its output|does not read its input|reading its output failed"):
            hosted.run(2, [_point(13)], state)
        assert hosted.counts.failures == 3
        # Another batch may succeed.
        assert _sums(hosted.run(2, [_point(4)], state)) == [5]


def test_the_reason_contains_the_functions_own_error() -> None:
    with _hosted(_settings("error"), attempts=1) as hosted, pytest.raises(UdfFailed, match="it says: no more"):
        hosted.run(1, [_point(13)], b"")


def test_log_of_any_length_is_read_and_split_into_short_lines() -> None:
    lines: list[str] = []
    use = Use(_settings("log"), EdgeType.STREAM, lines.append)
    use.init([], "task", "node")
    use.send([_point(13)])
    assert use.ask("snapshot", Request()).snapshot.snapshot == b"symbol=BTC\t13"
    use.stop()
    assert len(lines) == 20_001
    assert max(map(len, lines)) < 1_100
    assert "200000 bytes" in lines[0]


def test_unrequested_answers_are_not_mistaken_for_the_next_one(tmp_path: Path) -> None:
    with _hosted(_settings("unasked", tmp_path / "note")) as hosted:
        assert hosted.run(1, [_point(13)], b"").state == b"symbol=BTC\t13"
        hosted.close()
        assert hosted.counts.unasked == 1


def test_refused_state_starts_afresh_and_is_counted() -> None:
    with _hosted(_settings("refuse-state")) as hosted:
        assert _sums(hosted.run(2, [_point(3)], b"symbol=BTC\t10")) == [3]
        assert hosted.counts.states_refused == 1


def test_refused_options_are_not_retried() -> None:
    with _hosted(_settings("refuse")) as hosted:
        with pytest.raises(UdfRefused, match="not today"):
            hosted.run(1, [_point(1)], b"")
        assert hosted.counts.uses == 1


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([("nope", ())], "no option 'nope'"),
        ([("times", (3.0,))], "DOUBLE, expected INT"),
        ([("times", (1, 2))], "1 arguments, not 2"),
        ([("label", ("a", 5))], "INT, expected DURATION"),
        ([("times", (True,))], "BOOL, expected INT"),
    ],
)
def test_options_are_checked_before_anything_starts(calls: list[tuple[str, tuple[object, ...]]], told: str) -> None:
    with _hosted(_settings(), calls=calls) as hosted:
        with pytest.raises(UdfRefused, match=told):
            hosted.check()
        assert hosted.counts.uses == 0


def test_options_that_fit_are_accepted() -> None:
    with _hosted(_settings(), calls=[("times", (1,)), ("label", ("a", Duration(5))), ("times", (2,))]) as hosted:
        assert _sums(hosted.run(1, [_point(1)], b"")) == [1]


def test_both_directions_flow_at_once() -> None:
    # Far more than both pipes hold, in both directions.
    with _hosted(_settings("flood")) as hosted:
        outcome = hosted.run(1, [_point(1) for _ in range(100)], b"")
        assert len(outcome.outputs) == 100 * 51


def test_points_that_arrive_after_the_answers_belong_to_the_batch_within_the_time_to_settle() -> None:
    settings = _settings("behind").model_copy(update={"settle_seconds": 1.0})
    with _hosted(settings) as hosted:
        assert _sums(hosted.run(1, [_point(1), _point(2)], b"")) == [1, 3]


def test_output_past_its_bound_ends_the_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_module, "MAX_OUTPUT_POINTS", 100)
    with _hosted(_settings("flood"), attempts=1) as hosted, pytest.raises(UdfFailed, match="at once"):
        hosted.run(1, [_point(1) for _ in range(10)], b"")


def test_function_may_answer_keepalives_with_its_own_time() -> None:
    with _hosted(_settings("no-echo")) as hosted:
        assert _sums(hosted.run(1, [_point(1)], b"")) == [1]


def test_program_that_is_not_there_fails_with_its_name() -> None:
    settings = KapacitorFunctionSettings(prog="/no/such/program")
    with pytest.raises(UdfFailed, match="/no/such/program"):
        ask_info(settings, lambda _: None)


def test_child_processes_of_a_function_end_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    settings = KapacitorFunctionSettings(
        prog="/bin/sh", args=("-c", f"sleep 600 & echo $! > {pid_file}; exec cat > /dev/null"), timeout_seconds=TIMEOUT
    )
    use = Use(settings, EdgeType.STREAM, lambda _: None)
    while not pid_file.exists() or not pid_file.read_text().strip():
        os.sched_yield()
    use.kill()
    child = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    until = time.monotonic() + 2
    while _runs(child):
        assert time.monotonic() < until
        os.sched_yield()


def _runs(stat: Path) -> bool:
    """A process that has ended does not run, even if its parent has not reaped it yet."""
    with suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


@contextmanager
def _listening(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[list[socket.socket]]:
    peers: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def accept() -> None:
            try:
                while True:
                    peer, _ = server.accept()
                    peers.append(peer)
                    serve(peer)
            except OSError:
                return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield peers
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for peer in peers:
                peer.close()


def test_socket_that_closes_at_once_is_a_failure_and_not_a_hang(tmp_path: Path) -> None:
    settings = KapacitorFunctionSettings(socket=str(tmp_path / "s"), timeout_seconds=TIMEOUT)
    with _listening(tmp_path / "s", lambda peer: peer.close()), pytest.raises(UdfFailed):
        ask_info(settings, lambda _: None)


def test_unserved_socket_is_a_failure_within_the_timeout(tmp_path: Path) -> None:
    settings = KapacitorFunctionSettings(socket=str(tmp_path / "none"), timeout_seconds=0.3)
    with pytest.raises(UdfFailed, match="cannot be started"):
        ask_info(settings, lambda _: None)
