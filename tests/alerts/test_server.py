"""Events on a real bus, delivered to a real receiver that fails in every way."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from standardwebhooks.webhooks import Webhook

from alerts import state
from alerts.senders import webhook
from alerts.senders.sender import Failure
from alerts.server import Alerts, senders_of
from alerts.store import AlertStore
from bus import topics
from bus.api import Bus, Record, Swap
from bus.dead_letters import kept
from candlewright.wire import ingestor_pb2 as ing
from core import metrics
from core.settings_alerts import AlertsSettings
from protobuf import records_pb2 as rec
from tests.alerts.receiver import Authority, Receiver, until
from tests.fresh_bus import FreshBus

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOON = 1_704_110_400 * 10**9


def event(number: int, trigger: str = "dip", ticker: str = "BTC/USDT.BINANCE") -> Record:
    message = ing.CEPTriggerEvent(trigger_id=trigger, timestamp=NOON + number)
    message.schema.column_names.extend(["bottom", "at", "n"])
    message.schema.column_types.extend(["DOUBLE", "TIMESTAMP(9)", "BIGINT"])
    values = (ing.FieldValue(double_val=41.5), ing.FieldValue(timestamp_val=NOON), ing.FieldValue(int_val=number))
    message.rows.add().values.extend(value.SerializeToString() for value in values)
    message.context.update({"event_id": f"{trigger}-{number}", "ticker": ticker, "sequence": str(number)})
    return Record(message.SerializeToString(), key=trigger.encode())


@asynccontextmanager
async def serving(bus: Bus, own: AlertsSettings) -> AsyncIterator[Alerts]:
    """Runs until the end of the block; waiting deliveries are kept."""
    stop = asyncio.Event()
    alerts = Alerts(own, bus, senders_of(own), data_dir=Path("nowhere"))
    task = asyncio.get_running_loop().create_task(alerts.serve(stop))
    await until(lambda: alerts.status().is_ready or task.done(), "it starts")
    try:
        yield alerts
    finally:
        stop.set()
        await task


def to(receiver: Receiver, **more: object) -> AlertsSettings:
    group = {"url": receiver.url, "allow_private": True, "secret": SECRET, **more}
    return AlertsSettings.model_validate({"hook": group})


def failed_tries() -> Counter[str]:
    """This process's counters of the destination `hook`, by kind of failure."""
    name, found = "candlewright_alerts_failed_tries_total", Counter[str]()
    for failure in Failure:
        own = {"destination": "hook", "failure": failure.value}
        found[failure.value] = int(metrics.REGISTRY.get_sample_value(name, own) or 0)
    return found


def outcomes(bus: Bus) -> list[dict[str, object]]:
    return [orjson.loads(record.value) for record in bus.read(topics.DELIVERIES, 0, 0)]


async def test_an_event_arrives_signed() -> None:
    bus, receiver = FreshBus(), Receiver()
    async with receiver.serve():
        bus.publish(topics.TRIGGER_EVENTS, [event(0)])  # Before the first start: not for them.
        async with serving(bus, to(receiver)):
            bus.publish(topics.TRIGGER_EVENTS, [event(1)])
            await until(lambda: receiver.taken, "it arrives")
            await until(lambda: outcomes(bus), "its outcome is kept")
    ((_, headers, body),) = receiver.requests
    assert Webhook(SECRET).verify(body, headers) == {
        "type": "event",
        "timestamp": "2024-01-01T12:00:00.000000001Z",
        "data": {
            "event_id": "dip-1",
            "trigger_id": "dip",
            "ticker": "BTC/USDT.BINANCE",
            "row": {"bottom": 41.5, "at": "2024-01-01T12:00:00.000000000Z", "n": 1},
        },
    }
    ((outcome),) = outcomes(bus)
    assert outcome.pop("delivered_at")
    assert outcome == {"event_id": "dip-1", "destination": "hook", "attempts": 1, "status": "delivered", "error": ""}
    assert not AlertStore(bus).waiting()


