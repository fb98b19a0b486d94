"""The real driver over topics with hostile records: no stream stops, and valid work continues."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bus import Bus, Record, partition_of
from bus import topics as bus_topics
from bus.dead_letters import tallies
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.grid import SECOND
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import MINUTE, page, wait_for
from tests.flink_replacement_spark.running import Platform
from tests.flink_replacement_spark.test_followed_poison import BAR, EVENT, STREAM
from tests.hostile import records_like

START = 1_700_000_040 * SECOND
WILD = "A/B.TEST"
_TICKS = cw.TickBatch(
    ticker=WILD, first_sequence=1, timestamp=[START], price=[1.0], size=[1.0], side=[cw.BUY], trade_id=["1"],
    received_at=[START],
)  # fmt: skip
_PIECE = records.PieceDone(
    request_id="wild", job_id="wild-0", ticker=WILD, period_seconds=60, start_time=MINUTE, end_time=2 * MINUTE, rows=1,
    spans=[cw.Span(first_offset=0, last_offset=0)],
)  # fmt: skip
_DONE = records.RequestDone(request_id="wild", ticker=WILD, period_seconds=60, end_time=MINUTE, rows=1)
_QUESTION = records.ProofQuestion(
    request_id="wild", ticker=WILD, period_seconds=60, ranges=[cw.TimeRange(start_time=0, end_time=MINUTE)]
)
_CONTROL = records.TriggerControl(
    register=records.TriggerRegistration(trigger_id="wild", sql="SELECT price FROM ticks", tickers=[WILD], version=1)
)
#: The records sent to each topic that a stream of the driver reads.
TOPICS: Mapping[str, st.SearchStrategy[bytes]] = {
    bus_topics.HISTORY: records_like(page("wild-0", range(3), WILD)),
    bus_topics.HISTORY_OUTCOMES: records_like(
        records.HistoryOutcome(piece=_PIECE), records.HistoryOutcome(request=_DONE)
    ),
    bus_topics.PROOF_QUESTIONS: records_like(_QUESTION),
    bus_topics.TICKS: records_like(_TICKS),
    bus_topics.TICK_MARKS: records_like(
        records.TickMark(ticker=WILD, clock=records.Clock(exchange_time=START)),
        records.TickMark(ticker=WILD, wanted=records.Wanted(period_seconds=[60])),
    ),
    bus_topics.OHLC: records_like(BAR),
    bus_topics.TICK_ROWS: st.one_of(st.binary(max_size=80), st.integers(0, len(STREAM)).map(lambda cut: STREAM[:cut])),
    bus_topics.TRIGGER_EVENTS: records_like(EVENT),
    bus_topics.TRIGGER_CONTROLS: records_like(_CONTROL),
}


def is_drained(platform: Platform) -> bool | None:
    """Whether every reader of the driver has read all records, and reports no problem."""
    status = platform.driver.status()
    assert platform.driver.queries and all(query.is_running for query in platform.driver.queries)
    return True if not status.problems and not behind(platform.bus) else None


def behind(bus: Bus) -> list[str]:
    readers = {
        bus_topics.HISTORY_OUTCOMES: bus_topics.READER_HISTORY_WRITER,
        bus_topics.TICKS: bus_topics.READER_BAR_MAKER,
        bus_topics.TICK_MARKS: bus_topics.READER_BAR_MAKER,
    }
    return [
        topic
        for topic, reader in readers.items()
        if any(bus.holds(topic, reader).get(p, 0) < state.end for p, state in enumerate(bus.state(topic)))
    ]


def attack(platform: Platform, sent: Mapping[str, list[bytes]], round_number: int) -> None:
    """Send all of them, then a valid request and valid bars, which must be processed completely."""
    bus = platform.bus
    for topic, values in sent.items():
        count = bus.create_topic(topic)
        own = [
            Record(value, partition=partition_of(WILD.encode(), count) if n % 2 else n % count)
            for n, value in enumerate(values)
        ]
        if own:
            bus.publish(topic, own)
    ticker = f"GOOD{round_number}/X.TEST"
    name = f"sound-{ticker}"
    feed = platform.feed(ticker)
    feed.request(name, range(5))
    feed.send()
    final = platform.final(name)
    assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 5), final
    opened = START + round_number * 60 * MINUTE
    key = ticker.encode()
    covered = records.TickMark(ticker=ticker, covered=records.Covered(from_time=opened))
    bus.publish(bus_topics.TICK_MARKS, [Record(covered.SerializeToString(), partition_key=key)])
    trades = cw.TickBatch(
        ticker=ticker, first_sequence=1, timestamp=[opened, opened + MINUTE], price=[1.0, 2.0], size=[1.0, 1.0],
        side=[cw.BUY, cw.BUY], trade_id=["1", "2"], received_at=[opened, opened + MINUTE],
    )  # fmt: skip
    bus.publish(bus_topics.TICKS, [Record(trades.SerializeToString(), partition_key=key)])
    partition = partition_of(key, bus.partitions(bus_topics.OHLC))
    wait_for(lambda: has_bar(bus, partition, ticker, opened=opened), 90)
    wait_for(lambda: is_drained(platform), 90)


def has_bar(bus: Bus, partition: int, ticker: str, *, opened: int) -> bool | None:
    state = bus.state(bus_topics.OHLC)[partition]
    offset = state.first
    while offset < state.end:
        for record in bus.read(bus_topics.OHLC, partition, offset):
            offset = record.offset + 1
            try:
                bar = cw.OHLCV.FromString(record.value)
            except Exception:  # One of the hostile ones.
                continue
            if (bar.ticker, bar.open_time, bar.complete) == (ticker, opened, True):
                return True
    return None


class Sent(dict[str, list[bytes]]):
    """Hypothesis prints a failing example; by number here, since the records have hundreds of kilobytes."""

    def __repr__(self) -> str:
        return f"Sent({ {topic: len(values) for topic, values in self.items()} })"


SENT = st.fixed_dictionaries(
    {topic: st.lists(values, min_size=20, max_size=60) for topic, values in TOPICS.items()}
).map(Sent)
_ROUNDS = iter(range(1_000_000))


def fuzz(platform: Platform, examples: int) -> None:
    before = sum(tally.count for tally in tallies(platform.bus))

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # fmt: skip
    @given(SENT)
    def rounds(sent: Mapping[str, list[bytes]]) -> None:
        attack(platform, sent, next(_ROUNDS))

    rounds()
    assert sum(tally.count for tally in tallies(platform.bus)) > before


@pytest.mark.timeout(400)
def test_no_record_of_any_topic_stops_a_stream_of_the_driver(platform: Platform) -> None:
    fuzz(platform, 2)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_record_of_any_topic_stops_a_stream_of_the_driver_in_many_rounds(platform: Platform) -> None:
    fuzz(platform, 60)
