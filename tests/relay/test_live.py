"""Live topics over real sockets: the jobs that feed them, and what streams on them."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
import zmq

from bus import topics as bus_topics
from bus.api import Bus, Record, SequenceStamp
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BusUnavailable
from candlewright.wire.frames import encode
from protobuf import records_pb2 as rec
from relay.settings import RelayLimits
from tests.fresh_bus import FreshBus
from tests.relay.conftest import Start
from tests.relay.harness import Platform, Subscriber, finish

BTC = "BTC/USDT.BINANCE"
ETH = "ETH/USDT.BINANCE"
#: A client that leaves is removed at once; after a restart a client has a second to come back.
LIMITS = RelayLimits(linger_seconds=0.0, grace_seconds=1.0, unserved_retry_seconds=0.1)


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < until, "this never became true"
        pause.wait(0.01)


def requests(bus: Bus) -> list[ing.DataRequest]:
    records = (parsed(record.value) for record in bus.read(bus_topics.REQUESTS, 0, 0))
    return [record.data for record in records if record.HasField("data")]


def cancels(bus: Bus) -> list[str]:
    records = (parsed(record.value) for record in bus.read(bus_topics.REQUESTS, 0, 0))
    return [record.control.request_id for record in records if record.HasField("control")]


def parsed(value: bytes) -> rec.Request:
    return rec.Request.FromString(value)


def table(bus: Bus) -> dict[str, str]:
    return {topic: value.decode() for topic, value in bus.items(bus_topics.TABLE_SUBSCRIPTIONS).items()}


def put_ticks(bus: Bus, ticker: str, *trade_ids: str) -> None:
    count = len(trade_ids)
    batch = cw.TickBatch(
        ticker=ticker,
        timestamp=[1] * count,
        price=[1.5] * count,
        size=[1.0] * count,
        side=[cw.BUY] * count,
        trade_id=trade_ids,
        received_at=[2] * count,
    )
    key = ticker.encode()
    stamp = SequenceStamp(f"TICKS:{ticker}", count, tag=b"\x10")
    bus.publish(bus_topics.TICKS, [Record(batch.SerializeToString(), key=key, partition_key=key, sequence=stamp)])


def put_bar(bus: Bus, ticker: str, period_seconds: int, *, close: float) -> None:
    bar = cw.OHLCV(ticker=ticker, period_seconds=period_seconds, close=close, complete=True)
    key = ticker.encode()
    stamp = SequenceStamp(f"OHLC:{ticker}:{period_seconds}", tag=b"\x68")
    bus.publish(bus_topics.OHLC, [Record(bar.SerializeToString(), key=key, partition_key=key, sequence=stamp)])


def following(platform: Platform, *topics: str) -> Subscriber:
    """A subscriber of complete topics, once the relay reads the bus and has asked for all of them."""
    # A relay that starts streams what is published once it has seen where the bus ends.
    eventually(lambda: platform.relay.status().is_ready)
    subscriber = platform.subscriber(*topics)
    eventually(lambda: set(topics) <= set(table(platform.bus)))
    return subscriber


# ---- jobs


def test_the_first_subscriber_starts_a_job_and_the_last_one_ends_it(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    topic = f"OHLC:{BTC}:60"
    first, second = following(platform, topic), platform.ready_subscriber(topic)
    eventually(lambda: len(requests(platform.bus)) == 1)
    [request] = requests(platform.bus)
    assert request.request_id.startswith(f"subscription:{topic}:")
    assert (request.type, request.ticker) == (ing.DataRequest.REALTIME_TICKS, BTC)
    assert request.realtime == ing.RealtimeParams(include_ohlc=True, ohlc_period_seconds=[60])
    assert table(platform.bus) == {topic: request.request_id}

    first.socket.unsubscribe(topic)
    put_bar(platform.bus, BTC, 60, close=1.5)
    assert second.next()[1].close == 1.5
    assert cancels(platform.bus) == []
    second.socket.unsubscribe(topic)
    eventually(lambda: cancels(platform.bus) == [request.request_id])
    eventually(lambda: table(platform.bus) == {})


def cancelled_by_now(platform: Platform) -> list[str]:
    """Cancellations after the relay has seen everything that happened before this call."""
    marker = f"TICKS:MARK{uuid.uuid4().hex[:8].upper()}/USDT.BINANCE"
    subscriber = following(platform, marker)
    request_id = table(platform.bus)[marker]
    subscriber.socket.close()
    eventually(lambda: request_id in cancels(platform.bus))
    return [name for name in cancels(platform.bus) if "TICKS:MARK" not in name]


def test_a_client_that_subscribes_twice_and_dies_leaves_no_subscription(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    topic = f"TICKS:{BTC}"
    other = platform.ready_subscriber(topic)
    for _ in range(3):
        twice = platform.ready_subscriber(topic, topic, topic)
        twice.socket.unsubscribe(topic)
        twice.socket.close()
    again = platform.ready_subscriber(topic, topic)
    assert cancelled_by_now(platform) == []
    other.socket.close()
    again.socket.unsubscribe(topic)
    assert cancelled_by_now(platform) == []
    put_ticks(platform.bus, BTC, "1")
    assert again.next()[0] == topic
    again.socket.close()
    [request_id] = [request.request_id for request in requests(platform.bus) if request.ticker == BTC]
    eventually(lambda: request_id in cancels(platform.bus))
    eventually(lambda: topic not in table(platform.bus))


def test_a_subscriber_that_reconnects_in_time_keeps_its_job(start_relay: Start) -> None:
    platform = start_relay(limits=replace(LIMITS, linger_seconds=30.0))
    topic = f"TICKS:{BTC}"
    for _ in range(3):
        following(platform, topic).socket.close()
    last = following(platform, topic)
    marker = following(platform, f"TICKS:{ETH}")
    put_ticks(platform.bus, BTC, "1")
    last.next()
    marker.socket.close()
    assert [request.ticker for request in requests(platform.bus)] == [BTC, ETH]
    assert cancels(platform.bus) == []


def test_prefixes_and_invalid_topics_start_nothing(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    platform.subscriber("", "TICKS:", "OHLC:", f"OHLC:{BTC}:", f"OHLC:{BTC}:0", "TICKS:BTC", "TICKS:A/B.NOWHERE")
    following(platform, f"TICKS:{BTC}")
    eventually(lambda: len(requests(platform.bus)) == 1)
    assert list(table(platform.bus)) == [f"TICKS:{BTC}"]


def test_a_topic_is_served_once_its_venue_comes(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    topic = "TICKS:A/B.NOWHERE"
    platform.subscriber(topic)
    following(platform, f"TICKS:{BTC}")
    eventually(lambda: topic not in table(platform.bus))
    platform.bus.put(bus_topics.TABLE_VENUES, {"NOWHERE": cw.Venue(venue="NOWHERE").SerializeToString()})
    eventually(lambda: topic in table(platform.bus))


def test_a_restarted_relay_keeps_wanted_jobs_and_cancels_the_others(start_relay: Start) -> None:
    first = start_relay(limits=LIMITS)
    stays, leaves = f"TICKS:{BTC}", f"TICKS:{ETH}"
    subscriber = following(first, stays)
    gone = following(first, leaves)
    known = table(first.bus)
    address = first.relay.notifications_address
    first.relay.close()
    gone.socket.close()
    second = start_relay(first.bus, limits=LIMITS, notifications_bind=address)

    def only_the_other_is_cancelled() -> bool:
        # A socket sends its subscriptions again while its owner waits for messages.
        subscriber.socket.poll(10)
        return cancels(second.bus) == [known[leaves]]

    eventually(only_the_other_is_cancelled)
    eventually(lambda: table(second.bus) == {stays: known[stays]})
    assert len(requests(second.bus)) == 2
    put_ticks(second.bus, BTC, "1")
    assert subscriber.next()[0] == stays


def test_a_cancellation_that_a_relay_did_not_finish_is_finished_by_the_next(start_relay: Start) -> None:
    bus = FreshBus()
    topic = f"TICKS:{BTC}"
    bus.put(bus_topics.TABLE_SUBSCRIPTIONS, {topic: b"-subscription:old"})
    platform = start_relay(bus, limits=LIMITS)
    platform.subscriber(topic)
    eventually(lambda: len(requests(bus)) == 1 and cancels(bus) == ["subscription:old"])
    assert table(bus) == {topic: requests(bus)[0].request_id}


class FailingBus(FreshBus):
    """Fails some calls after they were carried out, which is the worst time."""

    failures = 0

    def put(self, table: str, *args: object, **kwargs: object) -> None:
        super().put(table, *args, **kwargs)  # type: ignore[arg-type]
        if table == bus_topics.TABLE_SUBSCRIPTIONS and self.failures:
            self.failures -= 1
            raise BusUnavailable("down")


def test_an_outage_between_table_and_request_leaves_one_job(start_relay: Start) -> None:
    bus = FailingBus()
    bus.failures = 2
    platform = start_relay(bus, limits=LIMITS)
    topic = f"TICKS:{BTC}"
    subscriber = following(platform, topic)
    eventually(lambda: len(requests(bus)) == 1)
    bus.failures = 1
    subscriber.socket.unsubscribe(topic)
    eventually(lambda: cancels(bus) == [requests(bus)[0].request_id])
    assert len(requests(bus)) == 1


# ---- what streams


def test_ticks_carry_the_numbers_of_the_bus(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    put_ticks(platform.bus, BTC, "before")
    subscriber = following(platform, f"TICKS:{BTC}")
    put_ticks(platform.bus, ETH, "other")
    put_ticks(platform.bus, BTC, "1", "2", "3")
    put_ticks(platform.bus, BTC, "4")
    found = []
    while not found or found[-1][1].trade_id[-1] != "4":
        found.append(subscriber.next())
    found = [entry for entry in found if entry[1].first_sequence > 1]
    assert [(name, one.first_sequence, list(one.trade_id)) for name, one in found] == [
        (f"TICKS:{BTC}", 2, ["1", "2", "3"]),
        (f"TICKS:{BTC}", 5, ["4"]),
    ]


@pytest.mark.parametrize("tag", [b"", b"\x10"])
def test_a_single_tick_of_a_gateway_is_a_batch_of_one(start_relay: Start, tag: bytes) -> None:
    platform = start_relay(limits=LIMITS)
    subscriber = following(platform, f"TICKS:{BTC}")
    tick = cw.Tick(ticker=BTC, trade_id="7", timestamp=5, price=2.5, size=3.0, side=cw.SELL, received_at=6)
    stamp = SequenceStamp(f"TICKS:{BTC}", tag=tag)
    platform.bus.publish(bus_topics.TICKS, [Record(tick.SerializeToString(), key=BTC.encode(), sequence=stamp)])
    expected = cw.TickBatch(
        ticker=BTC,
        first_sequence=1,
        timestamp=[5],
        price=[2.5],
        size=[3.0],
        side=[cw.SELL],
        trade_id=["7"],
        received_at=[6],
    )
    assert subscriber.next() == (f"TICKS:{BTC}", expected)
    client = platform.client()
    record = client.ask(cw.TopicReplay(topic=f"TICKS:{BTC}", from_sequence=1))
    assert (record.body[:1], cw.TickBatch.FromString(record.body[1:])) == (b"\x42", expected)


def test_bars_go_to_their_period_and_to_triggers_on_all_periods(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    minutes = following(platform, f"OHLC:{BTC}:60")
    every = platform.ready_subscriber(f"OHLC:{BTC}:")
    for number in range(3):
        put_bar(platform.bus, BTC, 60, close=float(number))
        put_bar(platform.bus, BTC, 3_600, close=float(number))
        put_bar(platform.bus, ETH, 60, close=float(number))
    assert [minutes.next()[1].sequence for _ in range(3)] == [1, 2, 3]
    got = [every.next() for _ in range(6)]
    assert [(name, bar.sequence) for name, bar in got] == [
        (f"OHLC:{BTC}:{period}", number) for number in (1, 2, 3) for period in (60, 3_600)
    ]
    assert every.drain() == []


def test_bad_records_do_not_stop_later_ones(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    subscriber = following(platform, f"TICKS:{BTC}")
    key = BTC.encode()
    stamp = SequenceStamp(f"TICKS:{BTC}")
    unnumbered = cw.TickBatch(ticker=BTC, timestamp=[1]).SerializeToString()
    platform.bus.publish(
        bus_topics.TICKS,
        [
            Record(b"\xff\xff", key=key, sequence=stamp),
            Record(unnumbered, key=key),
            Record(b"", key=key, sequence=stamp),
        ],
    )
    put_ticks(platform.bus, BTC, "1")
    assert subscriber.next()[1].first_sequence == 3


def test_a_restarted_relay_continues_at_the_end_and_replays_missing_messages(start_relay: Start) -> None:
    first = start_relay(limits=LIMITS)
    topic = f"TICKS:{BTC}"
    subscriber = following(first, topic)
    put_ticks(first.bus, BTC, "1")
    assert subscriber.next()[1].first_sequence == 1
    address = first.relay.notifications_address
    first.relay.close()
    put_ticks(first.bus, BTC, "2", "3")
    put_ticks(first.bus, BTC, "4")
    second = start_relay(first.bus, limits=LIMITS, notifications_bind=address)
    # The second relay has the subscription once the marker comes back with it.
    subscriber.socket.subscribe("HISTORY_READY:back")
    finish(first.bus, "back")
    assert subscriber.next()[0] == "HISTORY_READY:back"
    put_ticks(second.bus, BTC, "5")
    assert subscriber.next()[1].first_sequence == 5
    client = second.client()
    client.socket.send_multipart(encode(cw.TopicReplay(topic=topic, from_sequence=2, to_sequence=4)))
    got = [client.answer() for _ in range(2)]
    assert [(one.sequence, one.is_final) for one in got] == [(2, False), (4, True)]
    assert list(cw.TickBatch.FromString(got[0].body[1:]).trade_id) == ["2", "3"]


def test_bars_are_replayed_and_trimmed_ones_are_an_error(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    topic = f"OHLC:{BTC}:60"
    for number in range(5):
        put_bar(platform.bus, BTC, 60, close=float(number))
        put_bar(platform.bus, BTC, 300, close=float(number))
    client = platform.client()
    client.socket.send_multipart(encode(cw.TopicReplay(topic=topic, from_sequence=2, to_sequence=4)))
    got = [client.answer() for _ in range(3)]
    assert [cw.OHLCV.FromString(one.body[1:]).close for one in got] == [1.0, 2.0, 3.0]
    platform.bus.trim(bus_topics.OHLC, keep_seconds=1e9, keep_bytes=200)
    assert client.ask(cw.TopicReplay(topic=topic, from_sequence=1)).code == "NOT_KEPT"
    client.socket.send_multipart(encode(cw.TopicReplay(topic=topic, from_sequence=5)))
    assert client.answer().is_final
    assert client.ask(cw.TopicReplay(topic=f"OHLC:{BTC}:900", from_sequence=1)).code == "NOT_KEPT"


def test_a_slow_subscriber_sees_its_gap_and_never_slows_a_quick_one(start_relay: Start) -> None:
    platform = start_relay(limits=replace(LIMITS, subscriber_queue=500))
    topic = f"TICKS:{BTC}"
    slow, quick = platform.subscriber(topic), platform.subscriber(topic)
    marker = platform.ready_subscriber(topic)
    marker.socket.close()
    eventually(lambda: topic in table(platform.bus))
    fat = "x" * 6_000
    count, seen = 4_000, 0
    for _ in range(count // 200):
        for _ in range(200):
            put_ticks(platform.bus, BTC, fat)
        for _ in range(200):
            seen += 1
            assert quick.next()[1].first_sequence == seen
    slow.socket.rcvtimeo = 500
    numbers = []
    try:
        while True:
            numbers.append(slow.next()[1].first_sequence)
    except zmq.Again:
        pass
    assert numbers == sorted(set(numbers))
    assert len(numbers) < count
    missing = next(number for number in range(1, count + 1) if number not in set(numbers))
    client = platform.client()
    record = client.ask(cw.TopicReplay(topic=topic, from_sequence=missing, to_sequence=missing))
    assert (record.sequence, record.is_final) == (missing, True)


def test_topics_without_subscribers_are_not_read(start_relay: Start) -> None:
    class CountingBus(FreshBus):
        reads = 0

        def read(self, topic: str, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            self.reads += topic in (bus_topics.TICKS, bus_topics.OHLC)
            return super().read(topic, *args, **kwargs)  # type: ignore[arg-type]

    bus = CountingBus()
    platform = start_relay(bus, limits=LIMITS)
    watcher = platform.ready_subscriber("HISTORY_READY:", "SNAPSHOT:")
    for number in range(100):
        put_ticks(bus, BTC, str(number))
    assert watcher.drain() == []
    assert bus.reads == 0
    subscriber = following(platform, f"TICKS:{BTC}")
    put_ticks(bus, BTC, "next")
    while list(subscriber.next()[1].trade_id) != ["next"]:
        pass
    assert bus.reads > 0


def test_the_state_of_a_failing_live_request_is_shown_to_clients(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    progress = cw.RequestState(request_id="r", state="queued")
    progress.notification.error_message = "UNKNOWN_TICKER: not listed"
    platform.bus.put(bus_topics.TABLE_REQUEST_STATES, {"r": progress.SerializeToString()})
    assert platform.client().ask(cw.RequestStateQuery(request_id="r")) == progress


# ---- wrong tickers


def list_markets(bus: Bus, *symbols: str, venue: str = "BINANCE") -> None:
    record = cw.Venue(venue=venue, markets=[cw.Market(symbol=symbol) for symbol in symbols], updated_at=time.time_ns())
    bus.put(bus_topics.TABLE_VENUES, {venue: record.SerializeToString()})


@pytest.mark.parametrize("topic", ["TICKS:BTC/USDX.BINANCE", "OHLC:BTC/USDX.BINANCE:60", "TICKS:BTCUSDX.BINANCE"])
def test_a_topic_without_a_market_reports_it_to_each_subscriber(start_relay: Start, topic: str) -> None:
    platform = start_relay(limits=LIMITS)
    list_markets(platform.bus, "BTC/USDT", "ETH/USDT")
    for _ in range(2):
        told, error = platform.subscriber(topic).next()
        assert (told, error.code, error.topic) == (topic, "UNKNOWN_TICKER", topic)
        assert "did you mean BTC/USDT.BINANCE?" in error.text


def test_a_ticker_that_is_listed_later_is_delivered_on_the_existing_subscription(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    list_markets(platform.bus, "BTC/USDT")
    topic = "TICKS:NEW/USDT.BINANCE"
    subscriber = following(platform, topic)
    assert subscriber.next()[1].code == "UNKNOWN_TICKER"
    assert [request.ticker for request in requests(platform.bus)] == ["NEW/USDT.BINANCE"]
    put_ticks(platform.bus, "NEW/USDT.BINANCE", "1")
    assert list(subscriber.next()[1].trade_id) == ["1"]


def test_earlier_subscribers_are_notified_once_the_venue_reports_its_markets(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    subscriber = following(platform, "TICKS:BTC/USDX.BINANCE")
    list_markets(platform.bus, "BTC/USDT")
    assert subscriber.next()[1].code == "UNKNOWN_TICKER"


def test_tickers_that_are_listed_or_come_by_a_gateway_are_not_an_error(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    list_markets(platform.bus, "BTC/USDT")
    for ticker in ("HOUSE/USDT.BINANCE", "HOUSE/USDT.MINE"):
        put_ticks(platform.bus, ticker, "1")
    wrong = "TICKS:BTC/USDX.BINANCE"
    mine = ["TICKS:HOUSE/USDT.BINANCE", "OHLC:HOUSE/USDT.BINANCE:60", "TICKS:HOUSE/USDT.MINE"]
    subscriber = platform.subscriber(f"TICKS:{BTC}", f"OHLC:{BTC}:", "TICKS:BTC", "OHLC:", *mine, wrong)
    while (message := subscriber.next())[0] != wrong:
        assert not isinstance(message[1], cw.Error)
    assert wrong not in (rest := subscriber.drain())
    assert set(rest) <= set(mine)


def test_an_unknown_venue_is_reported_unless_a_gateway_publishes_it_meanwhile(start_relay: Start) -> None:
    platform = start_relay(limits=LIMITS)
    topic, error = platform.subscriber("TICKS:BTC/USDT.BINANCEE").next()
    assert (topic, error.code) == ("TICKS:BTC/USDT.BINANCEE", "UNKNOWN_TICKER")
    assert "did you mean BTC/USDT.BINANCE" in error.text