class Counting(FreshBus):
    """Counts the calls that write, each of which waits for the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def put(self, table: str, values: Mapping[str, bytes], *, keep_seconds: float | None = None) -> None:
        if values:
            self.writes.append(f"put {table}")
        super().put(table, values, keep_seconds=keep_seconds)

    def commit(self, swaps: Sequence[Swap], records: Mapping[str, Sequence[Record]], **more: Any) -> bool:
        self.writes.append(f"commit {' '.join(swap.table for swap in swaps)}")
        return super().commit(swaps, records, **more)

    def publish_new(self, topic: str, records: Sequence[Record], **more: Any) -> list[bool]:
        self.writes.append(f"publish_new {topic}")
        return super().publish_new(topic, records, **more)

    def delete(self, table: str, keys: Sequence[str]) -> None:
        self.writes.append(f"delete {table}")
        super().delete(table, keys)


async def test_events_cost_one_write_before_they_are_sent_and_one_after() -> None:
    bus, receiver = Counting(), Receiver()
    async with receiver.serve(), serving(bus, to(receiver)):
        bus.writes.clear()
        bus.publish(topics.TRIGGER_EVENTS, [event(1, f"t{number}") for number in range(10)])
        await until(lambda: len(outcomes(bus)) == 10, "the outcomes are kept")
        await until(lambda: not bus.items(topics.TABLE_ALERTS_WAITING), "their rows are deleted")
    wanted = ["commit alerts alerts_waiting", "publish_new deliveries", "delete alerts_waiting"]
    assert list(dict.fromkeys(bus.writes)) == wanted
    assert Counter(bus.writes)["publish_new deliveries"] < 10


async def test_an_event_that_comes_again_while_its_row_remains_is_not_stuck() -> None:
    bus, receiver = FreshBus(), Receiver()
    async with receiver.serve(), serving(bus, to(receiver)):
        bus.publish(topics.TRIGGER_EVENTS, [event(1)])
        await until(lambda: len(outcomes(bus)) == 1, "its outcome is kept")
        bus.publish(topics.TRIGGER_EVENTS, [event(1), event(2)])
        await until(lambda: len(outcomes(bus)) == 2, "the next one follows")
    assert receiver.taken == ["dip-1", "dip-1", "dip-2"]
    assert [each["event_id"] for each in outcomes(bus)] == ["dip-1", "dip-2"]


async def test_both_secrets_sign_during_a_rotation() -> None:
    bus, receiver = FreshBus(), Receiver()
    other = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
    async with receiver.serve(), serving(bus, to(receiver, secret=[SECRET, other])):
        bus.publish(topics.TRIGGER_EVENTS, [event(1)])
        await until(lambda: receiver.taken, "it arrives")
    ((_, headers, body),) = receiver.requests
    for secret in (SECRET, other):
        assert Webhook(secret).verify(body, headers)


async def test_a_receiver_that_fails_in_eight_ways_gets_each_event_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over HTTPS: slow, 500, 429, cut, redirect, gone, then back with a wrong certificate, and back with its own."""
    patience = webhook._SECONDS
    monkeypatch.setattr(webhook, "_SECONDS", 1.0)
    monkeypatch.setattr(state, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(state, "MAX_PAUSE_SECONDS", 0.2)
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    bus, receiver, before = FreshBus(), Receiver(["slow", "500", "429", "cut", "redirect"]), failed_tries()
    events, own = [event(number) for number in range(1, 11)], authority.server()
    async with receiver.serve(own):
        settings = to(receiver)
        async with serving(bus, settings) as alerts:
            bus.publish(topics.TRIGGER_EVENTS, events[:5])
            await until(lambda: receiver.requests, "the slow answer is waited for")
            # Only that one may time out: an alert whose answer a busy machine delays would be sent twice.
            monkeypatch.setattr(webhook, "_SECONDS", patience)
            # The next process sends again what was accepted without this being recorded.
            await until(lambda: len(outcomes(bus)) == 5, "all arrive")
            first = alerts.status().details["destinations"]["hook"]
    assert first["failures"] == dict.fromkeys(("slow", "server_error", "rate_limited", "cut", "redirect"), 1)
    assert (first["delivered"], first["recovered"]) == (5, 1)
    async with serving(bus, settings) as alerts:
        bus.publish(topics.TRIGGER_EVENTS, events[5:])
        await until(lambda: "cannot connect" in str(alerts.status().warnings), "it is gone")
        async with receiver.serve(authority.server("elsewhere.example")):
            await until(lambda: "certificate" in str(alerts.status().warnings), "another answers in its place")
        assert len(receiver.taken) == 5
        async with receiver.serve(own):
            await until(lambda: len(receiver.taken) == 10, "it is back")
            await until(lambda: len(outcomes(bus)) == 10, "the outcomes are kept")
            second = alerts.status().details["destinations"]["hook"]
    assert second["failures"].keys() == {"unreachable", "certificate"}
    assert (second["delivered"], second["recovered"]) == (5, 1)
    # Sent and received: each attempt either reached the receiver or is counted by why it did not.
    ended, failures = outcomes(bus), Counter(first["failures"]) + Counter(second["failures"])
    assert failed_tries() - before == failures
    assert receiver.taken == [f"dip-{number}" for number in range(1, 11)]
    assert len(receiver.requests) == len(receiver.taken) + 5
    assert sum(int(str(each["attempts"])) for each in ended) == len(receiver.taken) + failures.total()
    assert [(each["event_id"], each["status"]) for each in ended] == [(name, "delivered") for name in receiver.taken]
    assert ended[0]["attempts"] == 6
    assert "/elsewhere" not in {path for path, _, _ in receiver.requests}
    assert "s3cret" not in caplog.text


async def test_a_certificate_of_an_unknown_authority_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state, "FIRST_PAUSE_SECONDS", 0.05)
    bus, receiver = FreshBus(), Receiver()
    async with receiver.serve(Authority(tmp_path).server()), serving(bus, to(receiver)) as alerts:
        bus.publish(topics.TRIGGER_EVENTS, [event(1)])
        await until(lambda: "certificate" in str(alerts.status().warnings), "it is refused")
        assert alerts.status().warnings[0].startswith("hook does not accept alerts (1 waiting)")
        assert alerts.status().details["destinations"]["hook"]["failures"].keys() == {"certificate"}
    assert not receiver.requests
    assert len(bus.items(topics.TABLE_ALERTS_WAITING)) == 1


