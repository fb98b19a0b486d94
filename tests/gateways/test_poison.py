"""No record and no row of a table, from any writer of the bus, stops a gateway."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus import topics
from bus.api import Bus, StoredRecord
from bus.connect import messaging_of
from bus.dead_letters import kept
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from gateways.kapacitor.function import OptionsRefused
from gateways.kapacitor.rules import registered_rule
from gateways.numaflow.message import response_of
from gateways.numaflow.partitions import RecordId
from gateways.numaflow.refusals import Refusals
from gateways.numaflow_sources.journal import TABLE as SOURCES
from gateways.numaflow_sources.journal import Journal
from gateways.records import as_published
from gateways.rocketmq.calls import sending
from gateways.rocketmq.clients.clients import TABLE_CLIENTS
from gateways.rocketmq.messages import messages
from gateways.tick_clocks import TABLE as MINUTES
from gateways.tick_clocks import TickClocks
from gateways.tick_storage import TickStorage
from protobuf import kafkapixy_pb2 as pixy
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from tests.fresh_bus import FreshBus
from tests.gateways.rocketmq.conftest import Start, bus, start  # noqa: F401
from tests.hostile import records_like
from tests.rounds import rounds

TICKER = "A/B.TEST"
NOON = 1_704_110_400 * 10**9
_TICK = cw.Tick(ticker=TICKER, trade_id="7", timestamp=NOON, price=1.0, size=1.0)
_BATCH = cw.TickBatch(ticker=TICKER, timestamp=[NOON], price=[1.0], size=[1.0], side=[1], trade_id=["1"])
_BATCH.received_at.append(NOON)
_VALUES = {
    topics.TICKS: records_like(_TICK, _BATCH),
    topics.OHLC: records_like(cw.OHLCV(ticker=TICKER, period_seconds=60, open_time=NOON, open=1.0, close=2.0)),
    topics.TRIGGER_EVENTS: records_like(
        ing.CEPTriggerEvent(trigger_id="t", timestamp=NOON, context={"ticker": TICKER})
    ),
    topics.NOTIFICATIONS: records_like(ing.HistoryReadyNotification(request_id="r", ticker=TICKER, row_count=5)),
    "orders": st.binary(max_size=60),
}
_OWN = (messages.MESSAGE_ID, messages.KIND, messages.TAG, messages.KEYS, messages.ORDER_HEADER, "topic", "x")
_HEADERS = st.dictionaries(
    st.one_of(st.sampled_from(_OWN), st.text(max_size=8)),
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(["{}", "[]", "\ud800", '{"born_ms":1e99,"keys":7}', '{"group":[],"gzip":1}']),
    ),
    max_size=4,
)


@st.composite
def stored(draw: st.DrawFn) -> StoredRecord:
    topic = draw(st.sampled_from(sorted(_VALUES)))
    return StoredRecord(
        topic=topic,
        partition=draw(st.integers(0, 3)),
        offset=draw(st.integers(0, 2**40)),
        timestamp_ms=NOON // 10**6,
        key=draw(st.none() | st.binary(max_size=20)),
        value=draw(_VALUES[topic]),
        headers=draw(_HEADERS),
        sequence=draw(st.none() | st.integers(0, 2**62)),
    )


@settings(deadline=None, max_examples=rounds(300))
@given(stored())
def test_every_record_of_any_topic_goes_out_through_every_gateway(record: StoredRecord) -> None:
    response = response_of(record, RecordId(record.partition, record.offset))
    assert response.FromString(response.SerializeToString()).result.payload == as_published(record)
    message = messages.from_record(record, definition.Resource(name=record.topic), "host")
    assert message.FromString(message.SerializeToString()).body == as_published(record)
    answer = pixy.ConsRs(key_value=record.key or b"", message=as_published(record))
    assert answer.FromString(answer.SerializeToString()) == answer


@pytest.fixture
def plain() -> Iterator[Bus]:
    made = FreshBus()
    yield made
    made.close()


@pytest.mark.parametrize("row", [b"", b"\xff", b"x y z", b"nan 1 c", b"1"])
def test_unrefused_records_are_not_held_back(plain: Bus, row: bytes) -> None:
    refusals = Refusals(plain, "group", "me")
    record = RecordId(0, 1)
    refusals.note({record: 1}, 60)
    plain.put("numaflow_refused/group", dict.fromkeys(plain.items("numaflow_refused/group"), row))
    assert Refusals(plain, "group", "me")._get([record]) == {}


@pytest.mark.parametrize("end", [b"", b"\xff", b"-1", b"9" * 5_000, "²".encode()])
def test_minutes_of_other_tickers_end_despite_invalid_rows(plain: Bus, end: bytes) -> None:
    now = NOON
    plain.put(MINUTES, {"X/Y.TEST": end, TICKER: b"%d" % NOON})
    plain.create_topic(topics.TICK_MARKS)
    clocks = TickClocks(plain, lambda: now)
    clocks.publish_due()
    now = NOON + 3_600 * 10**9
    assert clocks.publish_due() == 1
    assert TICKER not in plain.items(MINUTES)


def test_ticks_are_stored_despite_invalid_rows_of_other_tickers(plain: Bus) -> None:
    plain.create_topic(topics.TICK_MARKS)
    plain.put(topics.TABLE_WANTED, {TICKER: b"\xff"})
    TickStorage(plain).want([TICKER])
    ends = [state.end for state in plain.state(topics.TICK_MARKS)]
    assert sum(ends) == 1


def test_a_trigger_that_cannot_be_read_is_refused(plain: Bus) -> None:
    plain.put(topics.TABLE_TRIGGERS, {"t": b"\xff"})
    with pytest.raises(OptionsRefused, match="cannot be read"):
        registered_rule(plain, "t")


def test_a_source_starts_despite_invalid_rows(plain: Bus) -> None:
    plain.put(SOURCES, {"s/0": b"\xff", "s/1": b"\x12\x01\xff"})
    assert Journal(plain, "s", "orders", dead_letters="s_dead").begin()[1] == []
    assert {letter.reason for _, letter in kept(plain)} == {"not a NumaflowChunk"}


async def test_timed_messages_and_clients_are_served_despite_invalid_rows(start: Start, bus: Bus) -> None:  # noqa: F811
    queue = messaging_of(bus)
    queue.add(sending.QUEUE, "bad", b"\xff", delay_seconds=0.0)
    queue.prepare(sending.QUEUE, "half", b"\xfe", ask_after_seconds=0.0)
    bus.put(TABLE_CLIENTS, {"x": b"\xff", "y": b"{}", "z": b"[]"})
    client = await start()

    until = time.monotonic() + 20
    # A dead letter is stored before its message is taken from the queue.
    while (len(list(kept(bus))) < 2 or queue.next_due(sending.QUEUE) is not None) and time.monotonic() < until:
        await asyncio.sleep(0.05)
    assert {letter.key: letter.record for _, letter in kept(bus)} == {b"bad": b"\xff", b"half": b"\xfe"}
    assert queue.next_due(sending.QUEUE) is None
    assert queue.half(sending.QUEUE, "half") is None
    assert (await client.send("orders")).common.status.code == 0
    assert (await client.receive("orders", hold=5.0)).messages
