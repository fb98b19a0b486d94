"""Live topics without sockets: every number once and in order, whatever happens to the messages in transit."""

from dataclasses import dataclass, field

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright.client.errors import GapError, TickerNotFound
from candlewright.client.live.feed import RETRY_MAX_SECONDS, SILENCE_MAX_SECONDS, SILENCE_SECONDS, Feed
from candlewright.client.live.items import Bar, Bars, Tick, Ticks
from candlewright.client.operations import Operations
from candlewright.client.session.session import Send, Session, Subscribe, Ticket, Unsubscribe
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire.frames import encode_body
from tests.rounds import rounds

TICKER = "BTC/USDT.BINANCE"
BARS, TICKS = f"OHLC:{TICKER}:60", f"TICKS:{TICKER}"


def bar(sequence: int, revision: int = 0) -> cw.OHLCV:
    return cw.OHLCV(ticker=TICKER, period_seconds=60, open_time=sequence, sequence=sequence, revision=revision)


def batch(first: int, count: int) -> cw.TickBatch:
    numbers = range(first, first + count)
    return cw.TickBatch(
        ticker=TICKER,
        first_sequence=first,
        timestamp=numbers,
        price=[1.0] * count,
        size=[2.0] * count,
        side=[cw.BUY] * count,
        trade_id=[str(number) for number in numbers],
        received_at=numbers,
    )


class Platform:
    """A topic that keeps its messages from `kept_from` on, a client's session, and a clock."""

    def __init__(self, feed: Feed[Bar] | Feed[Tick]) -> None:
        self.feed = feed
        self.session = Session()
        self.now = 0.0
        self.kept: list[tuple[int, int, Message]] = []
        self.asked: list[cw.TopicReplay] = []
        self.waiting: list[cw.TopicReplay] = []
        self.topics: list[str] = []
        self.ticket: Ticket[None] = self.session.begin(feed.run(self.session), 0.0, takes_nameless=False)
        self.look()

    @property
    def newest(self) -> int:
        return self.kept[-1][1] if self.kept else 0

    def look(self) -> None:
        for command in self.session.take_commands():
            match command:
                case Subscribe(topic):
                    self.topics.append(topic)
                case Unsubscribe(topic):
                    self.topics.remove(topic)
                case Send(message):
                    assert isinstance(message, cw.TopicReplay)
                    self.asked.append(message)
                    self.waiting.append(message)

    def keep(self, message: cw.OHLCV | cw.TickBatch) -> Message:
        if isinstance(message, cw.OHLCV):
            self.kept.append((message.sequence, message.sequence, message))
        else:
            self.kept.append((message.first_sequence, message.first_sequence + len(message.timestamp) - 1, message))
        return message

    def trim(self, below: int) -> None:
        self.kept = [each for each in self.kept if each[0] >= below]

    def publish(self, message: Message, topic: str | None = None) -> None:
        self.session.receive_publication([(topic or self.feed.topic).encode(), *frames.encode(message)], self.now)
        self.look()

    def reply(self, message: Message) -> None:
        self.session.receive_reply(frames.encode(message), self.now)
        self.look()

    def answer_all(self) -> None:
        while self.waiting:
            self.answer(self.waiting.pop(0))

    def answer(self, query: cw.TopicReplay) -> None:
        """Answer as the relay does."""
        last = min(query.to_sequence or self.newest, self.newest)
        found = [each for each in self.kept if each[1] >= query.from_sequence and each[0] <= last]
        if query.from_sequence > self.newest or not found or found[0][0] > query.from_sequence:
            self.reply(cw.Error(code="NOT_KEPT", topic=query.topic, from_sequence=query.from_sequence))
            return
        for number, (first, _, message) in enumerate(found, start=1):
            body = encode_body(message)
            record = cw.TopicRecord(topic=query.topic, sequence=first, body=body, is_final=number == len(found))
            self.reply(record)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.session.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.session.advance(self.now)
            self.look()
        self.now = end

    def take(self, most: int = 1_000_000) -> list[int | tuple[int, int]]:
        """Numbers of the items, and (first, last) of the lost ones."""
        taken: list[int | tuple[int, int]] = []
        while len(taken) < most and (item := self.feed.take()) is not None:
            taken.append((item.first, item.last) if isinstance(item, GapError) else item.sequence)
            if self.feed.has_work:
                self.session.wake(self.ticket, self.now)
                self.look()
        return taken


