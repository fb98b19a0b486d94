"""Rings, cursors and topics: what a stream remembers and how it continues. No socket, no platform."""

import asyncio
import base64
import json
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import InvalidRequest
from console.live import sending
from console.live.channel import Channel, entry_of
from console.live.cursor import Cursor, Delivered
from console.live.feeds import Whole, is_numbered
from console.live.reader import Reader
from console.live.ring import Entry, Ring
from console.problems import Problem

if TYPE_CHECKING:
    from candlewright.client import AsyncClient

TICKS, BARS, FINALS = "TICKS:BTC/USDT.BINANCE", "OHLC:BTC/USDT.BINANCE:60", "RESPONSE:me"


def entry(first: int, last: int | None = None, size: int = 1) -> Entry:
    return Entry(first, first if last is None else last, "bar", b"x" * size)


def test_a_ring_keeps_the_newest_messages_and_reports_its_range() -> None:
    ring = Ring(5, max_entries=3)
    assert ring.covers(5) and not ring.covers(4) and not ring.covers(6)
    for number in range(5, 10):
        ring.add(entry(number))
    assert (ring.oldest_number, ring.next_number) == (7, 10)
    assert not ring.covers(6) and ring.covers(7) and ring.covers(10)
    assert ring.read(0, 9) is None
    place = ring.place_of(8)
    assert [each.first for each in ring.read(place, 9) or ()] == [8, 9]
    assert ring.read(ring.place_of(10), 9) == []


def test_a_ring_is_bounded_in_bytes_but_never_drops_the_newest() -> None:
    ring = Ring(1, max_bytes=10)
    for number in (1, 2, 3):
        ring.add(entry(number, size=6))
    assert ring.oldest_number == 3
    ring.add(entry(4, size=100))
    assert [each.first for each in ring.read(ring.begin, 9) or ()] == [4]


def test_a_place_in_the_middle_of_a_batch_is_that_of_the_batch() -> None:
    ring = Ring(1)
    ring.add(entry(1, 10))
    ring.add(entry(11, 20))
    assert [each.first for each in ring.read(ring.place_of(15), 9) or ()] == [11]


@given(st.lists(st.integers(1, 1 << 62), min_size=2, max_size=2), st.lists(st.text(max_size=9), max_size=20))
def test_a_cursor_is_read_back_as_it_was(numbers: list[int], names: list[str]) -> None:
    finals = Delivered()
    for at, name in enumerate(names):
        finals.add(name, at)
    text = Cursor({TICKS: numbers[0], BARS: numbers[1]}, {FINALS: finals}).text()
    assert text.isascii() and "\n" not in text
    found = Cursor.parse(text, [BARS, TICKS], [FINALS])
    assert found.numbers == {TICKS: numbers[0], BARS: numbers[1]}
    assert not any(found.finals[FINALS].is_new(name, at) for at, name in enumerate(names))


@given(st.one_of(st.text(max_size=80), st.binary(max_size=40).map(lambda data: data.hex())))
def test_any_other_text_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        Cursor.parse(text, [TICKS], [])


_NAMES = st.sampled_from(["subscribe", "cursor", "from_sequence", "topic", ""])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
)


@given(st.just(0) | st.sampled_from([1e30, -1e30, "9" * 5_000, 2**64 - 1]) | _JSON, st.just([]) | _JSON)
def test_a_cursor_of_any_content_is_read_or_refused(newest: object, names: object) -> None:
    digest = json.loads(base64.urlsafe_b64decode(Cursor({}, {FINALS: Delivered()}).text() + "=="))[1]
    text = base64.urlsafe_b64encode(json.dumps([1, digest, [], [[newest, names]]]).encode()).decode()
    try:
        found = Cursor.parse(text, [], [FINALS])
    except InvalidRequest:
        return
    found.finals[FINALS].add("final", 7)
    assert Cursor.parse(found.text(), [], [FINALS]).finals[FINALS].newest_ns == found.finals[FINALS].newest_ns


async def test_a_reader_waits_for_news_or_for_silence() -> None:
    reader = Reader(cast("AsyncClient", None), [], None)
    assert not await reader.wait(0.01)
    waiting = asyncio.get_running_loop().create_task(reader.wait(60.0))
    await asyncio.sleep(0)
    reader.wake()
    assert await waiting
    # News stays until it is taken, and a timer left over from an earlier wait does not end a later one.
    assert await reader.wait(0.0)
    assert reader.take() == []
    began = asyncio.get_running_loop().time()
    assert not await reader.wait(0.01)
    assert asyncio.get_running_loop().time() - began < 30.0
    reader.close()


