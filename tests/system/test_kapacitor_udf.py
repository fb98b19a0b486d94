"""Functions for a Kapacitor daemon as it uses them: in another process, over pipes or a socket."""

import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.gateways import kapacitor
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire.candlewright_pb2 import Tick
from core.settings_gateways import KapacitorFunctionSettings
from protobuf import udf_frames
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import Request, Response
from tests.gateways.kapacitor.daemon import COMMAND, SECOND, Daemon, batch, init, option, point, request, seconds
from triggers.udf.hosted import HostedFunction
from triggers.udf.options import Duration

OPTIONS = [option("period", seconds(60))]


def _trade(second: float, price: float, symbol: str = "BTC") -> Request:
    return Request(point=point(round(second * SECOND), {"price": price, "volume": 0.1}, symbol=symbol))


def test_info_process_answers_quickly_and_ends_with_its_input(tmp_path: Path) -> None:
    before = os.times()
    with Daemon("ohlc", cwd=tmp_path) as daemon:
        assert set(daemon.ask(request("info")).info.options) == {
            "period", "price", "volume", "as", "lateness", "flush", "window",
        }  # fmt: skip
        assert daemon.close_input() == []
        assert daemon.wait() == (0, "")
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    # Of one processor; a daemon gives up after half of its timeout, which is seconds.
    assert used < 1.0


def test_task_over_pipes_from_init_to_the_end(tmp_path: Path) -> None:
    with Daemon("ohlc", cwd=tmp_path) as daemon:
        assert daemon.ask(init(OPTIONS)).init.success
        daemon.send([_trade(1, 5.0), _trade(2, 7.0), _trade(60, 1.0)])
        # Flushed separately: nothing else is written in between.
        assert daemon.receive().point.fieldsDouble["high"] == 7.0
        assert daemon.ask(request("keepalive", time=5)).keepalive.time == 5
        state = daemon.ask(request("snapshot")).snapshot.snapshot
        *alive, last = daemon.close_input()
        assert last.point.fieldsInt["partial"] == 1
        # The daemon of a stopped task may read on by chance until a point ends it: the first answers prove nothing.
        assert len(alive) >= 16
        assert {one.keepalive.time for one in alive} == {5}
        code, log = daemon.wait()
        assert code == 0
        assert "finished points=3 bars=2" in log
    with Daemon("ohlc", cwd=tmp_path) as daemon:
        flushed = [*OPTIONS, option("flush", seconds(5))]
        daemon.send([init(flushed), request("restore", snapshot=state), _trade(61, 2.0), _trade(120, 3.0)])
        assert daemon.receive().init.success
        assert daemon.receive().restore.success
        bar = daemon.receive().point
        assert (bar.fieldsDouble["open"], bar.fieldsDouble["close"], bar.fieldsDouble["volume"]) == (1.0, 2.0, 0.2)
        assert bar.fieldsInt["partial"] == 1
        daemon.send([request("keepalive", time=6)])
        alive, last = daemon.receive(), daemon.receive()
        # Its minute ended long ago by the wall clock, so no further trade was needed.
        assert (alive.keepalive.time, last.point.time) == (6, 120 * SECOND)


def test_batches_over_pipes(tmp_path: Path) -> None:
    with Daemon("ohlc", "--batch", cwd=tmp_path) as daemon:
        daemon.send([init(OPTIONS), *batch([_trade(1, 5.0).point, _trade(61, 6.0).point], 120 * SECOND, symbol="BTC")])
        kinds = [daemon.receive().WhichOneof("message") for _ in range(5)]
        assert kinds == ["init", "begin", "point", "point", "end"]


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"\xff\xff\xff\xff\x7f", "TOO_LARGE"), (b"\x03\xff\xff\xff", "UNDECODABLE"), (b"\x09x", "TRUNCATED")],
)
def test_bad_frames_end_the_process_with_an_error_and_a_line(data: bytes, told: str, tmp_path: Path) -> None:
    with Daemon("ohlc", cwd=tmp_path) as daemon:
        daemon.send_bytes(data)
        (answer,) = daemon.close_input()
        assert told in answer.error.error
        code, log = daemon.wait()
        assert code == 1
        assert told in log
        assert max(map(len, log.splitlines())) <= 1_000


