"""Triggers over real sockets: acknowledged once they run, kept over restarts, and removed."""

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import zmq

from bus import topics as bus_topics
from bus.api import Bus, Record, partition_of
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BusUnavailable
from candlewright.wire.frames import encode
from core.settings import TriggersSettings
from protobuf import records_pb2 as rec
from relay.settings import RelayLimits
from relay.triggers import desk
from relay.triggers.store import TABLE_PROGRESS
from tests.fresh_bus import FreshBus
from tests.relay import pipeline
from tests.relay.conftest import Start
from tests.relay.harness import Client, Platform, submit
from tests.relay.test_live import cancels, eventually, list_markets, put_ticks, requests, table
from tests.rounds import rounds

Ack = ing.CEPTriggerAck
BTC = "BTC/USDT.BINANCE"
ETH = "ETH/USDT.BINANCE"
LIMITS = RelayLimits(linger_seconds=0.0, grace_seconds=1.0)


def trigger(trigger_id: str = "t", sql: str = "price > 1", **fields: Any) -> ing.CEPTriggerRequest:
    return ing.CEPTriggerRequest(trigger_id=trigger_id, sql_pattern=sql, **fields)


def send(client: Client, message: Any) -> None:
    client.socket.send_multipart(encode(message))


def has_no_answer(client: Client) -> bool:
    """After everything before a heartbeat was seen; answers of triggers may still be on their way."""
    beat = ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT)
    return bool(client.ask(beat) == beat) and not client.socket.poll(100)


def stored(bus: Bus, trigger_id: str = "t") -> rec.TriggerEntry:
    """The trigger's entry, once its control record has an offset."""
    eventually(lambda: pipeline.entries(bus).get(trigger_id, rec.TriggerEntry()).HasField("control_offset"))
    return pipeline.entries(bus)[trigger_id]


def state_of(client: Client, trigger_id: str = "t") -> list[tuple[str, str]]:
    found = client.ask(cw.TriggerQuery(trigger_id=trigger_id)).triggers
    return [(each.state, each.reason) for each in found]


# ---- acknowledgements


