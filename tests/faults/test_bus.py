"""The bus while its server dies, forgets its scripts, hangs, or is cut off in the middle of a call."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from bus.api import Record, SequenceStamp
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire.errors import BusError, BusUnavailable, LeaseLost


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis", fsync="always") as running:
        yield running


@pytest.fixture
def bus(server: EmbeddedRedis) -> Iterator[RedisBus]:
    connected = RedisBus(server.url, retry_seconds=60)
    yield connected
    connected.close()


class Cut:
    """A proxy that forwards requests and can drop the connection instead of returning an answer."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = server.url.replace(f":{server.port}/", f":{self._listener.getsockname()[1]}/")
        self.answers_to_drop = 0
        self.before_drop: Callable[[], object] = int
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection((self._server.host, self._server.port))
            self._open += (client, upstream)
            threading.Thread(target=self._forward, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self._answer, args=(upstream, client), daemon=True).start()

    def _forward(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while chunk := client.recv(1 << 16):
                upstream.sendall(chunk)
            upstream.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _answer(self, upstream: socket.socket, client: socket.socket) -> None:
        try:
            while chunk := upstream.recv(1 << 16):
                if self.answers_to_drop and chunk != b"+OK\r\n":
                    self.answers_to_drop -= 1
                    self.before_drop()
                    break
                client.sendall(chunk)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def test_kill_9_with_fsync_always_loses_nothing_that_was_acknowledged(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    acknowledged: dict[int, bytes] = {}
    stop = threading.Event()
    errors: list[BusError] = []
    lock = threading.Lock()

    def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            values = [b"%d:%d" % (writer, number + index) for index in range(3)]
            number += 3
            try:
                stamped = [Record(value, sequence=SequenceStamp("s")) for value in values]
                positions = bus.publish("t", stamped)
            except BusError as error:
                errors.append(error)
                return
            with lock:
                acknowledged.update({p.offset: value for p, value in zip(positions, values, strict=True)})

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(4):
        with lock:
            before = len(acknowledged)
        deadline = time.monotonic() + 60
        while len(acknowledged) < before + 200 and not errors:
            assert time.monotonic() < deadline
            stop.wait(0.01)
        server.kill()
        server.start()
    stop.set()
    for writer in writers:
        writer.join(60)
    assert not errors
    found = bus.read("t", 0, 0, max_records=1_000_000, max_bytes=1 << 30)
    assert [r.offset for r in found] == list(range(len(found)))
    assert {r.offset: r.value for r in found} == acknowledged
    assert len({r.value for r in found}) == len(found), "a repeated publish wrote twice"
    assert [r.sequence for r in found] == list(range(1, len(found) + 1))
    assert len(bus.read_group("t", "g", "c", max_records=1_000_000)) == len(found)


def test_scripts_are_loaded_again_after_a_restart(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.publish("t", [Record(b"a", partition=0)])
    with redis.Redis.from_url(server.url) as client:
        client.script_flush()
    bus.publish("t", [Record(b"b", partition=0)])
    server.kill()
    server.start()
    assert bus.publish("t", [Record(b"c", partition=0)])[0].offset == 2
    assert [r.value for r in bus.read("t", 0, 0)] == [b"a", b"b", b"c"]


def test_a_publish_whose_answer_was_lost_is_not_written_twice(server: EmbeddedRedis) -> None:
    proxy = Cut(server)
    bus = RedisBus(proxy.url)
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"first")])
    proxy.answers_to_drop = 2
    positions = bus.publish("t", [Record(b"second"), Record(b"third", sequence=SequenceStamp("s"))])
    assert proxy.answers_to_drop == 0
    assert [p.offset for p in positions] == [1, 2]
    proxy.answers_to_drop = 1
    once = bus.publish_once("t", Record(b"fourth"), registry="r", name="n", content=b"c", keep_seconds=60)
    assert once.is_first
    assert once.position is not None
    assert once.position.offset == 3
    assert [r.value for r in bus.read("t", 0, 0)] == [b"first", b"second", b"third", b"fourth"]
    assert bus.last_sequence("s") == 1
    bus.close()
    proxy.close()


def test_a_lost_answer_stays_a_success_when_the_lease_has_gone_meanwhile(server: EmbeddedRedis, bus: RedisBus) -> None:
    granter = bus
    proxy = Cut(server)
    bus = RedisBus(proxy.url)
    bus.create_topic("t", 1)
    granter.grant({"job": b""})
    granter.publish("other", [Record(b"the script is known from here on")])
    proxy.before_drop = lambda: granter.revoke(["job"])
    proxy.answers_to_drop = 1
    assert bus.publish("t", [Record(b"x")], lease="job")[0].offset == 0
    with pytest.raises(LeaseLost):
        bus.publish("t", [Record(b"y")], lease="job")
    assert [r.value for r in bus.read("t", 0, 0)] == [b"x"]
    bus.close()
    proxy.close()