async def test_a_server_that_speaks_tls_where_http_is_expected_is_not_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state, "FIRST_PAUSE_SECONDS", 0.05)
    bus, receiver = FreshBus(), Receiver()
    async with receiver.serve():
        settings = to(receiver)
    async with receiver.serve(Authority(tmp_path).server()), serving(bus, settings) as alerts:
        bus.publish(topics.TRIGGER_EVENTS, [event(1)])
        await until(lambda: "connection failed" in str(alerts.status().warnings), "it is not understood")
        assert alerts.status().details["destinations"]["hook"]["failures"].keys() == {"cut"}
    assert not receiver.requests


async def test_private_addresses_are_refused_by_name_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FIRST_PAUSE_SECONDS", 0.05)
    bus = FreshBus()
    own = AlertsSettings.model_validate(
        {
            "name": {"url": "https://localhost:1/"},
            "number": {"url": "https://127.0.0.1:1/"},
            "six": {"url": "https://[::ffff:127.0.0.1]:1/"},
            "service": {"url": "json://localhost:1/"},
        }
    )
    async with serving(bus, own) as alerts:
        bus.publish(topics.TRIGGER_EVENTS, [event(1)])
        # A first attempt may time out while Apprise is loaded; the next one reports why.
        refused = "the address is private"
        await until(lambda: sum(refused in each for each in alerts.status().warnings) == 4, "all are refused")
        found = alerts.status().details["destinations"]
        assert all("private" in each["failures"] for each in found.values())