def test_a_trigger_is_registered_once_every_partition_has_passed_its_control(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    send(client, trigger(sql="price > :min", tickers=[BTC], parameters={"min": "1"}, callback_id="c"))
    entry = stored(platform.bus)
    assert entry.control_offset == 0
    assert state_of(platform.client()) == []
    for partition in range(3):
        pipeline.report(platform.bus, partition, 1)
    pipeline.report(platform.bus, 3, 0)
    assert has_no_answer(client)
    pipeline.report(platform.bus, 3, 1)
    assert client.answer() == Ack(trigger_id="t", status=Ack.REGISTERED)
    assert state_of(client) == [("active", "")]
    [control] = pipeline.controls(platform.bus)
    assert control.register == entry.registration
    assert (control.register.sql, list(control.register.tickers)) == ("price > :min", [BTC])
    assert (dict(control.register.parameters), control.register.callback_id) == ({"min": "1"}, "c")


def test_the_same_again_is_already_registered_and_other_content_replaces_it(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    first = trigger(tickers=[BTC, ETH], parameters={"a": "1", "b": "2"})
    with pipeline.running(platform.bus):
        assert client.ask(first).status == Ack.REGISTERED
        assert client.ask(first).status == Ack.ALREADY_REGISTERED
        assert client.ask(trigger(tickers=[ETH, BTC, BTC], parameters={"b": "2", "a": "1"})).status == 1
        for other in (
            trigger(sql="price > 2"),
            trigger(sql="price > 2", tickers=[BTC]),
            trigger(sql="price > 2", tickers=[BTC], parameters={"a": "1"}),
            trigger(sql="price > 2", tickers=[BTC], parameters={"a": "1"}, callback_id="c"),
        ):
            assert client.ask(other).status == Ack.REGISTERED
    versions = [version for _, version in pipeline.registrations(platform.bus)]
    assert versions == sorted(set(versions))
    assert len(versions) == 5
    assert pipeline.entries(platform.bus)["t"].registration.version == versions[-1]


def test_a_refused_text_names_the_place_and_a_hint_and_leaves_nothing(start_relay: Start) -> None:
    platform = start_relay()
    ack = platform.client().ask(trigger(sql="SELECT *\nFROM ticks WHERE prise > 1"))
    assert ack.status == Ack.INVALID_SQL
    assert ack.error_message.startswith("2:18: ")
    assert "price" in ack.error_message
    assert pipeline.entries(platform.bus) == {}
    assert pipeline.controls(platform.bus) == []


def test_a_replacement_that_is_refused_leaves_the_trigger_as_it_is(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    with pipeline.running(platform.bus):
        client.ask(trigger())
        assert client.ask(trigger(sql="SELECT")).status == Ack.INVALID_SQL
        assert client.ask(trigger()).status == Ack.ALREADY_REGISTERED


def test_warnings_come_with_the_acknowledgement(start_relay: Start) -> None:
    platform = start_relay()
    unbounded = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES A.price AS p "
        "PATTERN (A B* C) DEFINE A AS price > 1, C AS price < 0)"
    )
    with pipeline.running(platform.bus):
        ack = platform.client().ask(trigger(sql=unbounded))
    assert ack.status == Ack.REGISTERED
    assert ack.error_message == "\n".join(pipeline.entries(platform.bus)["t"].warnings) != ""


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (trigger(trigger_id=""), "empty"),
        (trigger(trigger_id="a#b"), "'#'"),
        (trigger(trigger_id="x" * 201), "201 bytes"),
        (trigger(trigger_id="é" * 101), "202 bytes"),
        (trigger(callback_id="a#b"), "callback_id"),
        (trigger(tickers=["BTC"]), "malformed"),
        (trigger(tickers=[BTC, "btc/usdt.binance"]), "malformed"),
        (trigger(tickers=[f"B{number}/USDT.BINANCE" for number in range(10_001)]), "10000 tickers"),
        (trigger(parameters={f"p{number}": "1" for number in range(101)}), "100 parameters"),
        (trigger(sql="close > 1", parameters={"period_seconds": "700000"}), "700000 seconds"),
    ],
)
def test_hostile_requests_get_a_sentence(platform: Platform, request_: ing.CEPTriggerRequest, words: str) -> None:
    ack = platform.client().ask(request_)
    assert ack.status == Ack.ERROR
    assert words in ack.error_message
    assert pipeline.entries(platform.bus) == {}


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "\0",
        "price > 1; DROP TABLE ticks",
        "(" * 30_000,
        "price > " + "1+" * 32_000 + "1",
        "x" * 65_537,
        "SELECT * FROM parquet.`/etc/passwd`",
        "SELECT TRANSFORM(price) USING 'sh' FROM ticks",
    ],
)
def test_hostile_texts_are_invalid_within_a_second(platform: Platform, sql: str) -> None:
    client = platform.client()
    started = time.monotonic()
    assert client.ask(trigger(sql=sql)).status == Ack.INVALID_SQL
    assert time.monotonic() - started < 1.0


def test_too_many_triggers_are_refused(start_relay: Start) -> None:
    platform = start_relay(triggers=TriggersSettings(max_triggers=2))
    client = platform.client()
    with pipeline.running(platform.bus):
        assert [client.ask(trigger(name)).status for name in "ab"] == [Ack.REGISTERED] * 2
        refused = client.ask(trigger("c"))
        assert (refused.status, "2 are allowed" in refused.error_message) == (Ack.ERROR, True)
        assert client.ask(trigger("b", "price > 2")).status == Ack.REGISTERED
        assert client.ask(cw.TriggerRemove(trigger_id="a")).status == Ack.REGISTERED
        eventually(lambda: client.ask(trigger("c")).status == Ack.REGISTERED)