def bars_feed(*, revisions: bool = True, first: int | None = None, buffer: int = 100) -> Feed[Bar]:
    kind = Bars(TICKER, 60, revisions=revisions)
    return Feed(kind.topic, kind, first=first, buffer=buffer)


def ticks_feed(first: int | None = None, buffer: int = 100) -> Feed[Tick]:
    kind = Ticks(TICKER)
    return Feed(kind.topic, kind, first=first, buffer=buffer)


def publish_all(platform: Platform, *sequences: int, unseen: tuple[int, ...] = ()) -> None:
    for sequence in sequences:
        message = platform.keep(bar(sequence))
        if sequence not in unseen:
            platform.publish(message)


def test_bars_come_in_order_from_the_first_that_arrives() -> None:
    platform = Platform(bars_feed())
    assert platform.topics == [BARS]
    publish_all(platform, 7, 8, 9)
    assert platform.take() == [7, 8, 9]
    assert platform.asked == []


def test_a_bar_has_the_values_of_its_message() -> None:
    platform = Platform(bars_feed())
    message = bar(1, revision=2)
    message.MergeFrom(cw.OHLCV(open_time=5, open=1, high=4, low=0.5, close=2, volume=9, trade_count=3))
    message.complete, message.source = True, "ticks"
    platform.publish(message)
    got = platform.feed.take()
    assert got == Bar(
        ticker=TICKER,
        period_seconds=60,
        open_time=5,
        open=1.0,
        high=4.0,
        low=0.5,
        close=2.0,
        volume=9.0,
        quote_volume=None,
        trade_count=3,
        complete=True,
        revision=2,
        source="ticks",
        sequence=1,
    )


def test_a_gap_is_requested_and_comes_in_its_place() -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1, 2, 3, 4, 5, 6, unseen=(3, 4))
    assert platform.take() == [1, 2]
    assert [(query.from_sequence, query.to_sequence) for query in platform.asked] == [(3, 4)]
    platform.answer_all()
    assert platform.take() == [3, 4, 5, 6]
    assert platform.feed.replayed >= 2


def test_duplicates_are_dropped_and_counted() -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1, 2)
    platform.publish(bar(1))
    platform.publish(bar(2))
    publish_all(platform, 3)
    assert platform.take() == [1, 2, 3]
    assert platform.feed.duplicates == 2


def test_a_lost_question_is_asked_again_and_never_given_up() -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1, 2, 3, unseen=(2,))
    platform.waiting.clear()
    platform.pass_time(120)
    assert len(platform.asked) > 120 / (RETRY_MAX_SECONDS + 1)
    platform.answer_all()
    assert platform.take() == [1, 2, 3]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "BUSY", "FAILED"])
def test_a_temporary_error_is_not_a_gap(code: str) -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1, 2, 3, unseen=(2,))
    platform.reply(cw.Error(code=code, topic=BARS, from_sequence=2))
    assert platform.take() == [1]
    platform.waiting.clear()
    platform.pass_time(1)
    platform.answer_all()
    assert platform.take() == [2, 3]


def test_a_failure_of_another_query_is_ignored() -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1, 2, 3, unseen=(2,))
    platform.reply(cw.Error(code="NOT_KEPT", topic=BARS, from_sequence=1))
    platform.reply(cw.Error(code="NOT_KEPT", topic=BARS + "0", from_sequence=2))
    platform.reply(cw.Error(code="NOT_KEPT"))
    platform.answer_all()
    assert platform.take() == [1, 2, 3]


def test_only_records_no_longer_kept_are_reported_lost() -> None:
    platform = Platform(bars_feed(buffer=1000))
    publish_all(platform, *range(1, 101), unseen=tuple(range(2, 100)))
    platform.trim(38)
    platform.answer_all()
    assert platform.take() == [1, (2, 37), *range(38, 101)]
    publish_all(platform, 101)
    assert platform.take() == [101]


