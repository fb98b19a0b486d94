"""Triggers in both twins, against a small relay; and the protocol with a hand-driven clock."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

import candlewright as cw
from candlewright.client.operations import Operations
from candlewright.client.session.session import Send, Session, Ticket
from candlewright.client.triggers.operations import TRIGGER_RESEND_SECONDS
from candlewright.client.triggers.parameters import parameter_texts
from candlewright.client.triggers.trigger_events import KNOWN_EVENTS, TriggerEvents
from candlewright.wire import candlewright_pb2 as pb
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame
from core.settings import Settings
from tests.candlewright.client.trigger_relay import START, TICKER, TriggerRelay, event

SQL = "price > :limit"
Ack = ing.CEPTriggerAck


@pytest.fixture
def relay() -> Iterator[TriggerRelay]:
    relay = TriggerRelay()
    yield relay
    relay.close()


Connect = Callable[[], cw.Client]


@pytest.fixture
def client(relay: TriggerRelay) -> Iterator[cw.Client]:
    with cw.connect(relay.requests, relay.notifications, settings=Settings()) as c:
        yield c


def aclient(relay: TriggerRelay) -> cw.AsyncClient:
    return cw.aconnect(relay.requests, relay.notifications, settings=Settings())


# ---- registration
def test_a_trigger_is_registered_with_every_given_option(
    relay: TriggerRelay, client: cw.Client, caplog: pytest.LogCaptureFixture
) -> None:
    relay.warnings = "state is unbounded\nanother one"
    got = client.triggers.add(
        SQL, tickers=[TICKER], parameters={"limit": 7.5, "revisions": True}, trigger_id="mine", callback_id="back"
    )
    assert (got.id, got.is_new, got.warnings) == ("mine", True, ("state is unbounded", "another one"))
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["trigger mine: state is unbounded", "trigger mine: another one"]
    assert relay.triggers["mine"] == ing.CEPTriggerRequest(
        trigger_id="mine",
        sql_pattern=SQL,
        tickers=[TICKER],
        parameters={"limit": "7.5", "revisions": "true"},
        callback_id="back",
    )
    again = client.triggers.add(
        SQL, tickers=[TICKER], parameters={"limit": 7.5, "revisions": True}, trigger_id="mine", callback_id="back"
    )
    assert not again.is_new


def test_the_same_trigger_again_is_the_one_that_is_there_and_another_is_another(
    relay: TriggerRelay, client: cw.Client
) -> None:
    first, again = client.triggers.add(SQL), client.triggers.add(SQL)
    assert (again.id, first.is_new, again.is_new) == (first.id, True, False)
    other = client.triggers.add(SQL, parameters={"limit": 1})
    assert set(relay.triggers) == {first.id, other.id}


def test_a_refused_text_shows_its_position(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidTrigger) as caught:
        client.triggers.add("SELECT pric FROM ticks")
    error = caught.value
    assert (error.line, error.column, error.message, error.hint) == (
        1,
        8,
        "unknown column 'pric'",
        "did you mean 'price'?",
    )
    assert str(error).splitlines() == [
        "INVALID_SQL 1:8: unknown column 'pric' (did you mean 'price'?)",
        "  SELECT pric FROM ticks",
        "         ^",
    ]
    assert error.one_line == str(error).splitlines()[0]


def test_a_refusal_of_the_platform_is_an_error_with_its_sentence(relay: TriggerRelay, client: cw.Client) -> None:
    relay.refusal = "100 triggers are registered, 100 are allowed"
    with pytest.raises(cw.PlatformRefused, match="100 are allowed"):
        client.triggers.add(SQL)


def test_an_invalid_ticker_or_parameter_is_refused_before_anything_is_sent(
    relay: TriggerRelay, client: cw.Client
) -> None:
    with pytest.raises(cw.InvalidRequest, match="ticker"):
        client.triggers.add(SQL, tickers=["BTC"])
    with pytest.raises(cw.InvalidRequest, match="list"):
        client.triggers.add(SQL, tickers=TICKER)
    with pytest.raises(cw.InvalidRequest, match="limit"):
        client.triggers.add(SQL, parameters={"limit": None})  # type: ignore[dict-item]
    assert relay.seen == []


def test_list_get_and_remove(relay: TriggerRelay, client: cw.Client) -> None:
    client.triggers.add(SQL, trigger_id="b", tickers=[TICKER])
    trigger = client.triggers.add("size > 1", trigger_id="a")
    relay.fire("a", 2)
    assert [(each.trigger_id, each.sql, each.tickers, each.events) for each in client.triggers.list()] == [
        ("a", "size > 1", (), 2),
        ("b", SQL, (TICKER,), 0),
    ]
    assert client.triggers.get("b") == client.triggers.list()[1]
    assert trigger.info() == cw.TriggerInfo(
        trigger_id="a", sql="size > 1", tickers=(), state="active", reason="", registered_at=START, events=2
    )
    trigger.remove()
    with pytest.raises(cw.TriggerNotFound, match="no trigger a "):
        trigger.info()
    with pytest.raises(cw.TriggerNotFound, match="no trigger a "):
        trigger.remove()
    client.triggers.remove("b")
    assert client.triggers.list() == []


def test_without_an_id_the_same_trigger_of_the_same_client_is_registered_once(relay: TriggerRelay) -> None:
    def added(client_id: str | None = None, **differing: Any) -> str:
        arguments = {"sql": SQL, "tickers": [TICKER, "C/D.X"], "parameters": {"limit": 1, "size": 2}, **differing}
        # As when a script is started once more.
        with cw.connect(relay.requests, relay.notifications, client_id=client_id, settings=Settings()) as client:
            return client.triggers.add(**arguments).id

    first = added()
    assert added() == added(tickers=["C/D.X", TICKER], parameters={"size": 2, "limit": 1}) == first
    assert len(relay.triggers) == 1
    others = {
        added(sql="price > :limit AND size > :size"),
        added(tickers=[TICKER]),
        added(parameters={"limit": 1, "size": 3}),
        added(callback_id="back"),
        added("one"),
        added("two"),
    }
    assert len(others | {first}) == len(relay.triggers) == 7


# ---- events
@pytest.mark.parametrize("is_unseen", [False, True])
def test_events_from_before_the_acknowledgement_are_not_lost(
    relay: TriggerRelay, client: cw.Client, is_unseen: bool
) -> None:
    relay.on_register, relay.is_unseen = 3, is_unseen
    with client.triggers.add(SQL) as trigger:
        events = trigger.events()
        got = [events.next(timeout=10) for _ in range(3)]
    assert [each.event_id for each in got] == ["e1", "e2", "e3"]
    assert got[0].row == {"price": 70_001.5, "seen_at": START + 1, "note": None}
    assert (got[0].time, got[0].match_number, got[0].ticker, got[0].sequence) == (START + 1, 1, TICKER, 1)
    assert got[0].columns == ("price", "seen_at", "note")


def test_a_known_id_begins_after_its_earlier_events(relay: TriggerRelay, client: cw.Client) -> None:
    relay.events["mine"] = [event("mine", number) for number in (1, 2, 3)]
    relay.on_register, relay.is_unseen = 2, True
    trigger = client.triggers.add(SQL, trigger_id="mine")
    events = trigger.events()
    assert [events.next(timeout=10).sequence for _ in range(2)] == [4, 5]


def test_iteration_ends_after_quiet_time_and_another_continues(relay: TriggerRelay, client: cw.Client) -> None:
    trigger = client.triggers.add(SQL)
    relay.wait_for_subscription(f"TRIGGER:{trigger.id}")
    assert list(trigger.events(timeout=0.05)) == []
    relay.fire(trigger.id, 2, is_unseen=True)
    relay.fire(trigger.id)
    assert [next(trigger.events(timeout=10)).sequence for _ in range(3)] == [1, 2, 3]


def test_an_event_that_is_published_again_comes_once(relay: TriggerRelay, client: cw.Client) -> None:
    trigger = client.triggers.add(SQL)
    relay.wait_for_subscription(f"TRIGGER:{trigger.id}")
    relay.fire(trigger.id, event_id="same")
    relay.fire(trigger.id, event_id="same")
    relay.fire(trigger.id)
    events = trigger.events()
    assert [events.next(timeout=10).event_id for _ in range(2)] == ["same", "e3"]


def test_events_of_a_trigger_that_another_registered(relay: TriggerRelay, client: cw.Client) -> None:
    relay.fire("theirs", 2)
    assert client.triggers.newest_number("theirs") == 2
    with client.triggers.events("theirs") as coming, client.triggers.events("theirs", from_sequence=1) as all_of_them:
        relay.wait_for_subscription("TRIGGER:theirs")
        assert [all_of_them.next(timeout=10).sequence for _ in range(2)] == [1, 2]
        relay.fire("theirs")
        assert coming.next(timeout=10).sequence == 3
        assert all_of_them.next(timeout=10).sequence == 3


def test_a_closed_stream_is_opened_again_where_it_ended(relay: TriggerRelay, client: cw.Client) -> None:
    trigger = client.triggers.add(SQL, trigger_id="mine")
    relay.wait_for_subscription("TRIGGER:mine")
    relay.fire("mine")
    with trigger.events() as events:
        assert events.next(timeout=10).sequence == 1
    relay.wait_for_subscription("TRIGGER:mine", is_there=False)
    relay.fire("mine")
    assert trigger.events().next(timeout=10).sequence == 2


def test_a_trigger_without_references_is_unsubscribed(relay: TriggerRelay, client: cw.Client) -> None:
    trigger = client.triggers.add(SQL, trigger_id="mine")
    relay.wait_for_subscription("TRIGGER:mine")
    events = trigger.events()
    del trigger
    gc.collect()
    relay.fire("mine")
    assert events.next(timeout=10).sequence == 1
    del events
    gc.collect()
    client.triggers.list()
    relay.wait_for_subscription("TRIGGER:mine", is_there=False)


def test_a_refused_registration_leaves_no_subscription(relay: TriggerRelay, client: cw.Client) -> None:
    with pytest.raises(cw.InvalidTrigger):
        client.triggers.add("SELECT pric FROM ticks", trigger_id="mine")
    relay.wait_for_subscription("TRIGGER:mine")
    relay.wait_for_subscription("TRIGGER:mine", is_there=False)


# ---- the asyncio twin
async def test_the_async_twin_does_the_same(relay: TriggerRelay) -> None:
    relay.on_register, relay.is_unseen = 2, True
    async with aclient(relay) as c:
        trigger = await c.triggers.add(SQL, tickers=[TICKER], parameters={"limit": 1})
        got = []
        async for each in trigger.events(timeout=10):
            got.append(each.sequence)
            if len(got) == 2:
                break
        assert got == [1, 2]
        assert [each async for each in trigger.events(timeout=0.05)] == []
        assert (await trigger.info()).events == 2
        assert [each.trigger_id for each in await c.triggers.list()] == [trigger.id]
        async with c.triggers.events(trigger.id) as coming:
            await asyncio.to_thread(relay.wait_for_subscription, f"TRIGGER:{trigger.id}")
            relay.fire(trigger.id)
            assert (await coming.next(timeout=10)).sequence == 3
        await trigger.close()
        await trigger.remove()
        with pytest.raises(cw.TriggerNotFound):
            await c.triggers.get(trigger.id)
        with pytest.raises(cw.InvalidTrigger):
            await c.triggers.add("SELECT pric FROM ticks")


async def test_an_async_trigger_without_references_is_unsubscribed(relay: TriggerRelay) -> None:
    async with aclient(relay) as c:
        await c.triggers.add(SQL, trigger_id="mine")
        gc.collect()
        await c.triggers.list()
        await asyncio.to_thread(relay.wait_for_subscription, "TRIGGER:mine")
        await asyncio.to_thread(relay.wait_for_subscription, "TRIGGER:mine", is_there=False)


async def test_triggers_are_requested_at_the_same_time(relay: TriggerRelay) -> None:
    async with aclient(relay) as c:
        names = [f"t{number}" for number in range(8)]
        await asyncio.gather(*(c.triggers.add(SQL, trigger_id=name) for name in names))
        found = await asyncio.gather(*(c.triggers.get(name) for name in names), c.triggers.list())
        assert [each.trigger_id for each in found[:-1]] == names  # type: ignore[union-attr]
        assert len(found[-1]) == 8  # type: ignore[arg-type]


# ---- what is lost on the way
class Conversation:
    """Operations without sockets."""

    def __init__(self) -> None:
        self.session = Session()
        self.ask = Operations(self.session, "me", address="tcp://relay", timeout_seconds=10.0)
        self.now = 0.0

    def add(self, sql: str = SQL) -> "Ticket[object]":
        request = ing.CEPTriggerRequest(trigger_id="t", sql_pattern=sql)
        return self.session.begin(self.ask.triggers.add(request, 30.0), self.now)  # type: ignore[arg-type]

    def remove(self) -> Ticket[None]:
        return self.session.begin(self.ask.triggers.remove("t", 30.0), self.now)

    def sent(self) -> list[Message]:
        return [each.message for each in self.session.take_commands() if isinstance(each, Send)]

    def reply(self, *messages: Message) -> None:
        for message in messages:
            self.session.receive_reply(frames.encode(message), self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.session.advance(self.now)


def test_a_lost_answer_is_requested_again_under_the_same_id() -> None:
    talk = Conversation()
    ticket = talk.add()
    talk.pass_time(TRIGGER_RESEND_SECONDS)
    first, second = talk.sent()
    assert first == second
    talk.reply(Ack(trigger_id="other"), Ack(trigger_id="t", status=Ack.ALREADY_REGISTERED))
    assert ticket.is_done
    ticket.result()


def test_an_unreachable_platform_is_reported_in_the_end() -> None:
    talk = Conversation()
    ticket = talk.add()
    for _ in range(40):
        talk.pass_time(1.0)
    with pytest.raises(cw.PlatformUnreachable):
        ticket.result()


def test_a_late_second_answer_is_not_mistaken_for_that_of_the_next_question() -> None:
    talk = Conversation()
    first = talk.add()
    talk.pass_time(TRIGGER_RESEND_SECONDS)
    talk.reply(Ack(trigger_id="t"))
    assert first.is_done
    second = talk.add("pric > 1")
    talk.reply(Ack(trigger_id="t", status=Ack.ALREADY_REGISTERED))
    assert not second.is_done
    talk.reply(Ack(trigger_id="t", status=Ack.INVALID_SQL, error_message="1:1: unknown column"))
    with pytest.raises(cw.InvalidTrigger):
        second.result()
    third = talk.add()
    talk.reply(Ack(trigger_id="t"))
    assert third.is_done


def test_an_answer_that_comes_between_two_questions_belongs_to_the_first() -> None:
    talk = Conversation()
    talk.add()
    talk.pass_time(TRIGGER_RESEND_SECONDS)
    talk.reply(Ack(trigger_id="t"), Ack(trigger_id="t"))
    second = talk.add()
    talk.reply(Ack(trigger_id="t"))
    assert second.is_done


THERE = pb.TriggerList(triggers=[pb.TriggerInfo(trigger_id="t", state="active")])
STARTING = pb.TriggerList(triggers=[pb.TriggerInfo(trigger_id="t", state="active", is_starting=True)])


def test_a_removal_whose_answer_was_lost_is_a_removal() -> None:
    talk = Conversation()
    ticket = talk.remove()
    talk.reply(THERE)
    talk.pass_time(TRIGGER_RESEND_SECONDS)
    talk.reply(Ack(trigger_id="t", status=Ack.ERROR, error_message="unknown"), pb.TriggerList())
    assert ticket.is_done
    ticket.result()


@pytest.mark.parametrize("after", [THERE, pb.TriggerList()])
def test_a_failed_removal_is_reported_as_failed(after: pb.TriggerList) -> None:
    talk = Conversation()
    ticket = talk.remove()
    talk.reply(THERE, Ack(trigger_id="t", status=Ack.ERROR, error_message="stops later"), after)
    with pytest.raises(cw.PlatformRefused, match="stops later"):
        ticket.result()


def test_a_registration_that_takes_long_is_waited_for_until_the_callers_own_time_is_over() -> None:
    talk = Conversation()
    ticket = talk.add()
    late = Ack(trigger_id="t", status=Ack.ERROR, error_message="starts later")
    talk.reply(late, STARTING)
    assert not ticket.is_done
    talk.reply(Ack(trigger_id="t"))
    assert ticket.is_done
    second = talk.add()
    for _ in range(28):
        talk.pass_time(1.0)
    talk.reply(late, STARTING)
    with pytest.raises(cw.PlatformRefused, match="trigger t: starts later"):
        second.result()


def test_an_error_that_names_the_trigger_ends_the_question() -> None:
    talk = Conversation()
    ticket = talk.add()
    talk.reply(pb.Error(code="UNAVAILABLE", text="later", request_id="t"))
    with pytest.raises(cw.PlatformRefused, match="later"):
        ticket.result()


# ---- errors of a text
@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("INVALID_SQL 2:5: unknown f(x) (did you mean 'g'?)", (2, 5), "unknown f(x)", "did you mean 'g'?"),
        ("3:1: no closing )", (3, 1), "no closing )", ""),
        ("1:2: unknown f(x)", (1, 2), "unknown f(x)", ""),
        ("no place at all", (1, 1), "no place at all", ""),
        ("", (1, 1), "the platform refuses this text", ""),
    ],
)
def test_an_acknowledgement_is_taken_apart(text: str, place: tuple[int, int], message: str, hint: str) -> None:
    error = cw.InvalidTrigger.parse("a\nb", text)
    assert (error.line, error.column) == place
    assert (error.message, error.hint) == (message, hint)


def test_the_excerpt_of_a_long_line_is_short_and_marks_the_place() -> None:
    sql = "SELECT\n" + "x" * 300 + "\there" + "y" * 300
    error = cw.InvalidTrigger(sql, "no", line=2, column=302)
    line, mark = error.excerpt.splitlines()
    assert line[mark.index("^")] == "h"
    assert len(line) < 130
    assert line.isprintable()


@given(st.text(max_size=300), st.text(max_size=200), st.integers(0, 400), st.integers(0, 400))
def test_any_acknowledgement_of_any_text_makes_an_error(sql: str, text: str, line: int, column: int) -> None:
    error = cw.InvalidTrigger.parse(sql, f"{line}:{column}: {text}")
    assert "\n" not in error.one_line
    assert str(error).startswith(error.one_line)


# ---- values
def test_parameters_are_the_texts_of_their_values() -> None:
    noon = datetime(2024, 1, 1, 12, 0, 0, 250_000, UTC)
    values = {
        "text": " as it is ",
        "truth": False,
        "whole": 60,
        "number": 0.1,
        "exact": Decimal("1E+3"),
        "time": noon,
        "elsewhere": noon.astimezone(timezone(timedelta(hours=2))),
        "naive": noon.replace(tzinfo=None),
        "day": date(2024, 1, 1),
        "duration": timedelta(seconds=1.5),
        "scalar": np.float64(2.5),
        "count": np.int64(3),
        "yes": np.bool_(True),
    }
    assert parameter_texts(values) == {  # type: ignore[arg-type]
        "text": " as it is ",
        "truth": "false",
        "whole": "60",
        "number": "0.1",
        "exact": "1000",
        "time": "2024-01-01T12:00:00.25Z",
        "elsewhere": "2024-01-01T12:00:00.25Z",
        "naive": "2024-01-01T12:00:00.25Z",
        "day": "2024-01-01",
        "duration": "1.5",
        "scalar": "2.5",
        "count": "3",
        "yes": "true",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [1], b"x"])
def test_an_invalid_parameter_is_refused(value: object) -> None:
    with pytest.raises(cw.InvalidRequest, match="the parameter a"):
        parameter_texts({"a": value})  # type: ignore[dict-item]


def _single(kind: str, value: ing.FieldValue) -> object:
    message = ing.CEPTriggerEvent(
        schema=ing.ResultSchema(column_names=["c"], column_types=[kind]),
        rows=[ing.ResultRow(values=[value.SerializeToString()])],
    )
    return cw.TriggerEvent.from_message(message).row["c"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("STRING", ing.FieldValue(string_val="ä"), "ä"),
        ("BIGINT", ing.FieldValue(int_val=-(2**63)), -(2**63)),
        ("DOUBLE", ing.FieldValue(double_val=0.5), 0.5),
        ("DOUBLE", ing.FieldValue(int_val=3), 3.0),
        ("BOOLEAN", ing.FieldValue(bool_val=False), False),
        ("BYTES", ing.FieldValue(bytes_val=b"\x00"), b"\x00"),
        ("TIMESTAMP_LTZ(9)", ing.FieldValue(timestamp_val=START + 1), START + 1),
        ("TIMESTAMP_LTZ(9)", ing.FieldValue(int_val=-1), -1),
        ("STRING", ing.FieldValue(), None),
    ],
)
def test_values_have_the_type_of_their_column(kind: str, value: ing.FieldValue, expected: object) -> None:
    got = _single(kind, value)
    assert got == expected
    assert type(got) is type(expected)


def test_an_event_of_several_rows_has_no_single_one() -> None:
    message = event("t", 1)
    message.rows.append(message.rows[0])
    got = cw.TriggerEvent.from_message(message)
    assert len(got.rows) == 2
    with pytest.raises(ValueError, match="2 rows"):
        _ = got.row


def test_rows_that_do_not_fit_their_columns_are_refused() -> None:
    short, broken = event("t", 1), event("t", 1)
    del short.rows[0].values[0]
    broken.rows[0].values[0] = b"\xff"
    for message in (short, broken):
        with pytest.raises(BadFrame):
            cw.TriggerEvent.from_message(message)


def test_the_memory_for_known_events_is_bounded() -> None:
    kind = TriggerEvents("t")
    for number in range(1, KNOWN_EVENTS + 100):
        assert len(list(kind.items(event("t", number), 0))) == 1
    assert len(kind._known) == KNOWN_EVENTS
    assert list(kind.items(event("t", KNOWN_EVENTS + 50), 0)) == []


def test_a_message_without_a_number_is_not_of_the_topic() -> None:
    message = event("t", 1)
    for sequence in ("", "0", "-1", "x", "1" * 30):
        message.context["sequence"] = sequence
        assert TriggerEvents("t").span(message) is None
    assert TriggerEvents("t").span(pb.Snapshot(sequence=1)) is None


# ---- in a notebook
def test_events_are_collected_and_a_trigger_shows_its_state(relay: TriggerRelay, client: cw.Client) -> None:
    relay.on_register = 3
    got = client.triggers.add(SQL, tickers=[TICKER], parameters={"limit": 7.5}, trigger_id="mine")
    assert [each.sequence for each in got.collect(2)] == [1, 2]
    assert [each.sequence for each in got.collect(5, timeout=0.2)] == [3]
    assert "price &gt; :limit" in got._repr_html_()
    assert "limit = 7.5" in got._repr_html_()
    client.close()
    assert "client is closed" in got._repr_html_()


def test_the_asyncio_twin_collects_too(relay: TriggerRelay) -> None:
    async def collected() -> list[int]:
        relay.on_register = 3
        async with aclient(relay) as c:
            got = await c.triggers.add(SQL, tickers=[TICKER], parameters={"limit": 7.5}, trigger_id="mine")
            return [each.sequence for count in (2, 5) for each in await got.collect(count, timeout=0.2)]

    assert asyncio.run(collected()) == [1, 2, 3]
