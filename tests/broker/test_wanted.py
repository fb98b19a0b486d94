"""What the pipeline is notified of: realtime jobs that cannot run, venues of foreign ingestors, and old records."""

from functools import partial
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from broker.commands import Command, PublishMark, PutVenue
from broker.events import (
    CancelAsked,
    ClockTicked,
    ConnectionLost,
    Demand,
    Kind,
    MarksRefused,
    RealtimeAccepted,
    SlotOffered,
    VenueLearned,
    WantedFound,
)
from broker.journal.retention import Retention, Trimmer
from broker.journal.writer import TABLE_WANTED
from broker.state import BrokerState
from bus import dead_letters, topics
from bus.api import Record, SequenceStamp
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BusFull
from core.settings import BrokerSettings, RelaySettings, Settings
from protobuf import records_pb2 as rec
from tests.broker.conftest import Stage
from tests.broker.harness import eventually
from tests.broker.test_live import TICKER, is_done, realtime, state_of, stored
from tests.fresh_bus import FreshBus

Wanted = tuple[bool, list[int]]


def bars(request_id: str, *periods: int, ticker: str = TICKER) -> ing.DataRequest:
    params = ing.RealtimeParams(include_ohlc=True, ohlc_period_seconds=periods)
    kind = ing.DataRequest.REALTIME_TICKS
    return ing.DataRequest(request_id=request_id, type=kind, ticker=ticker, realtime=params)


def marks(stage: Stage, ticker: str = TICKER) -> list[Wanted]:
    found = [rec.TickMark.FromString(value) for value in stored(stage, topics.TICK_MARKS)]
    assert all(mark.WhichOneof("body") == "wanted" for mark in found)
    return [(mark.wanted.ticks, list(mark.wanted.period_seconds)) for mark in found if mark.ticker == ticker]


def last_mark(stage: Stage) -> Wanted | None:
    found = marks(stage)
    return found[-1] if found else None


def has_told(stage: Stage, wanted: Wanted) -> bool:
    return last_mark(stage) == wanted


def test_every_change_of_the_combined_needs_is_marked_once(stage: Stage) -> None:
    stage.broker()
    ask, cancel = stage.client.ask, stage.client.cancel
    expected: list[Wanted] = []

    def then(*wanted: Wanted) -> None:
        expected.extend(wanted)
        eventually(lambda: len(marks(stage)) >= len(expected))
        assert marks(stage) == expected

    ask(bars("minutes", 60))
    then((False, [60]))
    ask(bars("more", 300, 60))
    then((False, [60, 300]))
    ask(realtime("ticks"))
    then((True, [60, 300]))
    ask(bars("same", 300))
    cancel("more")
    eventually(partial(is_done, stage, "more"))
    assert marks(stage) == expected
    cancel("same")
    then((True, [60]))
    cancel("minutes")
    then((True, []))
    cancel("ticks")
    then((False, []))
    eventually(lambda: stage.bus.items(TABLE_WANTED) == {})


def test_a_subscriber_of_ticks_alone_does_not_fill_the_table(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME)
    request_id = f"subscription:TICKS:{TICKER}:1"
    stage.client.ask(realtime(request_id))
    assert peer.job().realtime.include_ticks
    assert marks(stage) == []
    stage.client.ask(realtime("own"))
    eventually(partial(has_told, stage, (True, [])))
    stage.client.cancel("own")
    eventually(partial(has_told, stage, (False, [])))
    assert peer.receive(0.2) is None


def test_periods_without_include_ohlc_are_not_wanted(stage: Stage) -> None:
    stage.broker()
    asked = realtime("r")
    asked.realtime.ohlc_period_seconds.append(60)
    stage.client.ask(asked)
    eventually(partial(has_told, stage, (True, [])))


def test_the_mark_is_on_the_bus_before_the_job_leaves(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME)
    stage.client.ask(bars("r", 60))
    assert list(peer.job().realtime.ohlc_period_seconds) == [60]
    assert marks(stage) == [(False, [60])]
    key = TICKER.encode()
    partitions = [
        partition
        for partition in range(stage.bus.partitions(topics.TICK_MARKS))
        for record in stage.bus.read(topics.TICK_MARKS, partition, 0)
        if record.key == key
    ]
    own = stage.bus.publish(topics.TICKS, [Record(b"", key=key, partition_key=key)])
    assert partitions == [own[0].partition]


def test_a_mark_names_the_trade_after_which_it_holds(stage: Stage) -> None:
    key = TICKER.encode()
    stamp = SequenceStamp(f"TICKS:{TICKER}", 7)
    stage.bus.publish(topics.TICKS, [Record(b"", key=key, partition_key=key, sequence=stamp)])
    stage.broker()
    stage.client.ask(bars("r", 60))
    eventually(partial(has_told, stage, (False, [60])))
    (mark,) = [rec.TickMark.FromString(value) for value in stored(stage, topics.TICK_MARKS)]
    assert (mark.ticker, mark.after_sequence, list(mark.wanted.period_seconds)) == (TICKER, 7, [60])