def test_when_nothing_of_the_gap_is_kept_all_of_it_is_lost() -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1, 2, 3, unseen=(2,))
    platform.trim(3)
    platform.answer_all()
    assert platform.take() == [1, (2, 2), 3]


def test_a_silence_is_checked_at_growing_intervals() -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1)
    platform.pass_time(10 * SILENCE_MAX_SECONDS)
    assert 8 <= len(platform.asked) <= 15
    publish_all(platform, 2, 3, unseen=(2, 3))
    platform.waiting = platform.asked[-1:]
    platform.answer_all()
    assert platform.take() == [1, 2, 3]


def test_a_stream_continues_from_the_number_it_is_given() -> None:
    platform = Platform(bars_feed(first=3))
    publish_all(platform, *range(1, 6), unseen=(1, 2, 3, 4, 5))
    platform.answer_all()
    assert platform.take() == [3, 4, 5]


def test_only_first_revisions_where_that_is_requested() -> None:
    platform = Platform(bars_feed(revisions=False))
    for sequence, revision in ((1, 0), (2, 1), (3, 0), (4, 2)):
        platform.publish(bar(sequence, revision))
    assert platform.take() == [1, 3]
    assert platform.asked == []


def test_other_topics_and_messages_are_ignored() -> None:
    platform = Platform(bars_feed())
    platform.publish(bar(1), topic=BARS + "0")
    platform.publish(cw.Snapshot(sequence=1))
    platform.publish(bar(0))
    assert platform.take() == []


def test_trades_are_handed_out_one_by_one() -> None:
    platform = Platform(ticks_feed())
    platform.publish(batch(10, 3))
    platform.publish(batch(13, 1))
    assert platform.take() == [10, 11, 12, 13]


def test_a_partly_received_batch_gives_the_rest() -> None:
    platform = Platform(ticks_feed())
    platform.publish(batch(1, 3))
    platform.publish(batch(2, 5))
    assert platform.take() == [1, 2, 3, 4, 5, 6]


def test_a_batch_with_uneven_columns_is_skipped() -> None:
    platform = Platform(ticks_feed())
    broken = batch(1, 2)
    del broken.price[1:]
    platform.publish(broken)
    assert platform.take() == []


def test_a_slow_reader_holds_little_and_loses_nothing() -> None:
    platform = Platform(bars_feed(buffer=10))
    publish_all(platform, *range(1, 501))
    held = sum(map(len, (platform.feed._ready, platform.feed._early)))
    assert held <= 20
    got: list[int | tuple[int, int]] = []
    for _ in range(1_000):
        got += platform.take(3)
        platform.answer_all()
    assert got == list(range(1, 501))


def test_an_abandoned_feed_is_unsubscribed() -> None:
    platform = Platform(bars_feed())
    platform.session.abandon(platform.ticket)
    platform.look()
    assert platform.topics == []


def test_a_nameless_error_is_not_taken_by_a_stream() -> None:
    platform = Platform(bars_feed())
    publish_all(platform, 1, 2, 3, unseen=(2,))
    ask = Operations(platform.session, "me", address="tcp://relay", timeout_seconds=10.0)
    question = platform.session.begin(ask.state("r"), 0.0)
    platform.session.take_commands()
    platform.reply(cw.Error(code="MALFORMED"))
    assert question.is_done
    assert not platform.ticket.is_done


@dataclass
class Way:
    """What happens to each message between platform and client, in turn."""

    fates: list[int] = field(default_factory=list)

    def next(self) -> int:
        return self.fates.pop() if self.fates else 0