def test_simultaneous_requests_for_one_id_are_all_answered_and_the_last_one_stays(start_relay: Start) -> None:
    platform = start_relay()
    clients = [platform.client() for _ in range(3)]
    with pipeline.running(platform.bus):
        for number in range(10):
            for client in clients:
                send(client, trigger(sql=f"price > {number % 4}"))
        answers = [client.answer().status for _ in range(10) for client in clients]
    assert set(answers) <= {Ack.REGISTERED, Ack.ALREADY_REGISTERED}
    published = pipeline.registrations(platform.bus)
    assert pipeline.entries(platform.bus)["t"].registration.version == published[-1][1]
    assert published == sorted(set(published))


# ---- a pipeline that is down, or stops a trigger


def test_without_a_pipeline_a_client_is_notified_that_its_trigger_is_stored_and_may_ask_again(
    start_relay: Start,
) -> None:
    platform = start_relay(triggers=TriggersSettings(activation_timeout_seconds=0.3))
    client = platform.client()
    ack = client.ask(trigger())
    assert (ack.status, "is stored and starts once" in ack.error_message) == (Ack.ERROR, True)
    send(client, trigger())
    assert "is stored and starts once" in client.answer().error_message
    assert len(pipeline.registrations(platform.bus)) == 1
    pipeline.report_all(platform.bus)
    eventually(lambda: state_of(client) == [("active", "")])
    assert client.ask(trigger()).status == Ack.ALREADY_REGISTERED


def test_a_retry_waits_for_the_same_activation(start_relay: Start) -> None:
    platform = start_relay()
    first, second = platform.client(), platform.client()
    send(first, trigger())
    stored(platform.bus)
    send(second, trigger())
    assert has_no_answer(second)
    pipeline.report_all(platform.bus)
    assert [client.answer().status for client in (first, second)] == [Ack.REGISTERED] * 2
    assert len(pipeline.registrations(platform.bus)) == 1


@pytest.mark.parametrize(
    ("reason", "status", "text"),
    [
        ("too many rows", Ack.ERROR, "The trigger was suspended: too many rows"),
        ("INVALID_SQL 1:7: no", Ack.INVALID_SQL, "1:7: no"),
    ],
)
def test_a_trigger_that_the_pipeline_stops_at_once_is_not_registered(
    start_relay: Start, reason: str, status: int, text: str
) -> None:
    platform = start_relay()
    client = platform.client()
    send(client, trigger())
    version = stored(platform.bus).registration.version
    other = rec.TriggerSuspended(trigger_id="t", version=version - 1, reason="an older one")
    own = rec.TriggerSuspended(trigger_id="t", version=version, reason=reason)
    pipeline.report(platform.bus, 1, 1, other, own)
    assert client.answer() == Ack(trigger_id="t", status=status, error_message=text)
    assert state_of(client) == [("suspended", reason)]
    assert stored(platform.bus).suspended_reason == reason


@pytest.mark.parametrize(("owner", "controls_end"), [(0, 1), (5, 0)], ids=["a partition", "functions in the driver"])
def test_a_suspended_trigger_is_shown_survives_a_restart_and_starts_afresh_when_requested(
    owner: int, controls_end: int, start_relay: Start
) -> None:
    first = start_relay()
    with pipeline.running(first.bus):
        first.client().ask(trigger())
        version = stored(first.bus).registration.version
        suspended = rec.TriggerSuspended(trigger_id="t", version=version, reason="too slow")
        pipeline.report(first.bus, owner, controls_end, suspended)
        eventually(lambda: state_of(first.client()) == [("suspended", "too slow")])
        first.relay.close()
        second = start_relay(first.bus)
        client = second.client()
        assert state_of(client) == [("suspended", "too slow")]
        assert client.ask(trigger()).status == Ack.REGISTERED
        assert state_of(client) == [("active", "")]
    assert stored(first.bus).registration.version > version


# ---- joint triggers


def joint_request() -> ing.CEPTriggerRequest:
    """A trigger over two tickers whose rows are in different partitions."""
    names = (f"X{number}/USDT.BINANCE" for number in range(99))
    other = next(name for name in names if partition_of(name.encode(), 4) != partition_of(BTC.encode(), 4))
    sql = (
        "SELECT * FROM ohlc MATCH_RECOGNIZE (ORDER BY open_time MEASURES A.close AS p PATTERN (A B) "
        "DEFINE A AS close > 1, B AS close < 1)"
    )
    return trigger("joint", sql, tickers=[BTC, other], parameters={"period_seconds": "60"})


