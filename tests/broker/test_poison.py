"""No record of the topics that the broker reads, from any sender, stops it, not even when it restarts."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.events import ClockTicked, Kind, SlotOffered
from broker.journal import journal
from broker.journal.batch import Gatherer
from broker.journal.writer import TABLE_REALTIME
from broker.metrics import DEAD_LETTERS
from broker.state import BrokerState
from bus import topics
from bus.api import Record
from bus.dead_letters import ALARM_SECONDS, Letter, alarms, kept, put_aside, tallies
from candlewright.wire import ingestor_pb2 as ing
from core.settings import BrokerSettings
from protobuf import records_pb2 as rec
from tests.broker.conftest import Stage
from tests.broker.harness import MINUTE, START, eventually, minutes
from tests.fresh_bus import FreshBus
from tests.hostile import records_like
from tests.rounds import rounds

ERROR = ing.HistoryReadyNotification.ERROR
TICKER = "A/B.TEST"


def test_a_request_that_cannot_be_read_is_put_aside_and_ends_as_an_error(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    stage.bus.publish(topics.REQUESTS, [Record(b"\xff\xff", key=b"lost")])
    end = stage.client.end("lost")
    assert end.status == ERROR and "cannot be read" in end.error_message
    ((_, letter),) = kept(stage.bus)
    assert (letter.part, letter.topic, letter.offset, letter.reason) == ("broker", topics.REQUESTS, 0, "not a Request")
    peer.offer()
    request_id = stage.client.submit(rows=3)
    peer.answer(peer.job(), minutes(START, START + 3 * MINUTE))
    assert stage.client.end(request_id).rows == 3


def test_records_put_aside_by_any_part_are_a_warning_with_count_and_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.journal.feed.LETTERS_SECONDS", 0.1)
    monkeypatch.setattr("broker.journal.feed.CHECK_SECONDS", 0.1)
    server = stage.broker().server
    put_aside(stage.bus, "spark", [Letter(topics.TICKS, b"%d" % number, f"bad {number}") for number in range(3)])
    eventually(lambda: len(server.status().warnings) == 1)
    status = server.status()
    assert "spark has put aside 3 records of ticks, the last 0 min ago (bad 2)" in status.warnings[0]
    assert status.problems == () and status.is_ready
    (tally,) = status.details["dead_letters"]
    assert (tally["part"], tally["topic"], tally["kind"], tally["count"]) == ("spark", "ticks", "bad …", 3)
    eventually(lambda: DEAD_LETTERS.labels("spark", "ticks", "bad …")._value.get() == 3)
    (now,) = tallies(stage.bus)
    assert alarms([now], now.newest.at + int(ALARM_SECONDS * 1e9)) == []


def test_a_starting_broker_skips_unreadable_records(stage: Stage) -> None:
    broker = stage.broker()
    broker.stop()
    stage.bus.put(TABLE_REALTIME, {"x": b"\xff"})
    stage.bus.publish(topics.HISTORY_OUTCOMES, [Record(b"\xff\xff", key=b"k")])
    wild = rec.HistoryOutcome(piece=rec.PieceDone(request_id="r", job_id="j", rows=2**64 - 1))
    stage.bus.publish(topics.HISTORY_OUTCOMES, [Record(wild.SerializeToString(), key=b"k")])
    stage.bus.publish(topics.REQUESTS, [Record(b"\xff\xff", key=b"lost")])
    asked = ing.DataRequest(request_id="s", type=ing.DataRequest.TICKER_SNAPSHOT, ticker=TICKER)
    stage.bus.publish(topics.REQUESTS, [Record(rec.Request(data=asked).SerializeToString(), key=b"s")])
    stage.bus.put(topics.TABLE_REQUEST_STATES, {"s": b"\xff"})
    broker = stage.broker()
    assert "lost" in broker.server.state.decided
    peer = stage.peer(broker)
    peer.offer()
    assert peer.job().request_id == "s"


def test_a_realtime_request_with_an_impossible_period_is_put_aside() -> None:
    bus = FreshBus()
    bus.create_topic(topics.REQUESTS, 1)
    realtime = ing.RealtimeParams(include_ohlc=True, ohlc_period_seconds=[0])
    asked = ing.DataRequest(request_id="r", type=ing.DataRequest.REALTIME_TICKS, ticker=TICKER, realtime=realtime)
    bus.publish(topics.REQUESTS, [Record(rec.Request(data=asked).SerializeToString(), key=b"")])
    (record,) = bus.read(topics.REQUESTS, 0, 0)
    assert journal.decode(bus, record) is None
    ((_, letter),) = kept(bus)
    assert letter.reason == "a period is not between a second and a week"


_REQUESTS = records_like(
    rec.Request(
        historical=ing.SubmitHistoricalRequest(
            request_id="r", ticker=TICKER, period_seconds=60, start_time=START, end_time=START + 9 * MINUTE, limit=5
        ),
        accepted_at=START,
        deadline=START + MINUTE,
    ),
    rec.Request(
        data=ing.DataRequest(
            request_id="live",
            type=ing.DataRequest.REALTIME_TICKS,
            ticker=TICKER,
            realtime=ing.RealtimeParams(include_ohlc=True, ohlc_period_seconds=[60], include_ticks=True),
        )
    ),
    rec.Request(data=ing.DataRequest(request_id="s", type=ing.DataRequest.TICKER_SNAPSHOT, ticker=TICKER)),
    rec.Request(control=ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id="r")),
)
_OUTCOMES = records_like(
    rec.HistoryOutcome(
        piece=rec.PieceDone(
            request_id="r", job_id="j", ticker=TICKER, period_seconds=60, start_time=START, end_time=START + MINUTE
        )
    ),
    rec.HistoryOutcome(request=rec.RequestDone(request_id="r", ticker=TICKER, period_seconds=60)),
)
_FINALS = records_like(ing.HistoryReadyNotification(request_id="r", ticker=TICKER, row_count=5))


@pytest.fixture
def bus() -> FreshBus:
    return FreshBus()


@settings(deadline=None, max_examples=rounds(60), suppress_health_check=list(HealthCheck))
@given(
    requests=st.lists(_REQUESTS, max_size=20),
    outcomes=st.lists(_OUTCOMES, max_size=8),
    finals=st.lists(_FINALS, max_size=8),
)
def test_no_record_stops_the_broker_or_keeps_the_next_one_from_starting(
    bus: FreshBus, requests: list[bytes], outcomes: list[bytes], finals: list[bytes]
) -> None:
    bus.create_topic(topics.REQUESTS, 1)
    for topic, values in (
        (topics.REQUESTS, requests),
        (topics.HISTORY_OUTCOMES, outcomes),
        (topics.NOTIFICATIONS, finals),
    ):
        bus.publish(topic, [Record(value, key=TICKER.encode()) for value in values])
    replayed = journal.replay(bus, 0.0)
    numbers = iter(range(10_000))
    state = BrokerState(BrokerSettings(), lambda: f"{next(numbers):032x}", 0.0, wall_ns=START)
    gatherer = Gatherer()
    gatherer.add(state.handle_all(replayed.events))
    for partition, kept_now in enumerate(bus.state(topics.NOTIFICATIONS)):
        for record in bus.read(topics.NOTIFICATIONS, partition, kept_now.first):
            if (final := journal.final_of(record)) is not None:
                gatherer.add(state.handle(final))
    for number in range(4):
        gatherer.add(state.handle(SlotOffered(b"p", ("TEST",), (Kind.HISTORICAL, Kind.REALTIME), float(number))))
    gatherer.add(state.handle(ClockTicked(5.0, START + 100 * MINUTE)))
    gatherer.take_leases()
    gatherer.take_results()
