"""The relay as a separate process over a real Redis: kills, outages, an orderly end."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq

import candlewright as cw_client
from bus import topics as bus_topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import encode
from core.settings import Settings
from iceberg import OHLC, append, create_tables, load_table, open_catalog
from protobuf import records_pb2 as rec
from tests.relay import pipeline
from tests.relay.harness import START, Client, Subscriber, finish, submit
from tests.relay.requests.test_pages import MINUTE, rows

ROOT = Path(__file__).resolve().parents[2]
Status = ing.SubmitResponse


def free_ports(count: int) -> list[int]:
    with zmq.Context() as context, ExitStack() as stack:
        sockets = [stack.enter_context(context.socket(zmq.PULL)) for _ in range(count)]
        return [socket.bind_to_random_port("tcp://127.0.0.1") for socket in sockets]


@dataclass(kw_only=True)
class Installation:
    redis: EmbeddedRedis
    bus: RedisBus
    folder: Path
    requests: str
    notifications: str
    stack: ExitStack
    context: "zmq.Context[zmq.Socket[bytes]]"

    @contextmanager
    def relay(self, seat: str = "test/relay") -> Iterator["subprocess.Popen[bytes]"]:
        """Restarted only after its end, like a supervisor does, with the same seat, so it does not wait for a lease."""
        port_file = self.folder / "relay.http"
        port_file.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "CANDLEWRIGHT_DATA_DIR": str(self.folder),
            "CANDLEWRIGHT_BUS__URL": self.redis.url,
            "CANDLEWRIGHT_RELAY__REQUESTS_BIND": self.requests,
            "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": self.notifications,
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(port_file),
            "CANDLEWRIGHT_SUPERVISED": seat,
        }
        process = subprocess.Popen([sys.executable, "-m", "relay"], cwd=ROOT, env=environment)
        try:
            until = time.monotonic() + 30
            while process.poll() is None and not self._is_ready(port_file):
                assert time.monotonic() < until, "the relay does not become ready"
                time.sleep(0.02)
            yield process
        finally:
            process.kill()
            process.wait()

    def _is_ready(self, port_file: Path) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text()}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (FileNotFoundError, urllib.error.HTTPError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            return False

    def client(self) -> Client:
        return Client(self.stack.enter_context(self.context.socket(zmq.DEALER)), self.requests)

    def subscriber(self, *subscriptions: str) -> Subscriber:
        return Subscriber(self.stack.enter_context(self.context.socket(zmq.SUB)), self.notifications, *subscriptions)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    redis_port, requests, notifications = free_ports(3)
    with EmbeddedRedis(tmp_path / "redis", port=redis_port) as redis, ExitStack() as stack, zmq.Context() as context:
        bus = RedisBus(redis.url)
        stack.callback(bus.close)
        with stack:
            yield Installation(
                redis=redis,
                bus=bus,
                folder=tmp_path,
                requests=f"tcp://127.0.0.1:{requests}",
                notifications=f"tcp://127.0.0.1:{notifications}",
                stack=stack,
                context=context,
            )


def test_a_subscriber_that_stays_gets_every_final_across_kills_of_the_relay(installation: Installation) -> None:
    subscriber = installation.subscriber("RESPONSE:stays")
    wanted = {f"r{number}" for number in range(60)}
    seen: set[str] = set()
    for start in range(0, 60, 20):
        with installation.relay() as relay:
            client = installation.client()
            ids = [f"r{number}" for number in range(start, start + 20)]
            assert [client.ask(submit(request_id, client_id="stays")).status for request_id in ids] == [
                Status.QUEUED
            ] * 20
            for request_id in ids[:10]:
                finish(installation.bus, request_id)
            relay.kill()
            relay.wait()
        for request_id in ids[10:]:
            finish(installation.bus, request_id)
    with installation.relay():
        while seen < wanted:
            topic, final = subscriber.next()
            assert topic == "RESPONSE:stays"
            seen.add(final.request_id)
        answer = installation.client().ask(submit("r0", client_id="stays"))
        assert answer.status == Status.DUPLICATE


def test_clients_that_race_over_redis_queue_each_request_once(installation: Installation) -> None:
    with installation.relay():
        clients = [installation.client() for _ in range(4)]
        for number in range(200):
            for client in clients:
                client.socket.send_multipart(encode(submit(f"r{number}")))
        outcomes: dict[str, list[int]] = {}
        for client in clients:
            for _ in range(200):
                answer = client.answer()
                outcomes.setdefault(answer.request_id, []).append(answer.status)
    assert len(outcomes) == 200
    assert all(sorted(found) == [Status.QUEUED] + [Status.DUPLICATE] * 3 for found in outcomes.values())
    assert sum(state.end - state.first for state in installation.bus.state(bus_topics.REQUESTS)) == 200


def test_a_client_that_waits_for_pages_gets_them_over_a_kill_of_the_relay(installation: Installation) -> None:
    settings = Settings(data_dir=installation.folder)
    catalog = open_catalog(settings)
    create_tables(catalog)
    append(load_table(catalog, OHLC), rows(2_500).cast(OHLC.arrow_schema), {"made-by": "test"})
    found: list[int] = []

    def ask() -> None:
        with cw_client.connect(installation.requests, installation.notifications, 60.0, settings=settings) as client:
            candles = client.ohlc("BTC/USDT.BINANCE", "1m", start=START, end=START + 2_500 * MINUTE)
            found.append(candles.to_arrow().num_rows)

    def queued() -> list[rec.Request]:
        return [rec.Request.FromString(record.value) for record in installation.bus.read(bus_topics.REQUESTS, 0, 0)]

    asking = threading.Thread(target=ask)
    with installation.relay() as relay:
        asking.start()
        until = time.monotonic() + 30
        while not (requests := queued()):
            assert time.monotonic() < until, "the request does not arrive"
            time.sleep(0.02)
        relay.kill()
        relay.wait()
    with installation.relay():
        # It learns about the client only from what the client sends again.
        finish(installation.bus, requests[0].historical.request_id, row_count=2_500)
        asking.join(60)
        assert found == [2_500]
    assert queued() == requests


def test_a_suspension_is_received_once_over_kills_of_the_relay(installation: Installation) -> None:
    bus = installation.bus
    addresses = (installation.requests, installation.notifications)
    with cw_client.connect(*addresses, settings=Settings()) as owner:
        with installation.relay() as relay, pipeline.running(bus):
            events = owner.triggers.add("price > 1", trigger_id="t").events()
            relay.kill()
            relay.wait()
        version = pipeline.entries(bus)["t"].registration.version
        note = rec.TriggerSuspended(trigger_id="t", version=version, reason="too slow")
        with installation.relay() as relay:
            pipeline.report(bus, 0, 1, note)
            with pytest.raises(cw_client.TriggerSuspended, match="too slow"):
                events.next(timeout=30)
            relay.kill()
            relay.wait()
        # A driver that was killed as well reports it again.
        pipeline.report(bus, 0, 1, note)
        with installation.relay():
            late = cw_client.connect(*addresses, settings=Settings())
            with late, pytest.raises(cw_client.TriggerSuspended, match="too slow"):
                late.triggers.events("t").next(timeout=30)
            # An event shows that the owner is connected again.
            pipeline.fire(bus, "t", 1)
            assert events.next(timeout=30).event_id == "e1"
            events.timeout = 1.0
            assert list(events) == []
    assert len([control for control in pipeline.controls(bus) if control.HasField("remove")]) == 1


def test_without_its_bus_the_relay_reports_it_and_recovers(installation: Installation) -> None:
    with installation.relay():
        client = installation.client()
        client.socket.rcvtimeo = 30_000
        assert client.ask(submit("before")).status == Status.QUEUED
        subscriber = installation.subscriber("HISTORY_READY:before")
        installation.redis.kill()
        started = time.monotonic()
        answer = client.ask(submit("during"))
        assert answer.status == Status.ERROR
        assert "cannot be reached" in answer.error_message
        assert time.monotonic() - started < 20
        installation.redis.start()
        while (answer := client.ask(submit("during"))).status == Status.ERROR:
            pass
        assert answer.status in (Status.QUEUED, Status.DUPLICATE)
        finish(installation.bus, "before")
        assert subscriber.next()[0] == "HISTORY_READY:before"


def trigger(number: int, round_number: int = 0, **fields: str) -> ing.CEPTriggerRequest:
    text = f"price > {round_number}"
    return ing.CEPTriggerRequest(
        trigger_id=f"t{number}", sql_pattern=text, tickers=["BTC/USDT.BINANCE"], callback_id=fields.get("callback_id")
    )


def test_triggers_survive_kills_of_the_relay_while_they_are_registered_and_removed(installation: Installation) -> None:
    bus, count = installation.bus, 300
    with pipeline.running(bus):
        for round_number, answers in enumerate((0, 1, 40, 150)):
            with installation.relay() as relay:
                client = installation.client()
                for number in range(count):
                    client.socket.send_multipart(encode(trigger(number, round_number)))
                for number in range(0, count, 3):
                    client.socket.send_multipart(encode(cw.TriggerRemove(trigger_id=f"t{number}")))
                for _ in range(answers):
                    client.answer()
                relay.kill()
                relay.wait()
        with installation.relay():
            client = installation.client()
            acks = [client.ask(trigger(number, 99)).status for number in range(5)]
            assert acks == [ing.CEPTriggerAck.REGISTERED] * 5
            for number in range(5, count):
                client.socket.send_multipart(encode(trigger(number, 3)))
            answered = {client.answer().trigger_id for _ in range(5, count)}
            assert answered == {f"t{number}" for number in range(5, count)}
            entries = pipeline.entries(bus)
            newest: dict[str, rec.TriggerControl] = {}
            for control in pipeline.controls(bus):
                newest[control.register.trigger_id or control.remove.trigger_id] = control
            assert set(entries) == {f"t{number}" for number in range(count)}
            for name, entry in entries.items():
                assert newest[name].register == entry.registration
            found = client.ask(cw.TriggerQuery()).triggers
            assert [info.state for info in found] == ["active"] * count
    versions: dict[str, int] = {}
    for name, version in pipeline.registrations(bus):
        assert version >= versions.get(name, 0)
        versions[name] = version


def test_a_subscriber_that_stays_gets_every_trigger_event_across_kills_of_the_relay(installation: Installation) -> None:
    subscriber = installation.subscriber("RESPONSE:stays", "TRIGGER:t0")
    bus, fired = installation.bus, 0
    seen: set[tuple[str, int]] = set()
    tickers = [f"C{number}/USDT.BINANCE" for number in range(10)]
    with pipeline.running(bus), installation.relay():
        request = trigger(0, callback_id="stays")
        assert installation.client().ask(request).status == ing.CEPTriggerAck.REGISTERED
    for _ in range(3):
        with installation.relay() as relay:
            for _ in range(50):
                fired += 1
                pipeline.fire(bus, "t0", fired, ticker=tickers[fired % 10])
            while len(seen) < fired:
                topic, event = subscriber.next()
                seen.add((topic, int(event.context["sequence"])))
            relay.kill()
            relay.wait()
        for _ in range(50):
            fired += 1
            pipeline.fire(bus, "t0", fired, ticker=tickers[fired % 10])
    with installation.relay():
        while len(seen) < 2 * fired:
            topic, event = subscriber.next()
            seen.add((topic, int(event.context["sequence"])))
    assert seen == {(topic, number) for topic in ("RESPONSE:stays", "TRIGGER:t0") for number in range(1, fired + 1)}


def test_the_relay_ends_in_order_and_refuses_a_taken_address(installation: Installation) -> None:
    with installation.relay() as relay:
        with installation.relay(seat="") as second:
            assert second.wait(30) == 1
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(30) == 0