@settings(max_examples=rounds(300), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=60),
    fates=st.lists(st.integers(0, 5), max_size=200),
    reads=st.lists(st.integers(0, 12), max_size=60),
    trims=st.dictionaries(st.integers(0, 59), st.integers(0, 200), max_size=3),
    buffer=st.integers(4, 60),
)
def test_every_number_once_in_order_or_named_as_lost(
    sizes: list[int], fates: list[int], reads: list[int], trims: dict[int, int], buffer: int
) -> None:
    platform, way = Platform(ticks_feed(first=1, buffer=buffer)), Way(fates)
    got: list[int | tuple[int, int]] = []
    first, oldest, held_back = 1, 1, []
    for step, size in enumerate(sizes):
        message = platform.keep(batch(first, size))
        first += size
        match way.next():
            case 1:
                pass
            case 2:
                platform.publish(message)
                platform.publish(message)
            case 3:
                held_back.append(message)
            case _:
                platform.publish(message)
                while held_back:
                    platform.publish(held_back.pop())
        if step in trims:
            oldest = max(oldest, min(trims[step], first - size))
            platform.trim(oldest)
        if platform.waiting and way.next() != 1:
            platform.answer(platform.waiting.pop(0))
        platform.pass_time(0.3 * way.next())
        got += platform.take(reads.pop() if reads else 1)
    for _ in range(60):
        platform.answer_all()
        got += platform.take(7)
        platform.pass_time(SILENCE_MAX_SECONDS)
    numbers: list[int] = []
    for each in got:
        numbers += [each] if isinstance(each, int) else range(each[0], each[1] + 1)
        if isinstance(each, tuple):
            assert each[1] < max(oldest, 1) + 6
    # A topic without news does not show what it lost at its end.
    assert numbers == list(range(1, len(numbers) + 1))
    if oldest == 1:
        assert numbers == list(range(1, first))
        assert all(isinstance(each, int) for each in got)


def test_an_unknown_ticker_is_raised_once_and_the_stream_continues() -> None:
    platform = Platform(Feed(BARS, Bars(TICKER, 60, revisions=True), first=None))
    wrong = cw.Error(code="UNKNOWN_TICKER", text="BINANCE does not list it", topic=BARS)
    for _ in range(2):
        platform.session.receive_publication([BARS.encode(), *frames.encode(wrong)], platform.now)
    found = platform.feed.take()
    assert isinstance(found, TickerNotFound)
    assert (str(found), found.topic) == ("BINANCE does not list it", BARS)
    platform.session.receive_publication([BARS.encode(), *frames.encode(bar(7))], platform.now)
    taken = platform.feed.take()
    assert isinstance(taken, Bar)
    assert taken.sequence == 7
    assert platform.feed.take() is None


@pytest.mark.parametrize("asks", [False, True])
def test_numbers_that_the_platform_lost_and_gives_again_are_not_mistaken_for_repeats(asks: bool) -> None:
    """On a topic with news, the platform reports it; on a quiet one, the client finds out when it asks for news."""
    platform = Platform(bars_feed())
    for number in range(1, 6):
        platform.publish(platform.keep(bar(number)))
    assert platform.take() == [1, 2, 3, 4, 5]
    platform.kept = platform.kept[:3]
    if asks:
        platform.pass_time(SILENCE_SECONDS)
        query = platform.waiting.pop()
        lost = cw.Error(code="NOT_KEPT", topic=query.topic, from_sequence=query.from_sequence, newest_sequence=3)
        platform.reply(lost)
    else:
        platform.publish(cw.Error(code="RECORDS_LOST", topic=BARS, newest_sequence=3))
    for number in range(4, 8):
        platform.publish(platform.keep(bar(number)))
    (missed, *rest) = platform.take()
    assert (missed, rest) == ((4, 5), [4, 5, 6, 7])


def test_an_answer_that_came_too_late_is_not_a_loss() -> None:
    platform = Platform(bars_feed())
    platform.publish(platform.keep(bar(1)))
    platform.pass_time(SILENCE_SECONDS)
    query = platform.waiting.pop()
    assert query.from_sequence == 2
    for number in range(2, 5):
        platform.publish(platform.keep(bar(number)))
    platform.reply(cw.Error(code="NOT_KEPT", topic=query.topic, from_sequence=2, newest_sequence=1))
    platform.publish(platform.keep(bar(5)))
    assert platform.take() == [1, 2, 3, 4, 5]
