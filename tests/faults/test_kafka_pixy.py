"""Two Kafka-Pixy gateways, killed while producers and consumers use both: in turn, and one together with Redis."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright_platform.supervisor.ports import free_port
from protobuf import kafkapixy_pb2 as pixy
from tests.conftest import ROOT

pytestmark = pytest.mark.timeout(180)

TOPIC, GROUP = "orders", "own"
MESSAGES = 400
PATIENCE_SECONDS = 90.0
Code = grpc.StatusCode
#: Channels to one address share their pauses between attempts, which would otherwise grow to two minutes.
CHANNEL_OPTIONS = [("grpc.max_reconnect_backoff_ms", 500)]


class Gateway:
    def __init__(self, url: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": url,
            "CANDLEWRIGHT_GATEWAYS__KAFKA_PIXY__ENABLED": "true",
            "CANDLEWRIGHT_GATEWAYS__KAFKA_PIXY__BIND": self.address,
            "CANDLEWRIGHT_GATEWAYS__KAFKA_PIXY__LONG_POLLING_SECONDS": "0.5",
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_LOG__LEVEL": "error",
        }
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "gateways"], env=self._environment, cwd=ROOT)
        with grpc.insecure_channel(self.address, CHANNEL_OPTIONS) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(60)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis", fsync="always") as server:
        yield server


@pytest.fixture
def bus(redis: EmbeddedRedis) -> Iterator[RedisBus]:
    found = RedisBus(redis.url)
    yield found
    found.close()


class Users:
    """Producers and consumers. A failed call is repeated with the other gateway."""

    def __init__(self, addresses: list[str]) -> None:
        self._channels = [grpc.insecure_channel(address, CHANNEL_OPTIONS) for address in addresses]
        self._lock = threading.Lock()
        self.confirmed: dict[tuple[int, int], int] = {}
        self.tried: set[int] = set()
        self.seen: dict[tuple[int, int], int] = {}
        self.acknowledged: set[tuple[int, int]] = set()
        self.done = threading.Event()

    def have_confirmed(self, messages: int) -> bool:
        return len(self.confirmed) >= messages

    def _call(self, turn: "itertools.count[int]", method: str, request: Any, answer: Any) -> Any:
        """None for a call that failed or found no message."""
        channel = self._channels[next(turn) % len(self._channels)]
        stub = channel.unary_unary(f"/KafkaPixy/{method}", lambda m: m.SerializeToString(), answer.FromString)
        try:
            return stub(request, timeout=20)
        except grpc.RpcError as error:
            assert error.code() in (Code.UNAVAILABLE, Code.NOT_FOUND, Code.CANCELLED), error  # type: ignore[attr-defined]
            if error.code() is Code.UNAVAILABLE:  # type: ignore[attr-defined]
                time.sleep(0.02)
            return None

    def produce(self, numbers: range) -> None:
        turn = itertools.count(numbers.start)
        for number in numbers:
            place = None
            while place is None:
                self.tried.add(number)
                request = pixy.ProdRq(topic=TOPIC, key_value=b"%d" % number, message=b"%d" % number)
                place = self._call(turn, "Produce", request, pixy.ProdRs)
            assert isinstance(place, pixy.ProdRs)
            with self._lock:
                assert (place.partition, place.offset) not in self.confirmed
                self.confirmed[place.partition, place.offset] = number

    def consume(self, first: int) -> None:
        turn = itertools.count(first)
        while not self.done.is_set():
            answer = self._call(
                turn, "ConsumeNAck", pixy.ConsNAckRq(topic=TOPIC, group=GROUP, no_ack=True), pixy.ConsRs
            )
            if answer is None:
                continue
            assert isinstance(answer, pixy.ConsRs)
            place, number = (answer.partition, answer.offset), int(answer.message)
            with self._lock:
                assert self.seen.setdefault(place, number) == number
            ack = pixy.AckRq(topic=TOPIC, group=GROUP, partition=place[0], offset=place[1])
            while self._call(turn, "Ack", ack, pixy.AckRs) is None:
                if self.done.is_set():
                    return
            with self._lock:
                self.acknowledged.add(place)


def test_gateways_and_a_bus_that_are_killed_lose_and_invent_nothing(redis: EmbeddedRedis, bus: RedisBus) -> None:
    bus.create_group(TOPIC, GROUP, at_end=True)
    gateways = [Gateway(bus.url) for _ in range(2)]
    users = Users([gateway.address for gateway in gateways])
    producers = [threading.Thread(target=users.produce, args=(range(n, MESSAGES, 2),)) for n in range(2)]
    consumers = [threading.Thread(target=users.consume, args=(n,)) for n in range(4)]
    threads = producers + consumers
    try:
        for thread in threads:
            thread.start()
        for number, gateway in enumerate((*gateways, gateways[0]), start=1):
            wait_until(partial(users.have_confirmed, MESSAGES // 4 * number))
            gateway.kill()
            if number == 3:
                redis.kill()
                redis.start()
            gateway.start()
        # The acknowledgement timeout is five minutes: records that the killed ones held must not wait for it.
        wait_until(lambda: users.have_confirmed(MESSAGES) and users.acknowledged >= users.confirmed.keys())
        wait_until(lambda: not any(bus.pending(TOPIC, GROUP).values()))
    finally:
        users.done.set()
        for thread in threads:
            thread.join(30)
        codes = [gateway.stop() for gateway in gateways]
    assert not any(thread.is_alive() for thread in threads)
    assert codes == [0, 0]
    assert {place: users.seen[place] for place in users.confirmed} == users.confirmed
    assert set(users.seen.values()) <= users.tried
    ends = [state.end for state in bus.state(TOPIC)]
    assert users.seen.keys() == {(partition, offset) for partition, end in enumerate(ends) for offset in range(end)}


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)
