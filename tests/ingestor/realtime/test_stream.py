"""The dense stream releases trades that arrive in any order once each, ascending, and names the missing ones."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ingestor.realtime.loose_stream import LooseStream
from ingestor.realtime.stream import (
    IDLE_CHECK_SECONDS,
    REORDER_SECONDS,
    DenseStream,
    Lost,
    Outcome,
    Quiet,
    Release,
    Repair,
    Repaired,
    TradeStream,
)
from ingestor.trade import ORDER, TRADE_ID, Trade, tick_batch, trades_of
from ingestor.venues import bybit
from tests.rounds import rounds

MILLISECOND = 1_000_000


def trade(order: int, time_ms: int | None = None) -> Trade:
    time = (1_000 + order if time_ms is None else time_ms) * MILLISECOND
    return (order, time, 100.0 + order, 1.0, 1, str(order), 0)


def released(outcomes: list[Outcome]) -> list[int]:
    return [one[ORDER] for outcome in outcomes if isinstance(outcome, Release) for one in outcome.trades]


def only(outcomes: list[Outcome], kind: type[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if isinstance(outcome, kind)]


def opened(last: int = 100) -> DenseStream:
    stream = DenseStream()
    stream.connected(0.0)
    stream.open(trade(last))
    return stream


class Exchange:
    """Answers repairs from all trades, as REST would, except those of `deaf` ranges."""

    def __init__(self, first: int, last: int, kept_from: int = 0) -> None:
        self.trades = [trade(order) for order in range(first, last + 1)]
        self.kept_from = kept_from

    def answer(self, repair: Repair) -> Repaired:
        after = repair.after[ORDER]
        found = [one for one in self.trades if one[ORDER] > after and one[ORDER] >= self.kept_from]
        return Repaired(found, self.kept_from <= after + 1, "too old")


def run(stream: DenseStream, deliveries: list[list[Trade]], exchange: Exchange, *, step: float = 0.1) -> list[Outcome]:
    """Feed, tick and repair until nothing is left to do."""
    at, out = 0.0, []

    def obey(outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            out.append(outcome)
            if isinstance(outcome, Repair):
                obey(stream.repaired(exchange.answer(outcome), at))

    for delivery in deliveries:
        at += step
        obey(stream.came(delivery, at))
        obey(stream.ticked(at))
    for _ in range(40):
        at += 0.25
        obey(stream.ticked(at))
    return out


@settings(max_examples=rounds(80), deadline=None)
@given(st.data())
def test_any_order_repeats_and_drops_give_all_ids_once_ascending(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 60))
    orders = list(range(101, 101 + count))
    shuffled = data.draw(st.permutations(orders))
    repeats = data.draw(st.lists(st.sampled_from(orders), max_size=10))
    dropped = data.draw(st.sets(st.sampled_from(orders), max_size=count // 2))
    # A dropped trade is noticed only when a newer one arrives.
    came = [order for order in [*shuffled, *repeats] if order not in dropped or order == orders[-1]]
    random.Random(count).shuffle(came)
    size = data.draw(st.integers(1, 7))
    deliveries = [[trade(order) for order in came[start : start + size]] for start in range(0, len(came), size)]
    stream = opened()
    out = run(stream, deliveries, Exchange(101, 100 + count), step=data.draw(st.sampled_from([0.01, 0.4, 2.0])))
    assert released(out) == orders
    assert not only(out, Lost)
    assert stream.counts.trades == count


@settings(max_examples=rounds(50), deadline=None)
@given(st.integers(0, 10_000))
def test_cuts_at_any_place_lose_nothing_that_rest_has(seed: int) -> None:
    rng = random.Random(seed)
    stream, exchange = opened(), Exchange(101, 400)
    out: list[Outcome] = []
    at = 0.0

    def obey(outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            out.append(outcome)
            if isinstance(outcome, Repair):
                obey(stream.repaired(exchange.answer(outcome), at))

    order = 101
    while order <= 400:
        at += 0.2
        if rng.random() < 0.1:
            obey(stream.closed(at))
            order += rng.randrange(30)
            obey(stream.connected(at))
            order -= rng.randrange(5)
            continue
        step = rng.randrange(1, 12)
        obey(stream.came([trade(o) for o in range(order, min(order + step, 401))], at))
        order += step
        obey(stream.ticked(at))
    obey(stream.connected(at))
    for _ in range(20):
        at += 0.5
        obey(stream.ticked(at))
    assert released(out) == list(range(101, 401))
    assert stream.is_sound


def test_order_is_numeric_where_ids_gain_a_digit_in_one_millisecond() -> None:
    stream = opened(997)
    out = stream.came([trade(order, 5) for order in (1000, 1001, 998, 999)], 0.1)
    assert released(out) == [998, 999, 1000, 1001]


def test_a_swapped_pair_is_not_a_gap() -> None:
    stream = opened()
    stream.came([trade(101)], 0.0)
    assert released(stream.came([trade(103)], 0.1)) == []
    assert only(stream.ticked(0.5), Repair) == []
    assert released(stream.came([trade(102)], 0.6)) == [102, 103]
    assert stream.counts.repairs == 0


def test_a_block_late_by_800_ms_is_not_a_gap() -> None:
    stream = opened()
    stream.came([trade(101)], 0.0)
    out = stream.came([trade(order) for order in range(111, 121)], 0.1)
    out += stream.ticked(0.5)
    out += stream.came([trade(order) for order in range(102, 111)], 0.9)
    assert released(out) == list(range(102, 121))
    assert not only(out, Repair)


def test_a_hole_is_requested_when_the_window_has_passed() -> None:
    stream = opened()
    stream.came([trade(101)], 0.0)
    stream.came([trade(105)], 0.1)
    assert only(stream.ticked(0.1 + REORDER_SECONDS - 0.01), Repair) == []
    (repair,) = stream.ticked(0.1 + REORDER_SECONDS)
    assert isinstance(repair, Repair) and (repair.after[ORDER], repair.until) == (101, 104)


def test_trades_after_a_hole_wait_for_the_answer() -> None:
    stream = opened()
    stream.came([trade(101)], 0.0)
    stream.came([trade(105)], 0.1)
    stream.ticked(2.0)
    assert released(stream.came([trade(106)], 2.1)) == []
    assert not stream.is_sound
    out = stream.repaired(Repaired([trade(102), trade(103), trade(104)], True, ""), 2.2)
    assert released(out) == [102, 103, 104, 105, 106]
    assert stream.is_sound


def test_a_jump_after_a_reconnection_is_requested_at_once() -> None:
    stream = opened()
    stream.closed(1.0)
    stream.connected(2.0)
    assert only(stream.came([trade(150)], 2.1), Repair)


def test_trades_that_rest_no_longer_has_are_given_up_by_id() -> None:
    stream, exchange = opened(), Exchange(101, 200, kept_from=150)
    stream.closed(0.1)
    stream.connected(0.2)
    out = run(stream, [[trade(order) for order in range(160, 201)]], exchange)
    (lost,) = only(out, Lost)
    assert isinstance(lost, Lost)
    assert (lost.from_id, lost.to_id, lost.missing) == ("101", "149", 49)
    assert (lost.from_time, lost.to_time) == (trade(100)[1], trade(150)[1])
    assert released(out) == list(range(150, 201))
    assert out.index(lost) < next(i for i, outcome in enumerate(out) if isinstance(outcome, Release))


def test_ids_that_the_exchange_never_gave_are_not_a_gap() -> None:
    stream = opened()
    stream.came([trade(101)], 0.0)
    stream.came([trade(105)], 0.1)
    (repair,) = stream.ticked(5.0)
    assert isinstance(repair, Repair)
    out = stream.repaired(Repaired([trade(103), trade(105)], True, ""), 5.1)
    assert released(out) == [103, 105]
    assert not only(out, Lost)
    assert stream.counts.absent == 2


def test_a_trade_that_arrives_after_it_was_given_up_is_released_late_and_closes_its_gap() -> None:
    stream = opened()
    stream.came([trade(101)], 0.0)
    stream.came([trade(104)], 0.1)
    stream.ticked(5.0)
    stream.repaired(Repaired([], False, "gone"), 5.1)
    assert released(stream.came([trade(102)], 6.0)) == [102]
    out = stream.came([trade(103)], 6.1)
    assert released(out) == [103]
    (mended,) = only(out, Lost)
    assert isinstance(mended, Lost) and mended.is_repaired and (mended.from_id, mended.to_id) == ("102", "103")
    assert stream.counts.late == 2
    assert released(stream.came([trade(102), trade(103)], 6.2)) == []
    assert stream.counts.duplicates == 2


def test_an_idle_market_is_checked_after_a_reconnection() -> None:
    stream = opened()
    stream.closed(1.0)
    stream.connected(2.0)
    assert not stream.is_sound
    (repair,) = stream.ticked(2.0 + IDLE_CHECK_SECONDS)
    assert isinstance(repair, Repair) and repair.until is None
    stream.repaired(Repaired([], True, ""), 3.5)
    assert stream.is_sound


def test_an_answer_from_before_a_close_does_not_vouch_for_the_new_connection() -> None:
    stream = opened()
    stream.connected(2.0)
    stream.ticked(4.0)
    stream.closed(4.1)
    stream.connected(4.2)
    stream.repaired(Repaired([], True, ""), 4.3)
    assert not stream.is_sound


def test_trades_that_come_before_the_opening_are_kept() -> None:
    stream = DenseStream()
    stream.connected(0.0)
    assert stream.came([trade(103), trade(101), trade(104)], 0.1) == []
    out = stream.open(trade(102), [trade(101), trade(102)])
    assert released(out) == [103, 104]
    assert stream.is_sound


# ---- ids that do not count up


def loose_trade(name: str, time_ms: int) -> Trade:
    return (0, time_ms * MILLISECOND, 1.0, 1.0, 1, name, time_ms)


def test_a_loose_stream_asks_rest_before_it_continues_after_a_close() -> None:
    stream = LooseStream()
    stream.connected(0.0)
    stream.open(loose_trade("a", 1), [loose_trade("a", 1)])
    (repair,) = stream.came([loose_trade("c", 3)], 0.1)
    assert isinstance(repair, Repair) and repair.after[TRADE_ID] == "a"
    (release,) = stream.repaired(
        Repaired([loose_trade("a", 1), loose_trade("b", 2), loose_trade("c", 3)], True, ""), 0.2
    )
    assert isinstance(release, Release) and [one[TRADE_ID] for one in release.trades] == ["b", "c"]
    (release,) = stream.came([loose_trade("c", 3), loose_trade("d", 4)], 0.3)
    assert isinstance(release, Release) and [one[TRADE_ID] for one in release.trades] == ["d"]
    assert stream.counts.duplicates >= 1 and stream.is_sound


def test_a_loose_stream_names_the_time_of_unavailable_trades() -> None:
    stream = LooseStream()
    stream.connected(0.0)
    stream.open(loose_trade("a", 1), [loose_trade("a", 1)])
    stream.came([loose_trade("z", 90)], 0.1)
    lost, release = stream.repaired(Repaired([loose_trade("y", 80), loose_trade("z", 90)], False, "newest only"), 0.2)
    assert isinstance(lost, Lost) and (lost.from_time, lost.to_time) == (MILLISECOND, 80 * MILLISECOND)
    assert lost.missing is None
    assert isinstance(release, Release) and [one[TRADE_ID] for one in release.trades] == ["y", "z"]


def test_a_loose_stream_that_was_quiet_after_a_close_requests_trades_before_its_first_one() -> None:
    """The page requested during the silence may have been older than the silence."""
    stream = LooseStream()
    stream.connected(0.0)
    stream.open(loose_trade("a", 1), [loose_trade("a", 1)])
    (idle,) = stream.ticked(IDLE_CHECK_SECONDS)
    assert isinstance(idle, Repair) and idle.until_trade is None
    assert stream.repaired(Repaired([loose_trade("a", 1)], True, ""), 1.1) == []
    assert stream.is_sound
    (asked,) = stream.came([loose_trade("c", 3)], 1.2)
    assert isinstance(asked, Repair) and asked.until_trade == loose_trade("c", 3)
    assert not stream.is_sound
    (release,) = stream.repaired(
        Repaired([loose_trade("a", 1), loose_trade("b", 2), loose_trade("c", 3)], True, ""), 1.3
    )
    assert isinstance(release, Release) and [one[TRADE_ID] for one in release.trades] == ["b", "c"]
    (release,) = stream.came([loose_trade("d", 4)], 1.4)
    assert isinstance(release, Release) and stream.is_sound


def test_trades_are_not_mistaken_for_repeats_forever_if_ids_restart() -> None:
    stream = DenseStream()
    stream.connected(0.0)
    stream.open(trade(10**14, 1_000))
    assert released(stream.came([trade(5, 2_000)], 0.1)) == []
    out = stream.came([trade(6, 70_000), trade(7, 70_001)], 69.0)
    (lost,) = only(out, Lost)
    assert isinstance(lost, Lost)
    assert (lost.from_time, lost.to_time, lost.missing) == (1_000 * MILLISECOND, 70_000 * MILLISECOND, None)
    assert released(out) == [6, 7]
    assert released(stream.came([trade(8, 70_002)], 69.1)) == [8]


def test_a_silent_ticker_is_requested_at_growing_intervals_until_something_arrives() -> None:
    streams: list[tuple[TradeStream, Trade]] = [
        (opened(), trade(101)),
        (LooseStream(), loose_trade("b", 2_000)),
    ]
    for stream, news in streams:
        if isinstance(stream, LooseStream):
            stream.connected(0.0)
            stream.open(loose_trade("a", 1), [loose_trade("a", 1)])
        first = stream.ticked(IDLE_CHECK_SECONDS)
        assert isinstance(first[0], Repair) and not first[0].is_recheck
        stream.repaired(Repaired([], True, ""), 1.1)
        asked = []
        for second in range(60, 4_000, 60):
            for outcome in stream.check(float(second)):
                assert isinstance(outcome, Repair) and outcome.is_recheck
                asked.append(second)
                # The exchange's trades come before its clock.
                assert not stream.is_sound
                assert stream.repaired(Repaired([], False, "no answer"), second + 0.5) == []
        assert asked == [60, 120, 180, 240, 300, 420, 600, 900, 1_440, 2_520]
        assert stream.is_sound
        stream.came([news], 4_000.0)
        if isinstance(stream, LooseStream):
            stream.repaired(Repaired([news], True, ""), 4_000.1)
        assert not stream.check(4_001.9)
        (again,) = stream.check(4_002.0)
        assert isinstance(again, Repair) and again.is_recheck


def test_the_usual_silence_is_learned_despite_bursts() -> None:
    quiet = Quiet(floor=2.0)
    at = 0.0
    for _ in range(100):
        # A burst, and a pause of 20 s after it.
        for _ in range(10):
            at += 0.01
            quiet.heard(at)
        assert not quiet.is_unusual(at + 1.9)
        at += 20
        quiet.heard(at)
    assert not quiet.is_unusual(at + 50)
    assert quiet.is_unusual(at + 61)
    for _ in range(10_000):
        at += 0.2
        quiet.heard(at)
    assert quiet.is_unusual(at + 2.0)


def test_a_silence_of_which_rest_knew_more_is_not_learned() -> None:
    stream = opened()
    stream.ticked(IDLE_CHECK_SECONDS)
    stream.repaired(Repaired([], True, ""), 1.1)
    (ask,) = stream.check(600.0)
    assert isinstance(ask, Repair)
    assert released(stream.repaired(Repaired([trade(101)], True, ""), 600.1)) == [101]
    stream.came([trade(102)], 900.0)
    assert stream.quiet.usual == 0.0
    assert stream.check(902.0)


def test_a_page_reaches_far_enough_when_it_shows_the_awaited_trade_or_a_newer_one() -> None:
    repair = Repair(loose_trade("a", 1), until_trade=loose_trade("c", 3))
    assert not repair.is_reached_by(loose_trade("b", 2), {"a", "b"})
    assert not repair.is_reached_by(loose_trade("x", 3), {"x"})
    assert repair.is_reached_by(loose_trade("x", 3), {"c", "x"})
    assert repair.is_reached_by(loose_trade("d", 4), {"d"})
    assert not repair.is_reached_by(None, set())
    assert not Repair(trade(1), until=5).is_reached_by(trade(4), {"5"})


def test_a_loose_stream_ignores_an_answer_from_before_a_close() -> None:
    stream = LooseStream()
    stream.connected(0.0)
    stream.open(loose_trade("a", 1), [loose_trade("a", 1)])
    stream.came([loose_trade("b", 2)], 0.1)
    stream.closed(0.2)
    stream.connected(0.3)
    (again,) = stream.repaired(Repaired([], True, ""), 0.4)
    assert isinstance(again, Repair)
    assert not stream.is_sound


def test_the_first_trades_of_a_market_may_come_swapped() -> None:
    stream = DenseStream()
    stream.connected(0.0)
    stream.open((0, 5, 0.0, 0.0, 0, "", 0))
    (repair,) = stream.came([trade(8), trade(9)], 0.1)
    assert isinstance(repair, Repair) and repair.after[ORDER] == 0
    assert stream.came([trade(7)], 0.2) == []
    assert released(stream.repaired(Repaired([trade(6), trade(7)], True, ""), 2.0)) == [6, 7, 8, 9]
    assert released(stream.came([trade(10)], 2.1)) == [10]


@given(st.integers(0, 2**70))
def test_ids_have_one_order_on_the_wire_and_on_the_bus(number: int) -> None:
    row = {"i": str(number), "T": 7, "p": "1", "v": "1", "S": "Buy"}
    told = bybit.streamed_trade(row, 5)
    assert told[ORDER] == (number if number < 2**63 else 0)
    assert trades_of(tick_batch("A/B.C", [told])) == [told]


def test_given_up_ids_that_rest_returns_later_are_released_and_close_the_gap() -> None:
    stream = opened()
    stream.came([trade(101)], 0.0)
    stream.came([trade(105)], 0.1)
    stream.ticked(5.0)
    (lost,) = only(stream.repaired(Repaired([], False, "no answer"), 5.1), Lost)
    assert isinstance(lost, Lost)
    stream.came([trade(106)], 5.2)
    out = stream.found_later(lost, Repaired([trade(103), trade(104)], False, "its newest trades only"))
    assert released(out) == [103, 104]
    assert not only(out, Lost)
    # The found trades are known; the others are proven not to exist.
    out = stream.found_later(lost, Repaired([trade(order) for order in range(103, 107)], True, ""))
    assert released(out) == []
    (mended,) = only(out, Lost)
    assert isinstance(mended, Lost) and mended.is_repaired and (mended.from_id, mended.to_id) == ("102", "104")
    assert stream.found_later(lost, Repaired([trade(102)], True, "")) == []
    assert stream.is_sound


def test_a_loose_stream_releases_missed_trades_of_a_gap_later() -> None:
    stream = LooseStream()
    stream.open(trade(100), [trade(100)])
    stream.connected(0.0)
    (repair,) = stream.came([trade(105)], 0.1)
    assert isinstance(repair, Repair)
    out = stream.repaired(Repaired([], False, "no answer"), 0.2)
    (lost,) = only(out, Lost)
    assert isinstance(lost, Lost)
    stream.came([trade(106)], 0.3)
    out = stream.found_later(lost, Repaired([trade(order) for order in range(101, 107)], True, ""))
    assert released(out) == [101, 102, 103, 104]
    (mended,) = only(out, Lost)
    assert isinstance(mended, Lost) and mended.is_repaired
    assert stream.last == trade(106)