async def test_a_restart_delivers_unfinished_and_new_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FIRST_PAUSE_SECONDS", 0.05)
    bus, receiver = FreshBus(), Receiver(["500"] * 3)
    async with receiver.serve():
        async with serving(bus, to(receiver)):
            bus.publish(topics.TRIGGER_EVENTS, [event(1), event(2)])
            await until(lambda: len(receiver.requests) >= 2, "it is tried")
        bus.publish(topics.TRIGGER_EVENTS, [event(3)])
        async with serving(bus, to(receiver)):
            await until(lambda: len(receiver.taken) == 3, "all arrive")
            await until(lambda: len(outcomes(bus)) == 3, "the outcomes are kept")
    assert receiver.taken == ["dip-1", "dip-2", "dip-3"]
    assert outcomes(bus)[0]["attempts"] == 4


async def test_an_abandoned_delivery_is_sent_again_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "GIVE_UP_SECONDS", 0.0)
    bus, receiver, store = FreshBus(), Receiver(["500"]), None
    async with receiver.serve(), serving(bus, to(receiver)):
        store = AlertStore(bus)
        bus.publish(topics.TRIGGER_EVENTS, [event(1)])
        await until(lambda: len(outcomes(bus)) == 1, "it is given up")
        (abandoned,) = store.abandoned()
        assert abandoned.error == "HTTP 500"
        store.send_again([abandoned.key, "no such key"])
        await until(lambda: len(outcomes(bus)) == 2, "it is sent again")
    assert receiver.taken == ["dip-1"]
    assert [each["status"] for each in outcomes(bus)] == ["abandoned", "delivered"]
    assert not store.abandoned()


async def test_other_kinds_of_alerts_and_records_that_cannot_be_read() -> None:
    bus, receiver = FreshBus(), Receiver()
    async with receiver.serve():
        own = AlertsSettings.model_validate(
            {"hook": {"url": receiver.url, "allow_private": True}, "route": [{"to": "hook"}]}
        )
        async with serving(bus, own):
            failed = ing.HistoryReadyNotification(
                request_id="r1", ticker="A/B.X", status=ing.HistoryReadyNotification.ERROR, error_message="no"
            )
            fine = ing.HistoryReadyNotification(request_id="r2", ticker="A/B.X")
            bus.publish(topics.NOTIFICATIONS, [Record(each.SerializeToString()) for each in (fine, failed)])
            suspended = rec.TriggerProgress(suspended=[rec.TriggerSuspended(trigger_id="dip", version=3, reason="why")])
            bus.publish(topics.TRIGGER_PROGRESS, [Record(suspended.SerializeToString())])
            gap = rec.TickMark(ticker="A/B.X", gap=rec.Gap(gap_id="g", reason="outage", detected_at=NOON))
            clock = rec.TickMark(ticker="A/B.X", clock=rec.Clock())
            bus.publish(topics.TICK_MARKS, [Record(each.SerializeToString()) for each in (clock, gap)])
            bus.publish(topics.TRIGGER_EVENTS, [Record(b"\xff\xff"), event(1)])
            await until(lambda: len(receiver.taken) == 4, "they arrive")
    by_type = {body["type"]: body["data"] for body in receiver.bodies}
    assert by_type.keys() == {"event", "request_failed", "trigger_suspended", "gap"}
    assert by_type["request_failed"]["text"] == "history of A/B.X ended as ERROR: no"
    assert by_type["trigger_suspended"]["text"] == "trigger dip is suspended: why"
    assert by_type["gap"]["text"] == "trades of A/B.X are missing: outage"
    assert [letter.part for _, letter in kept(bus)] == ["alerts"]