def test_a_joint_trigger_waits_for_the_joint_partition_as_well(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    send(client, joint_request())
    stored(platform.bus, "joint")
    assert list(platform.bus.items(bus_topics.TABLE_JOINT_TRIGGERS)) == ["joint"]
    for partition in range(4):
        pipeline.report(platform.bus, partition, 1)
    assert has_no_answer(client)
    pipeline.report(platform.bus, 4, 1)
    assert client.answer().status == Ack.REGISTERED
    with pipeline.running(platform.bus):
        assert client.ask(trigger("joint")).status == Ack.REGISTERED
        eventually(lambda: platform.bus.items(bus_topics.TABLE_JOINT_TRIGGERS) == {})
        assert client.ask(joint_request()).status == Ack.REGISTERED
        assert list(platform.bus.items(bus_topics.TABLE_JOINT_TRIGGERS)) == ["joint"]
        assert client.ask(cw.TriggerRemove(trigger_id="joint")).status == Ack.REGISTERED
        eventually(lambda: platform.bus.items(bus_topics.TABLE_JOINT_TRIGGERS) == {})


# ---- removal and lists


def test_a_removed_trigger_is_gone_once_every_partition_has_dropped_it(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    send(client, trigger())
    stored(platform.bus)
    pipeline.report_all(platform.bus)
    client.answer()
    remove = cw.TriggerRemove(trigger_id="t")
    send(client, remove)
    send(client, remove)
    eventually(lambda: len(pipeline.controls(platform.bus)) == 2)
    assert stored(platform.bus).is_leaving
    assert state_of(platform.client()) == []
    assert has_no_answer(client)
    pipeline.report_all(platform.bus)
    done = Ack(trigger_id="t", status=Ack.REGISTERED)
    assert [client.answer(), client.answer()] == [done, done]
    eventually(lambda: pipeline.entries(platform.bus) == {})
    unknown = client.ask(remove)
    assert (unknown.status, "No trigger 't' is registered" in unknown.error_message) == (Ack.ERROR, True)
    assert [control.WhichOneof("body") for control in pipeline.controls(platform.bus)] == ["register", "remove"]


def test_a_removal_without_a_pipeline_is_stored_and_can_be_overtaken(start_relay: Start) -> None:
    platform = start_relay(triggers=TriggersSettings(activation_timeout_seconds=0.2))
    client = platform.client()
    client.ask(trigger())
    assert "stored as removed" in client.ask(cw.TriggerRemove(trigger_id="t")).error_message
    send(client, trigger())
    eventually(lambda: len(pipeline.registrations(platform.bus)) == 2)
    pipeline.report_all(platform.bus)
    client.answer()
    eventually(lambda: state_of(client) == [("active", "")])
    assert not stored(platform.bus).is_leaving


def test_lists_count_events_and_come_in_pages(start_relay: Start) -> None:
    platform = start_relay(limits=replace(LIMITS, max_list_bytes=900))
    client = platform.client()
    with pipeline.running(platform.bus):
        for number in range(10):
            assert client.ask(trigger(f"t{number}", tickers=[BTC])).status == Ack.REGISTERED
    for number in range(3):
        pipeline.fire(platform.bus, "t4", number)
    [one] = client.ask(cw.TriggerQuery(trigger_id="t4")).triggers
    assert (one.sql_pattern, list(one.tickers), one.state, one.events) == ("price > 1", [BTC], "active", 3)
    assert one.registered_at == stored(platform.bus, "t4").registration.registered_at
    assert one.kept_bytes == 0
    for owner, number in (("0", 3), ("1", 4)):
        cost = rec.TriggerCost(
            trigger_id="t4", partitions=number, state_bytes=10 * number, steps=100 * number,
            waiting_rows=number, behind_ns=10 * number, row_ns=100 * number,
        )  # fmt: skip
        noted = rec.TriggerCosts(costs=[rec.TriggerCost(trigger_id="t5", steps=1), cost])
        platform.bus.put(bus_topics.TABLE_TRIGGER_COSTS, {owner: noted.SerializeToString()})
    platform.bus.put(bus_topics.TABLE_TRIGGER_COSTS, {"2": b"not one"})
    [one] = client.ask(cw.TriggerQuery(trigger_id="t4")).triggers
    assert (one.partitions, one.kept_bytes, one.steps) == (7, 70, 700)
    assert (one.waiting_rows, one.behind_ns, one.row_ns) == (7, 40, 400)
    assert client.ask(cw.TriggerQuery(trigger_id="nobody")) == cw.TriggerList()
    found: list[str] = []
    while True:
        page = client.ask(cw.TriggerQuery(after_trigger_id=found[-1] if found else ""))
        found += [each.trigger_id for each in page.triggers]
        assert len(page.triggers) < 10
        if not page.has_more:
            break
    assert found == [f"t{number}" for number in range(10)]


def test_a_req_client_is_served_too(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client(zmq.REQ)
    with pipeline.running(platform.bus):
        assert client.ask(trigger()).status == Ack.REGISTERED
        assert len(client.ask(cw.TriggerQuery()).triggers) == 1
        assert client.ask(cw.TriggerRemove(trigger_id="t")).status == Ack.REGISTERED


# ---- many


def test_many_registrations_in_a_row(start_relay: Start) -> None:
    count = rounds(1_000)
    platform = start_relay()
    client, other = platform.client(), platform.client()
    with pipeline.running(platform.bus):
        for number in range(count):
            send(client, trigger(f"t{number}", f"price > {number}", tickers=[f"C{number}/USDT.BINANCE"]))
        # Neither requests nor other clients' triggers wait for all of them.
        assert other.ask(submit("r")).status == ing.SubmitResponse.QUEUED
        assert other.ask(trigger("o")).status == Ack.REGISTERED
        answers = {answer.trigger_id: answer.status for answer in (client.answer() for _ in range(count))}
    assert answers == {f"t{number}": Ack.REGISTERED for number in range(count)}
    calls = Counter[str]()
    ask_bus = platform.bus.last_sequences
    platform.bus.last_sequences = lambda names: calls.update(["call"]) or ask_bus(names)  # type: ignore[method-assign]
    assert len(other.ask(cw.TriggerQuery()).triggers) == count + 1
    assert calls["call"] == 1, "a list asks the bus for each trigger"
    eventually(lambda: len([name for name in table(platform.bus) if name.startswith("TICKS:C")]) == count)
    eventually(
        lambda: platform.relay.status().details["triggers"] == {"active": count + 1, "starting": 0, "suspended": 0}
    )


def test_an_acknowledgement_does_not_wait_for_a_round(start_relay: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WATCH_SECONDS", "_IDLE_SECONDS"):
        monkeypatch.setattr(desk, name, 60.0)
    platform = start_relay()
    with pipeline.running(platform.bus):
        for number in range(3):
            assert platform.client().ask(trigger(f"t{number}")).status == Ack.REGISTERED


def test_registrations_share_the_notes_of_the_progress(start_relay: Start) -> None:
    count = 50
    platform = start_relay()
    noted = Counter[str]()
    put = platform.bus.put
    platform.bus.put = lambda table, items: noted.update([table]) or put(table, items)  # type: ignore[method-assign]
    with pipeline.running(platform.bus):
        client = platform.client()
        for number in range(count):
            assert client.ask(trigger(f"t{number}")).status == Ack.REGISTERED
    eventually(lambda: platform.bus.holds(bus_topics.TRIGGER_CONTROLS, "relay") == {0: count})
    assert noted[TABLE_PROGRESS] < count


def test_more_than_can_wait_is_refused(start_relay: Start) -> None:
    platform = start_relay(limits=replace(LIMITS, max_trigger_backlog=10, max_waiting_triggers=5))
    client = platform.client()
    for number in range(200):
        send(client, trigger(f"t{number}"))
    texts = [client.answer().error_message for _ in range(180)]
    assert all("Too many requests about triggers" in text for text in texts)


# ---- outages and restarts


class DyingBus(FreshBus):
    """From call number `dies_at` on (of those that write for triggers) every call fails, as in a process that is killed
    there; `carries_out`: whether that call itself still takes effect.
    """

    dies_at = 10**9
    carries_out = False
    calls = 0

    def _dies(self) -> bool:
        self.calls += 1
        return self.calls >= self.dies_at

    def put(self, table: str, *args: Any, **kwargs: Any) -> None:
        dies = table in (bus_topics.TABLE_TRIGGERS, bus_topics.TABLE_JOINT_TRIGGERS) and self._dies()
        if not dies or (self.carries_out and self.calls == self.dies_at):
            super().put(table, *args, **kwargs)
        if dies:
            raise BusUnavailable("killed")

    def delete(self, table: str, *args: Any, **kwargs: Any) -> None:
        dies = table in (bus_topics.TABLE_TRIGGERS, bus_topics.TABLE_JOINT_TRIGGERS) and self._dies()
        if not dies or (self.carries_out and self.calls == self.dies_at):
            super().delete(table, *args, **kwargs)
        if dies:
            raise BusUnavailable("killed")

    def publish(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        dies = topic == bus_topics.TRIGGER_CONTROLS and self._dies()
        if dies and not (self.carries_out and self.calls == self.dies_at):
            raise BusUnavailable("killed")
        positions = super().publish(topic, *args, **kwargs)
        if dies:
            raise BusUnavailable("killed")
        return positions


@pytest.mark.parametrize("carries_out", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
def test_a_relay_that_dies_at_any_step_is_put_right_by_its_next_start_and_a_retry(
    start_relay: Start, dies_at: int, carries_out: bool
) -> None:
    bus = DyingBus()
    bus.dies_at, bus.carries_out = dies_at, carries_out
    first = start_relay(bus)
    with pipeline.running(bus):
        client = first.client()
        send(client, trigger())
        eventually(lambda: bus.calls >= dies_at or state_of(first.client()) == [("active", "")])
        send(client, cw.TriggerRemove(trigger_id="t"))
        eventually(lambda: bus.calls >= dies_at or not pipeline.entries(bus))
        first.relay.close()
        bus.dies_at = 10**9
        second = start_relay(bus)
        retry = second.client()
        assert retry.ask(trigger()).status in (Ack.REGISTERED, Ack.ALREADY_REGISTERED)
        assert retry.ask(trigger()).status == Ack.ALREADY_REGISTERED
        last = pipeline.controls(bus)[-1]
        entry = stored(bus)
        assert last.register == entry.registration
        assert not entry.is_leaving
        answer = retry.ask(cw.TriggerRemove(trigger_id="t"))
        assert answer.status == Ack.REGISTERED
        eventually(lambda: pipeline.entries(bus) == {})
    assert pipeline.controls(bus)[-1].WhichOneof("body") == "remove"


def test_a_start_republishes_entries_without_an_offset(start_relay: Start) -> None:
    bus = FreshBus()
    new = rec.TriggerRegistration(trigger_id="new", sql="price > 1", version=7)
    old = rec.TriggerRegistration(trigger_id="old", sql="price > 1", version=8)
    known = rec.TriggerRegistration(trigger_id="known", sql="price > 1", version=9)
    bus.create_topic(bus_topics.TRIGGER_CONTROLS, 1)
    bus.publish(bus_topics.TRIGGER_CONTROLS, [Record(rec.TriggerControl(register=known).SerializeToString())])
    bus.put(
        bus_topics.TABLE_TRIGGERS,
        {
            "new": rec.TriggerEntry(registration=new).SerializeToString(),
            "old": rec.TriggerEntry(registration=old, is_leaving=True).SerializeToString(),
            "known": rec.TriggerEntry(registration=known, control_offset=0).SerializeToString(),
            "garbage": b"\xff\xff",
        },
    )
    platform = start_relay(bus)
    eventually(lambda: len(pipeline.controls(bus)) == 3)
    _, *again = pipeline.controls(bus)
    assert rec.TriggerControl(register=new) in again
    assert rec.TriggerControl(remove=cw.TriggerRemove(trigger_id="old")) in again
    pipeline.report_all(bus)
    eventually(lambda: set(bus.items(bus_topics.TABLE_TRIGGERS)) == {"new", "known", "garbage"})
    client = platform.client()
    assert [state_of(client, name) for name in ("new", "known")] == [[("active", "")]] * 2


def test_progress_of_the_pipeline_is_known_after_a_restart(start_relay: Start) -> None:
    first = start_relay()
    with pipeline.running(first.bus):
        first.client().ask(trigger())
    eventually(lambda: first.bus.holds(bus_topics.TRIGGER_PROGRESS, "relay") == {0: 5})
    first.relay.close()
    # The newest progress is trimmed, as it may be by now.
    assert first.bus.trim(bus_topics.TRIGGER_PROGRESS, keep_seconds=0) == 5
    second = start_relay(first.bus)
    client = second.client()
    assert client.ask(trigger()).status == Ack.ALREADY_REGISTERED
    assert state_of(client) == [("active", "")]


def test_controls_are_held_until_every_partition_has_carried_them_out(start_relay: Start) -> None:
    platform = start_relay()
    send(platform.client(), trigger())
    stored(platform.bus)
    eventually(lambda: platform.bus.holds(bus_topics.TRIGGER_CONTROLS, "relay") == {0: 0})
    assert platform.bus.trim(bus_topics.TRIGGER_CONTROLS, keep_seconds=0) == 0
    pipeline.report_all(platform.bus)
    eventually(lambda: platform.bus.holds(bus_topics.TRIGGER_CONTROLS, "relay") == {0: 1})


def test_waiting_clients_are_answered_in_time_even_while_the_bus_is_down(start_relay: Start) -> None:
    bus = DyingBus()
    bus.dies_at = 3
    platform = start_relay(bus, triggers=TriggersSettings(activation_timeout_seconds=0.3))
    assert "is stored and starts once" in platform.client().ask(trigger()).error_message


def test_a_bus_that_comes_back_is_used_again(start_relay: Start) -> None:
    bus = DyingBus()
    platform = start_relay(bus)
    client = platform.client()
    with pipeline.running(bus):
        assert client.ask(trigger("a")).status == Ack.REGISTERED
        bus.dies_at = 0
        refused = client.ask(trigger("b"))
        assert (refused.status, "cannot be reached" in refused.error_message) == (Ack.ERROR, True)
        bus.dies_at = 10**9
        eventually(lambda: client.ask(trigger("b")).status in (Ack.REGISTERED, Ack.ALREADY_REGISTERED))
        assert client.ask(trigger("a")).status == Ack.ALREADY_REGISTERED


# ---- live data


def test_named_tickers_are_followed_until_the_last_trigger_and_subscriber_leave(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    client = platform.client()
    bus = platform.bus
    ticks, bars, minutes = f"TICKS:{BTC}", f"OHLC:{BTC}:300", f"OHLC:{ETH}:60"
    with pipeline.running(bus):
        client.ask(trigger("a", tickers=[BTC]))
        client.ask(trigger("b", tickers=[BTC]))
        client.ask(trigger("c", "close > 1", tickers=[BTC], parameters={"period_seconds": "300"}))
        client.ask(trigger("d", "SELECT close FROM ohlc WHERE close > 1", tickers=[ETH]))
        eventually(lambda: set(table(bus)) == {ticks, bars, minutes})
        subscriber = platform.ready_subscriber(ticks)
        wishes = {request.request_id.split(":")[1]: request for request in requests(bus)}
        assert len(requests(bus)) == len(wishes) + 1 == 3
        known = table(bus)
        client.ask(cw.TriggerRemove(trigger_id="a"))
        client.ask(cw.TriggerRemove(trigger_id="b"))
        client.ask(cw.TriggerRemove(trigger_id="c"))
        eventually(lambda: cancels(bus) == [known[bars]])
        client.ask(trigger("d", "SELECT price FROM ticks WHERE price > 1", tickers=[BTC]))
        eventually(lambda: set(cancels(bus)) == {known[bars], known[minutes]})
        subscriber.socket.close()
        client.ask(cw.TriggerRemove(trigger_id="d"))
        eventually(lambda: table(bus) == {})
    assert set(cancels(bus)) == set(known.values())


def test_a_restarted_relay_keeps_the_jobs_of_its_triggers(start_relay: Start) -> None:
    first = start_relay(limits=LIMITS)
    with pipeline.running(first.bus):
        first.client().ask(trigger(tickers=[BTC]))
        eventually(lambda: list(table(first.bus)) == [f"TICKS:{BTC}"])
        known = table(first.bus)
        first.relay.close()
        bus = first.bus
        bus.put(bus_topics.TABLE_SUBSCRIPTIONS, {f"TICKS:{ETH}": b"subscription:left"})
        second = start_relay(bus, limits=LIMITS)
        eventually(lambda: cancels(bus) == ["subscription:left"] and table(bus) == known)
        second.client().ask(cw.TriggerRemove(trigger_id="t"))
        eventually(lambda: table(bus) == {})


def test_a_suspended_trigger_gives_up_its_job_until_it_is_registered_again(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    bus, client = platform.bus, platform.client()
    ticks, bars = f"TICKS:{BTC}", f"OHLC:{ETH}:60"
    with pipeline.running(bus):
        client.ask(trigger("a", tickers=[BTC]))
        client.ask(trigger("b", tickers=[BTC]))
        client.ask(trigger("c", "SELECT close FROM ohlc WHERE close > 1", tickers=[ETH]))
        eventually(lambda: set(table(bus)) == {ticks, bars})
        known = table(bus)
        for name in ("a", "c"):
            version = pipeline.entries(bus)[name].registration.version
            end = bus.state(bus_topics.TRIGGER_CONTROLS)[0].end
            pipeline.report(bus, 0, end, rec.TriggerSuspended(trigger_id=name, version=version, reason="r"))
        eventually(lambda: cancels(bus) == [known[bars]])
        eventually(lambda: table(bus) == {ticks: known[ticks]})
        client.ask(cw.TriggerRemove(trigger_id="b"))
        eventually(lambda: table(bus) == {})
        client.ask(trigger("a", tickers=[BTC]))
        eventually(lambda: set(table(bus)) == {ticks})
        client.ask(cw.TriggerRemove(trigger_id="a"))
        client.ask(cw.TriggerRemove(trigger_id="c"))
        eventually(lambda: table(bus) == {})


def test_a_ticker_of_an_unknown_venue_is_registered(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    with pipeline.running(platform.bus):
        assert platform.client().ask(trigger(tickers=["X/Y.NOWHERE"])).status == Ack.REGISTERED
    assert table(platform.bus) == {}


def test_a_trigger_on_an_unlisted_ticker_is_registered_with_a_warning(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    list_markets(platform.bus, "BTC/USDT")
    put_ticks(platform.bus, "HOUSE/USDT.BINANCE", "1")
    client = platform.client()
    with pipeline.running(platform.bus):
        ack = client.ask(trigger("wrong", tickers=[BTC, "BTC/USDX.BINANCE", "HOUSE/USDT.BINANCE"]))
        assert ack.status == Ack.REGISTERED
        assert ack.error_message == "BINANCE does not list BTC/USDX; did you mean BTC/USDT.BINANCE?"
        bars = {"period_seconds": "60"}
        text = "close > open"
        assert client.ask(trigger("bars", text, tickers=["BTC/USDX.BINANCE"], parameters=bars)).error_message
        assert not client.ask(trigger("right", tickers=[BTC])).error_message


def test_replacing_a_trigger_is_reported_and_its_parameters_are_listed(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    client = platform.client()
    with pipeline.running(platform.bus):
        assert not client.ask(trigger(sql="price > :min", parameters={"min": "1"})).error_message
        [info] = client.ask(cw.TriggerQuery(trigger_id="t")).triggers
        assert dict(info.parameters) == {"min": "1"}
        assert "replaces the trigger" in client.ask(trigger(sql="price > :min", parameters={"min": "2"})).error_message