@pytest.mark.parametrize("closes_input", [False, True])
def test_a_process_whose_daemon_is_gone_ends_at_once_with_an_error(closes_input: bool, tmp_path: Path) -> None:
    with Daemon("ohlc", cwd=tmp_path) as daemon:
        assert daemon.ask(init(OPTIONS)).init.success
        assert daemon.process is not None and daemon.process.stdout is not None and daemon.process.stdin is not None
        daemon.process.stdout.close()
        daemon.send([_trade(1, 5.0), _trade(60, 1.0)])
        if closes_input:
            daemon.process.stdin.close()
        assert daemon.process.wait(30) == 1


def test_output_that_a_function_prints_goes_to_the_log() -> None:
    script = """
import os, sys
from gateways.kapacitor.functions import function_named
from gateways.kapacitor.server import serve_process
print("before", flush=True)
kind = function_named("ohlc", lambda: None)
def make(options, *, is_batch):
    print("printed", flush=True)
    os.write(1, b"written")
    assert sys.stdin.read() == ""
    return kind.make(options, is_batch=is_batch)
serve_process(type(kind)(kind.name, kind.options, make), is_batch=False)
"""
    frames = b"".join(map(udf_frames.encode, (init(OPTIONS), request("snapshot"))))
    done = subprocess.run([COMMAND[0], "-c", script], input=frames, capture_output=True, timeout=60, check=True)
    pieces = iter((done.stdout.removeprefix(b"before\n"), b""))
    found = list(iter(FrameReader(lambda _: next(pieces), Response).next, None))
    assert [response.WhichOneof("message") for response in found] == ["init", "snapshot"]
    assert found[0].init.success
    assert b"printed\nwritten" in done.stderr


def test_many_points_at_once_do_not_block_either_side(tmp_path: Path) -> None:
    with Daemon("match", cwd=tmp_path) as daemon:
        assert daemon.ask(init([option("sql", "price > 0")])).init.success
        points = [_trade(i, 1.0) for i in range(2_000)]
        sender = threading.Thread(target=daemon.send, args=([*points, request("snapshot")],))
        sender.start()
        before, _ = daemon.points_until("snapshot")
        sender.join()
        assert [response.point.time for response in before] == [i * SECOND for i in range(2_000)]