def test_a_restarted_broker_repeats_the_combined_needs(stage: Stage) -> None:
    broker = stage.broker()
    stage.client.ask(bars("stays", 60))
    stage.client.ask(realtime("stays too"))
    eventually(partial(has_told, stage, (True, [60])))
    broker.stop()
    stage.client.cancel("stays too")
    stage.client.ask(bars("comes", 300))
    stage.broker()
    eventually(partial(has_told, stage, (False, [60, 300])))


def test_a_restarted_broker_cancels_requests_without_a_client(stage: Stage) -> None:
    """The state is that after a crash between forgetting the last request and notifying the pipeline."""
    stage.bus.put(TABLE_WANTED, {TICKER: rec.Wanted(ticks=True).SerializeToString()})
    stage.broker()
    eventually(partial(has_told, stage, (False, [])))
    eventually(lambda: stage.bus.items(TABLE_WANTED) == {})


class FullBus(FreshBus):
    is_full = True

    def publish(self, topic: str, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        if topic == topics.TICK_MARKS and self.is_full:
            raise BusFull(topic, 1, 1)
        return super().publish(topic, *args, **kwargs)  # type: ignore[arg-type]


def test_a_full_topic_of_marks_keeps_no_other_job_waiting(stage: Stage) -> None:
    bus = FullBus()
    stage.bus = stage.client.bus = bus
    peer = stage.peer(stage.broker())
    stage.client.ask(bars("live", 60))
    peer.offer()
    stage.client.submit(rows=3, request_id="history")
    assert peer.job().request_id == "history"
    bus.is_full = False
    eventually(partial(has_told, stage, (False, [60])))


def test_a_job_that_cannot_run_is_reported_and_retried(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME, slots=3)
    stage.client.ask(realtime("one"))
    first = peer.job()
    stage.client.ask(realtime("two"))
    peer.complete(first, "UNKNOWN_TICKER: not listed")

    def failing(request_id: str) -> bool:
        state = state_of(stage, request_id)
        return (state.state, state.notification.error_message) == ("queued", "UNKNOWN_TICKER: not listed")

    eventually(lambda: failing("one") and failing("two"))
    again = peer.job()
    assert again.job_id != first.job_id
    peer.complete(again, "UNKNOWN_TICKER: not listed")
    # The pauses grow: the third attempt is two seconds away.
    assert peer.receive(1.0) is None
    third = peer.job()
    peer.send(ing.WorkHeartbeat(job_id=third.job_id))

    def running(request_id: str) -> bool:
        state = state_of(stage, request_id)
        return state.state == "running" and not state.HasField("notification")

    eventually(lambda: running("one") and running("two"))
    for request_id in ("one", "two"):
        stage.client.cancel(request_id)
        eventually(partial(is_done, stage, request_id))
    told = [peer.receive(), peer.receive()]
    assert ing.WorkStop(job_id=third.job_id) in told


# ---- venues


def venue(stage: Stage, name: str) -> cw.Venue | None:
    [value] = stage.bus.get(topics.TABLE_VENUES, [name])
    return None if value is None else cw.Venue.FromString(value)


def test_a_venue_that_only_a_foreign_ingestor_knows_gets_a_record(stage: Stage) -> None:
    stage.venue("DESCRIBED", candles_per_page=500)
    peer = stage.peer(stage.broker())
    for name in ("HOUSE", "DESCRIBED", "BINANCE", "*"):
        peer.offer(name)
    eventually(lambda: venue(stage, "HOUSE") is not None)
    found = venue(stage, "HOUSE")
    assert found is not None
    assert (found.venue, found.is_live, found.market_count) == ("HOUSE", True, 0)
    stage.client.submit(rows=1, ticker="A/B.DESCRIBED")
    peer.job()
    described = venue(stage, "DESCRIBED")
    assert described is not None
    assert described.max_candles_per_request == 500
    assert (venue(stage, "BINANCE"), venue(stage, "*")) == (None, None)


# ---- retention


def test_old_records_of_every_topic_are_removed_except_held_ones(stage: Stage) -> None:
    bus = stage.bus
    for topic in (topics.HISTORY, topics.TICKS, "made-by-a-gateway"):
        bus.create_topic(topic, 1)
        bus.publish(topic, [Record(b"x" * 100, key=b"k")] * 10)
    bus.hold(topics.TICKS, "reader", {0: 4})
    trimmer = Trimmer(bus, Retention(journal_seconds=0.0, stream_seconds=0.0, max_bytes=1_000, interval_seconds=0.05))
    try:
        eventually(lambda: bus.state(topics.HISTORY)[0].first == 10 and bus.state(topics.TICKS)[0].first == 4)
        eventually(lambda: 0 < bus.state("made-by-a-gateway")[0].size_bytes <= 1_000)
    finally:
        trimmer.close()


def test_records_are_kept_as_long_as_the_relay_promises() -> None:
    settings = Settings(relay=RelaySettings(keep_notifications_hours=48))
    retention = Retention.of(settings)
    for topic in (topics.TICKS, topics.OHLC, topics.TRIGGER_EVENTS, topics.NOTIFICATIONS, topics.SNAPSHOTS):
        assert retention.keep_seconds(topic) == 48 * 3_600
    for topic in (topics.REQUESTS, topics.HISTORY, topics.HISTORY_OUTCOMES):
        assert retention.keep_seconds(topic) == 600
    assert retention.keep_seconds("a gateway's own") == float("inf")
    assert retention.keep_seconds(topics.DEAD_LETTERS) == dead_letters.KEEP_SECONDS
    assert retention.keep_bytes(topics.DEAD_LETTERS) == dead_letters.KEEP_BYTES
    assert retention.keep_bytes(topics.TICKS) == settings.bus.max_bytes


# ---- the state alone

TICKERS = ["A/B.TEST", "C/D.TEST"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ticks", "bars", "cancel", "refuse", "restart"]),
        st.sampled_from(TICKERS),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(STEPS)
def test_after_any_events_the_pipeline_gets_the_combined_needs(steps: list[tuple[str, str, int]]) -> None:
    told: dict[str, Demand] = {}
    running: dict[str, RealtimeAccepted] = {}
    names = count()
    at = 0.0

    def carry_out(commands: list[Command], *, is_full: bool = False) -> None:
        new = [command for command in commands if isinstance(command, PublishMark)]
        if new and is_full:
            carry_out(state.handle(MarksRefused(tuple(mark.ticker for mark in new))))
            return
        for mark in new:
            told[mark.ticker] = mark.wants

    state = BrokerState(BrokerSettings(), lambda: "job", at, wall_ns=0)
    for what, ticker, number in steps:
        at += 1.0
        if what in ("ticks", "bars"):
            periods = (60 * (number + 1),) if what == "bars" else ()
            event = RealtimeAccepted(
                request_id=f"r{next(names)}",
                ticker=ticker,
                venue="TEST",
                client_id="",
                include_ohlc=bool(periods),
                ohlc_period_seconds=periods,
                stores_ticks=what == "ticks",
            )
            running[event.request_id] = event
            carry_out(state.handle(event), is_full=number == 3)
        elif what == "cancel" and running:
            request_id = sorted(running)[number % len(running)]
            del running[request_id]
            carry_out(state.handle(CancelAsked(request_id)), is_full=number == 3)
        elif what == "refuse":
            carry_out(state.handle(ClockTicked(at, 0)), is_full=True)
        elif what == "restart":
            state = BrokerState(BrokerSettings(), lambda: "job", at, wall_ns=0)
            for event in running.values():
                carry_out(state.handle(event))
            for known in told:
                carry_out(state.handle(WantedFound(known)))
    carry_out(state.handle(ClockTicked(at + 10, 0)))
    for ticker in TICKERS:
        mine = [event for event in running.values() if event.ticker == ticker]
        periods = sorted({period for event in mine for period in event.ohlc_period_seconds})
        wanted = Demand(any(event.stores_ticks for event in mine), tuple(periods))
        assert told.get(ticker, Demand()) == wanted


def test_the_record_of_a_foreign_venue_lives_as_long_as_its_connections() -> None:
    state = BrokerState(BrokerSettings(), lambda: "job", 0.0, wall_ns=0)

    def offer(at: float) -> list[Command]:
        return state.handle(SlotOffered(b"peer", ("HOUSE",), (Kind.HISTORICAL,), at))

    def puts(commands: list[Command]) -> int:
        return commands.count(PutVenue("HOUSE"))

    assert puts(offer(0.0)) == 0
    assert puts(state.handle(VenueLearned("HOUSE", 1_000, 0, is_bare=True))) == 1
    assert puts(state.handle(ClockTicked(40.0, 0))) == 1
    assert puts(state.handle(ClockTicked(41.0, 0))) == 0
    state.handle(ConnectionLost(b"peer"))
    assert puts(state.handle(ClockTicked(80.0, 0))) == 0
    assert puts(offer(81.0)) + puts(state.handle(VenueLearned("HOUSE", 1_000, 0, is_bare=True))) == 1
    assert puts(state.handle(VenueLearned("HOUSE", 500, 0))) == 0
    assert puts(state.handle(ClockTicked(120.0, 0))) == 0