def test_a_call_that_was_held_up_and_given_up_changes_nothing_later(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_topic("t", 1)
    for value in (b"a", b"b", b"c"):
        bus.publish("t", [Record(value)])
    bus._writer.number -= 2  # The next call has the number that the previous call had last.
    with pytest.raises(BusError, match="later one"):
        bus.publish("t", [Record(b"late")])
    bus._writer.number += 1
    assert bus.publish("t", [Record(b"d")])[0].offset == 3


def test_offsets_continue_after_a_rewrite_of_the_log_of_an_empty_topic(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    bus.publish("t", [Record(b"x", sequence=SequenceStamp("s"))] * 5)
    bus.acknowledge("t", "g", 0, offsets=[r.record.offset for r in bus.read_group("t", "g", "c")])
    assert bus.trim("t", keep_seconds=-1) == 5
    with redis.Redis.from_url(server.url) as client:
        client.bgrewriteaof()
        deadline = time.monotonic() + 30
        while client.info("persistence")["aof_rewrite_in_progress"] or not _is_rewritten(client):
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
    server.kill()
    server.start()
    assert bus.next_offsets("t", "g") == {0: 5}
    assert bus.publish("t", [Record(b"y", sequence=SequenceStamp("s"))])[0].offset == 5
    assert [(r.record.offset, r.record.sequence) for r in bus.read_group("t", "g", "c")] == [(5, 6)]


def _is_rewritten(client: redis.Redis) -> bool:
    information: dict[str, object] = client.info("persistence")  # type: ignore[assignment]
    return not information["aof_rewrite_scheduled"] and information["aof_last_rewrite_time_sec"] != -1


def test_a_server_that_stays_down_is_reported_in_time(server: EmbeddedRedis) -> None:
    bus = RedisBus(server.url, retry_seconds=0.3)
    bus.publish("t", [Record(b"x", partition=0)])
    server.kill()
    started = time.monotonic()
    with pytest.raises(BusUnavailable):
        bus.publish("t", [Record(b"y")])
    with pytest.raises(BusUnavailable):
        bus.wait({("t", 0): 1}, 60)
    assert time.monotonic() - started < 10
    server.start()
    assert [r.value for r in bus.read("t", 0, 0)] == [b"x"]
    bus.close()


def test_a_server_that_hangs_is_reported_in_time(server: EmbeddedRedis) -> None:
    bus = RedisBus(server.url, retry_seconds=0.3, timeout_seconds=0.3)
    bus.publish("t", [Record(b"x", partition=0)])
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BusUnavailable):
            bus.topics()
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert bus.topics() == ["t"]
    bus.close()


def test_a_waiter_continues_over_a_restart(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_topic("t", 1)
    found: list[object] = []
    waiter = threading.Thread(target=lambda: found.append(bus.wait({("t", 0): 0}, 60)))
    waiter.start()
    server.kill()
    server.start()
    bus.publish("t", [Record(b"x")])
    waiter.join(30)
    assert found == [{("t", 0)}]


def test_closing_ends_a_waiter(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_topic("t", 1)
    errors: list[BaseException] = []
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        try:
            bus.wait({("t", 0): 0}, 60)
        except BusError as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    entered.wait(10)
    bus.close()
    waiter.join(20)
    assert len(errors) == 1
    with pytest.raises(BusError):
        bus.topics()


def test_a_forked_child_uses_its_own_connections(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"parent")])
    children = []
    for n in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for index in range(50):
                    bus.publish("t", [Record(b"%d:%d" % (n, index))])
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    for index in range(50):
        bus.publish("t", [Record(b"p:%d" % index)])
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    found = bus.read("t", 0, 0)
    assert len({r.value for r in found}) == len(found) == 201


def test_two_processes_and_their_group_share_one_log(server: EmbeddedRedis, bus: RedisBus) -> None:
    """Another bus object with a different default keeps the topic's number of partitions."""
    other = RedisBus(server.url, partitions=7)
    assert bus.publish("t", [Record(b"x", key=b"BTC/USDT")])[0].offset == 0
    assert other.publish("t", [Record(b"y", key=b"BTC/USDT")])[0].offset == 1
    third = RedisBus(server.url, partitions=9)
    third._counts["t"] = 9
    assert third.publish("t", [Record(b"z", key=b"BTC/USDT")])[0].offset == 2
    assert other.partitions("t") == third.partitions("t") == 4
    other.close()
    third.close()


def test_entries_of_a_stranger_are_an_error_and_not_data(server: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"x")])
    with redis.Redis.from_url(server.url) as client:
        client.xadd("cw:log:t:0", {"v": "poison"})
    with pytest.raises(BusError, match="did not write"):
        bus.read("t", 0, 0)