@given(_JSON.map(json.dumps) | st.text(max_size=40) | st.sampled_from(["[" * 5_000, "9" * 5_000, "x" * 100_000, ""]))
def test_any_command_of_a_socket_is_taken_or_refused(text: str) -> None:
    try:
        topics, cursor, number = sending._subscription(text)
    except Problem as problem:
        assert (problem.status, "subscribe" in problem.detail) == (400, True)
        return
    assert all(isinstance(each, str) for each in topics) and isinstance(cursor, str)
    assert number is None or 0 < number < 1 << 62


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=8),
    st.lists(st.integers(5, 12), min_size=1, max_size=5),
    st.integers(1, 5),
)
async def test_readers_that_share_messages_get_what_each_would_alone(
    sizes: list[int], starts: list[int], turn: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("console.live.reader._TURN", turn)
        channel = Channel(cast("AsyncClient", None), TICKS)
        channel.ring = Ring(5)
        number = 5
        for size in sizes:
            zeros, ids = [0.0] * size, [str(number + each) for each in range(size)]
            batch = cw.TickBatch(
                ticker="BTC/USDT.BINANCE",
                first_sequence=number,
                timestamp=[1] * size,
                price=zeros,
                size=zeros,
                side=[0] * size,
                trade_id=ids,
                received_at=[1] * size,
            )
            made = entry_of(TICKS, Whole(number, number + size - 1, batch, 0))
            assert made is not None
            channel.ring.add(made)
            number += size
        starts = [min(start, number) for start in starts]
        together, alone = (
            [Reader(cast("AsyncClient", None), [channel], Cursor({TICKS: start})) for start in starts] for _ in range(2)
        )
        for _ in range(len(sizes) + 1):
            for shared, own in zip(together, alone, strict=True):
                assert shared.take_shared().events == own.take()
                assert shared.cursor == own.cursor
                assert shared._has_news == own._has_news
        assert all(reader._at.numbers[TICKS] == number for reader in together)


def test_a_cursor_of_other_topics_is_refused() -> None:
    text = Cursor({TICKS: 3}).text()
    with pytest.raises(InvalidRequest, match="other topics"):
        Cursor.parse(text, [BARS], [])


def test_a_final_is_new_once_and_an_old_one_never() -> None:
    hour = 3_600_000_000_000
    delivered = Delivered()
    assert delivered.is_new("a", 5 * hour)
    delivered.add("a", 5 * hour)
    assert not delivered.is_new("a", 5 * hour)
    assert delivered.is_new("b", 5 * hour - 1)
    assert not delivered.is_new("c", 4 * hour)


@pytest.mark.parametrize(
    "topic",
    ["", "TICKS", "TICKS:", "TICKS:BTCUSDT", "OHLC:BTC/USDT.BINANCE", "OHLC:BTC/USDT.BINANCE:1m", "OTHER:x", "ticks:x"],
)
def test_an_incomplete_topic_is_refused(topic: str) -> None:
    with pytest.raises(InvalidRequest):
        is_numbered(topic)


def test_topics_have_numbers_or_finals() -> None:
    assert is_numbered(TICKS) and is_numbered(BARS) and is_numbered("TRIGGER:a b#c")
    assert not is_numbered(FINALS) and not is_numbered("HISTORY_READY:1")


def test_a_batch_of_ticks_is_one_event_without_already_delivered_ticks() -> None:
    batch = cw.TickBatch(
        ticker="BTC/USDT.BINANCE", first_sequence=7, timestamp=[1, 2], price=[1.0, 2.0], size=[3.0, 4.0]
    )
    batch.trade_id.extend(["a", "b"])
    found = entry_of(TICKS, Whole(8, 8, batch, 1))
    assert found is not None and (found.first, found.last, found.kind) == (8, 8, "ticks")
    assert b'"sequence":8' in found.data and b'"trade_id":"b"' in found.data and b'"a"' not in found.data
    assert found.data.startswith(b'{"topic":"TICKS:BTC/USDT.BINANCE"')