@contextmanager
def _serving(path: Path, pages: list[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """`pages`: gets the address of the status page."""
    process = subprocess.Popen(
        [*COMMAND, "ohlc", "--socket", str(path), "--http", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        cwd=path.parent,
        text=True,
    )
    assert process.stderr is not None
    try:
        while "listening" not in (line := process.stderr.readline()):
            assert line, "it ended before it listened"
            if pages is not None:
                pages.append(f"http://127.0.0.1:{line.rpartition('port=')[2].strip()}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_socket_serves_many_uses_with_separate_states(tmp_path: Path) -> None:
    path, pages = tmp_path / "ohlc.sock", list[str]()
    with _serving(path, pages) as process:
        with Daemon(path=path) as asking:
            assert asking.ask(request("info")).info.options
            assert asking.close_input() == []
        with Daemon(path=path) as one, Daemon(path=path) as other, Daemon(path=path) as broken:
            for daemon in (one, other):
                assert daemon.ask(init(OPTIONS)).init.success
            one.send([_trade(1, 5.0)])
            broken.send_bytes(b"\x03\xff\xff\xff")
            assert broken.receive().error.error
            assert broken.frames.next() is None
            other.send([_trade(2, 6.0), _trade(60, 1.0)])
            assert other.receive().point.fieldsDouble["open"] == 6.0
            one.send([_trade(60, 1.0)])
            assert one.receive().point.fieldsDouble["open"] == 5.0
            # Half-closed: the rest still arrives.
            assert one.close_input()[-1].point.time == 60 * SECOND
            with urllib.request.urlopen(f"{pages[0]}/metrics", timeout=10) as page:
                told = page.read().decode()
            # Of the connection that has ended and of the one that continues.
            assert 'candlewright_kapacitor_udf_total{function="ohlc",what="points"} 4\n' in told
            assert 'candlewright_kapacitor_udf_total{function="ohlc",what="failed"} 1\n' in told
            process.send_signal(signal.SIGTERM)
            # The open connections are closed in order.
            assert list(iter(other.frames.next, None))[-1].point.time == 60 * SECOND
        assert process.wait(30) == 0
        assert not path.exists()


def test_socket_of_a_killed_server_is_taken_over_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ohlc.sock"
    with _serving(path) as process:
        second = subprocess.run([*COMMAND, "ohlc", "--socket", str(path)], capture_output=True, text=True, timeout=60)
        assert second.returncode == 1
        assert "another process serves" in second.stderr
        process.kill()
        process.wait()
    with _serving(path), Daemon(path=path) as daemon:
        started = time.monotonic()
        assert daemon.ask(request("info")).info.options
        assert time.monotonic() - started < 30


def test_published_points_are_on_the_bus_once_though_the_function_is_killed_and_all_come_again(tmp_path: Path) -> None:
    ticker, count = "BTC/USDT.BINANCE", 300
    start = 1_700_000_000 * SECOND
    trades = [
        Request(point=point(start + i, {"price": 1.0 + i, "volume": 0.5, "trade_id": i}, ticker=ticker))
        for i in range(count)
    ]
    with EmbeddedRedis(tmp_path, fsync="no") as redis:
        with Daemon("publish", cwd=tmp_path, CANDLEWRIGHT_BUS__URL=redis.url) as killed:
            killed.send([init([]), *trades])
            assert killed.receive().init.success
            # The first points have come back: some are on the bus, and perhaps not all.
            assert killed.receive().point.time == start
        with Daemon("publish", cwd=tmp_path, CANDLEWRIGHT_BUS__URL=redis.url) as daemon:
            daemon.send([init([]), *trades, request("snapshot")])
            passed, _ = daemon.points_until("snapshot")
            assert len(passed) == 1 + count
            daemon.close_input()
            code, log = daemon.wait()
            assert code == 0
            assert "refused=0" in log
        bus = RedisBus(redis.url)
        try:
            records = [r for p in range(bus.partitions("ticks")) for r in bus.read("ticks", p, 0)]
        finally:
            bus.close()
        assert [Tick.FromString(record.value).trade_id for record in records] == [str(i) for i in range(count)]
        assert [record.sequence for record in records] == [i + 1 for i in range(count)]


def test_benchmark_counts_all_points_and_closed_bars_against_its_floor() -> None:
    found = kapacitor.run(points=4_000, groups=2, per_second=10, rounds=1)
    # 2,000 trades of a group are 200 seconds: three minutes have ended.
    assert (found["rows"], found["result_rows"], found["floor_result_rows"]) == (4_000, 6, 4_000)
    assert found["ratio"] == pytest.approx(found["rows_per_second"] / found["floor_rows_per_second"], abs=0.01)
    assert set(found["cpu_microseconds"]) == {"floor", "ohlc"}


def test_publish_without_a_bus_fails_when_the_task_begins(tmp_path: Path) -> None:
    with Daemon("publish", cwd=tmp_path) as daemon:
        answer = daemon.ask(init([])).init
        assert not answer.success
        assert "bus.url is not set" in answer.error


def test_our_function_and_our_host_understand_each_other(tmp_path: Path) -> None:
    settings = KapacitorFunctionSettings(
        prog=COMMAND[0], args=(*COMMAND[1:], "ohlc"), env={"CANDLEWRIGHT_DATA_DIR": str(tmp_path)}, timeout_seconds=30
    )
    hosted = HostedFunction(name="bars", settings=settings, calls=[("period", [Duration(60 * SECOND)])])
    try:
        first = hosted.run(1, [_trade(1, 5.0), _trade(61, 6.0)], b"")
        assert [output.points[0].fieldsDouble["close"] for output in first.outputs] == [5.0]
        again = [hosted.run(2, [_trade(62, 7.0), _trade(120, 1.0)], first.state) for _ in range(2)]
        told = [(p.fieldsDouble["close"], p.fieldsInt["partial"]) for o in again for p in o.outputs[0].points]
        # The second time a new process continues from the state, and cannot know that nothing is missing.
        assert told == [(7.0, 0), (7.0, 1)]
    finally:
        hosted.close()
