from collections.abc import Sequence

import pytest
import zmq

from bus import topics as bus_topics
from bus.api import Record, SequenceStamp
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.frames import encode
from relay.live.topic_replay import NotKept, replay
from relay.settings import RelayLimits
from tests.fresh_bus import FreshBus
from tests.relay.harness import Platform

TICKER = "BTC/USDT.BINANCE"
TOPIC = f"SNAPSHOT:{TICKER}"


def put_snapshots(bus: FreshBus, ticker: str, count: int) -> None:
    stamp = SequenceStamp(f"SNAPSHOT:{ticker}", tag=b"\x58")
    for number in range(count):
        value = cw.Snapshot(ticker=ticker, last=number / 2).SerializeToString()
        bus.publish(bus_topics.SNAPSHOTS, [Record(value, key=b"same", sequence=stamp)])


def put_ticks(bus: FreshBus, sizes: Sequence[int]) -> None:
    for size in sizes:
        value = cw.TickBatch(ticker=TICKER, timestamp=[1] * size).SerializeToString()
        stamp = SequenceStamp(f"TICKS:{TICKER}", count=size, tag=b"\x10")
        bus.publish(bus_topics.TICKS, [Record(value, key=b"same", sequence=stamp)])


def ask(bus: FreshBus, topic: str, first: int, *, last: int, **limits: int) -> list[cw.TopicRecord]:
    query = cw.TopicReplay(topic=topic, from_sequence=first, to_sequence=last)
    return replay(bus, query, RelayLimits(**limits))


@pytest.fixture
def bus() -> FreshBus:
    bus = FreshBus()
    for _ in range(5):
        put_snapshots(bus, TICKER, 2)
        put_snapshots(bus, "ETH/USDT.BINANCE", 1)
    return bus


@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [(1, 10, range(1, 11)), (3, 5, range(3, 6)), (7, 0, range(7, 11)), (0, 2, range(1, 3)), (9, 99, range(9, 11))],
)
def test_the_numbers_requested_come_in_order(bus: FreshBus, first: int, last: int, wanted: range) -> None:
    records = ask(bus, TOPIC, first, last=last)
    assert [record.sequence for record in records] == list(wanted)
    assert [record.is_final for record in records] == [False] * (len(wanted) - 1) + [True]
    for record in records:
        assert record.topic == TOPIC
        assert record.body[0] == 0x44
        snapshot = cw.Snapshot.FromString(record.body[1:])
        last = (record.sequence - 1) % 2 / 2
        assert (snapshot.ticker, snapshot.sequence, snapshot.last) == (TICKER, record.sequence, last)


def test_batches_that_hold_the_numbers_come_whole(bus: FreshBus) -> None:
    put_ticks(bus, [3, 1, 4, 2])
    records = ask(bus, f"TICKS:{TICKER}", 3, last=5)
    assert [record.sequence for record in records] == [1, 4, 5]
    assert [len(cw.TickBatch.FromString(record.body[1:]).timestamp) for record in records] == [3, 1, 4]
    written = [record for p in range(bus.partitions(bus_topics.TICKS)) for record in bus.read(bus_topics.TICKS, p, 0)]
    assert [record.published_at for record in records] == [each.timestamp_ms * 1_000_000 for each in written[:3]]


def test_a_replay_of_expired_records_is_an_error(bus: FreshBus) -> None:
    bus.trim(bus_topics.SNAPSHOTS, keep_seconds=1e9, keep_bytes=1)
    with pytest.raises(NotKept, match=r"Number 1 of SNAPSHOT:BTC/USDT.BINANCE is no longer kept\."):
        ask(bus, TOPIC, 1, last=2)


@pytest.mark.parametrize(
    ("topic", "first", "last", "sentence"),
    [
        (TOPIC, 11, 0, "has no number 11 yet; the newest is 10"),
        ("SNAPSHOT:NEW/COIN.BINANCE", 1, 0, "has no number 1 yet; the newest is 0"),
        (TOPIC, 5, 4, "from_sequence 5 is after to_sequence 4"),
        ("RESPONSE:me", 1, 0, "is not a numbered topic"),
        ("SNAPSHOT:", 1, 0, "is not a numbered topic"),
        ("", 1, 0, "is not a numbered topic"),
    ],
)
def test_an_impossible_replay_is_refused(bus: FreshBus, topic: str, first: int, last: int, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        ask(bus, topic, first, last=last)


def test_an_answer_has_bounds(bus: FreshBus) -> None:
    assert len(ask(bus, TOPIC, 1, last=10, max_topic_records=10)) == 10
    with pytest.raises(InvalidRequest, match="ask for fewer"):
        ask(bus, TOPIC, 1, last=10, max_topic_records=9)
    with pytest.raises(InvalidRequest, match="ask for fewer"):
        ask(bus, TOPIC, 1, last=10, max_topic_bytes_read=50)


def test_a_client_gets_the_records_or_an_error(platform: Platform) -> None:
    ticker = "REPLAY/USDT.BINANCE"
    assert isinstance(platform.bus, FreshBus)
    put_snapshots(platform.bus, ticker, 300)
    client = platform.client()
    client.socket.send_multipart(encode(cw.TopicReplay(topic=f"SNAPSHOT:{ticker}", from_sequence=1)))
    answers = [client.answer() for _ in range(300)]
    assert [answer.sequence for answer in answers] == list(range(1, 301))
    beyond = client.ask(cw.TopicReplay(topic=f"SNAPSHOT:{ticker}", from_sequence=301))
    assert (beyond.code, beyond.newest_sequence) == ("NOT_KEPT", 300)
    nothing = client.ask(cw.TopicReplay(topic="TRIGGER:never fired", from_sequence=1))
    assert nothing.HasField("newest_sequence")
    assert nothing.newest_sequence == 0
    assert client.ask(cw.TopicReplay(topic="HISTORY_READY:r", from_sequence=1)).code == "INVALID"


def test_a_req_gets_one_record_or_the_advice_to_use_a_dealer(platform: Platform) -> None:
    ticker = "REQ/USDT.BINANCE"
    assert isinstance(platform.bus, FreshBus)
    put_snapshots(platform.bus, ticker, 3)
    req = platform.client(zmq.REQ)
    one = req.ask(cw.TopicReplay(topic=f"SNAPSHOT:{ticker}", from_sequence=2, to_sequence=2))
    assert (one.sequence, one.is_final) == (2, True)
    assert req.ask(cw.TopicReplay(topic=f"SNAPSHOT:{ticker}", from_sequence=1)).code == "USE_DEALER"