async def test_a_service_gets_text_and_above_its_rate_a_digest() -> None:
    bus, receiver = FreshBus(), Receiver()
    async with receiver.serve():
        url = f"json://localhost:{receiver.port}/phone"
        own = AlertsSettings.model_validate({"phone": {"url": url, "allow_private": True, "rate_per_minute": 30}})
        async with serving(bus, own):
            bus.publish(topics.TRIGGER_EVENTS, [event(number, f"t{number % 3}") for number in range(50)])
            await until(lambda: len(outcomes(bus)) == 50, "all are delivered")
    messages = [(body["title"], body["message"]) for body in receiver.bodies]
    assert messages[0] == ("t0: BTC/USDT.BINANCE", "bottom 41.5, at 2024-01-01T12:00:00.000000000Z, n 0")
    # Each two seconds that the deliveries take let one more event pass alone.
    together = 50 - (len(messages) - 1)
    assert 2 <= together <= 20
    assert messages[-1][0] == f"{together} alerts"
    assert messages[-1][1].startswith(f"{together} alerts: t")


async def test_a_trigger_names_its_destinations_and_its_text() -> None:
    bus, receiver = FreshBus(), Receiver()
    async with receiver.serve():
        group = {"url": receiver.url, "allow_private": True}
        own = AlertsSettings.model_validate({"one": group, "two": group, "route": [{"to": "one", "triggers": "rise"}]})
        for name, message in (("dip", "fell to {{ bottom | round }}"), ("odd", "{{ gone }}")):
            parameters = {"alert_to": "two", "alert_message": message}
            registration = rec.TriggerRegistration(trigger_id=name, parameters=parameters)
            entry = rec.TriggerEntry(registration=registration)
            bus.put(topics.TABLE_TRIGGERS, {name: entry.SerializeToString()})
        async with serving(bus, own):
            bus.publish(topics.TRIGGER_EVENTS, [event(1, "dip"), event(2, "odd"), event(3, "rise"), event(4, "other")])
            await until(lambda: len(outcomes(bus)) == 3, "they are delivered")
    assert sorted((each["event_id"], each["destination"]) for each in outcomes(bus)) == [
        ("dip-1", "two"),
        ("odd-2", "two"),
        ("rise-3", "one"),
    ]
    texts = {body["data"]["event_id"]: body["data"].get("text") for body in receiver.bodies}
    assert texts == {"dip-1": "fell to 42.0", "odd-2": None, "rise-3": None}


async def test_an_alert_is_resolved_by_another_triggers_event_over_a_restart() -> None:
    bus, receiver = FreshBus(), Receiver()
    parameters = {"dip": {"alert_resolved_by": "back"}, "back": {"alert_to": "none"}}
    for name, own in parameters.items():
        entry = rec.TriggerEntry(registration=rec.TriggerRegistration(trigger_id=name, parameters=own))
        bus.put(topics.TABLE_TRIGGERS, {name: entry.SerializeToString()})
    async with receiver.serve():
        async with serving(bus, to(receiver)):
            bus.publish(topics.TRIGGER_EVENTS, [event(1, "back"), event(2)])
            await until(lambda: len(outcomes(bus)) == 1, "the alert is delivered")
        bus.publish(topics.TRIGGER_EVENTS, [event(3, "back"), event(4, "back")])
        async with serving(bus, to(receiver)):
            await until(lambda: len(outcomes(bus)) == 2, "its end is delivered")
            bus.publish(topics.TRIGGER_EVENTS, [event(5)])
            await until(lambda: len(outcomes(bus)) == 3, "it is alerted again")
    assert receiver.bodies[1] == {
        "type": "resolved",
        "timestamp": "2024-01-01T12:00:00.000000003Z",
        "data": {
            "event_id": "resolved:dip-2",
            "trigger_id": "dip",
            "ticker": "BTC/USDT.BINANCE",
            "row": {"bottom": 41.5, "at": "2024-01-01T12:00:00.000000000Z", "n": 3},
            "resolves": "dip-2",
            "kind": "event",
        },
    }
    assert [body["data"]["event_id"] for body in receiver.bodies] == ["dip-2", "resolved:dip-2", "dip-5"]
