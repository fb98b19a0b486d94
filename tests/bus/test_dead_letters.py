"""Records that a part could not process: kept once, with their reason, in bounded space."""

from collections.abc import Iterator

import pytest

from bus import dead_letters, topics
from bus.api import Bus, Record
from bus.dead_letters import Letter, kept, put_aside, tallies
from core.metrics import REGISTRY
from tests.fresh_bus import FreshBus


@pytest.fixture
def bus() -> Iterator[Bus]:
    bus = FreshBus()
    yield bus
    bus.close()


def dropped(part: str, topic: str) -> float:
    labels = {"part": part, "topic": topic}
    return REGISTRY.get_sample_value("candlewright_bus_dead_letters_dropped_total", labels) or 0.0


def test_a_record_is_kept_whole_with_its_place_and_reason(bus: Bus) -> None:
    (position,) = bus.publish("ticks", [Record(b"\xff\x00", key=b"A/B.C")])
    (record,) = bus.read("ticks", position.partition, position.offset)
    put_aside(bus, "writer", [Letter.of(record, "not a TickBatch")])
    ((number, letter),) = kept(bus)
    assert (number, letter.part, letter.topic) == (0, "writer", "ticks")
    assert (letter.partition, letter.offset, letter.key) == (position.partition, position.offset, b"A/B.C")
    assert (letter.record, letter.record_bytes, letter.reason) == (b"\xff\x00", 2, "not a TickBatch")
    assert letter.at and letter.number == 1


def test_a_record_that_never_reached_its_topic_has_no_place(bus: Bus) -> None:
    put_aside(bus, "door", [Letter("ticks", b"x", "wild")])
    ((_, letter),) = kept(bus)
    assert not letter.HasField("partition") and not letter.HasField("offset") and not letter.HasField("key")


def test_a_record_that_is_put_aside_again_is_kept_once_for_each_part(bus: Bus) -> None:
    letter = Letter("ticks", b"x", "bad", partition=1, offset=7)
    for part in ("writer", "writer", "triggers"):
        put_aside(bus, part, [letter])
    assert [found.part for _, found in kept(bus)] == ["writer", "triggers"]


def test_another_record_at_an_offset_that_was_given_out_again_is_kept(bus: Bus) -> None:
    for value in (b"x", b"y"):
        put_aside(bus, "writer", [Letter("ticks", value, "bad", partition=1, offset=7)])
    assert [found.record for _, found in kept(bus)] == [b"x", b"y"]


def test_letters_are_counted_by_part_and_topic_even_after_they_expired(bus: Bus) -> None:
    put_aside(bus, "writer", [Letter("ticks", b"%d" % n, f"bad {n}", partition=0, offset=n) for n in range(3)])
    put_aside(bus, "writer", [Letter("ohlc", b"x", "bad bar")])
    bus.trim(topics.DEAD_LETTERS, keep_seconds=0)
    found = {(tally.newest.part, tally.newest.topic): (tally.count, tally.newest.reason) for tally in tallies(bus)}
    assert found == {("writer", "ticks"): (3, "bad 2"), ("writer", "ohlc"): (1, "bad bar")}
    assert list(kept(bus)) == []


def test_letters_are_counted_by_their_reason_without_the_values_in_it(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts() -> dict[str, int]:
        return {tally.newest.kind: tally.count for tally in tallies(bus)}

    far = [Letter("ticks", b"%d" % n, f"{n}.5 s ahead of 'A{n}/B.C'", partition=0, offset=n) for n in range(3)]
    put_aside(bus, "writer", [*far, Letter("ticks", b"x", "not a TickBatch")])
    put_aside(bus, "writer", far)
    assert counts() == {"… s ahead of …": 3, "not a TickBatch": 1}
    monkeypatch.setattr(dead_letters, "MAX_KINDS", 3)
    put_aside(bus, "writer", [Letter("ticks", c.encode(), f"reason {c}") for c in "abc"])
    assert counts() == {"… s ahead of …": 3, "not a TickBatch": 1, "reason a": 1, "other": 2}
    (text,) = dead_letters.alarms(tallies(bus), max(tally.newest.at for tally in tallies(bus)))
    assert "put aside 7 records of ticks" in text


def test_nothing_was_put_aside_on_a_new_bus(bus: Bus) -> None:
    assert tallies(bus) == [] and list(kept(bus)) == []


def test_a_long_record_is_truncated_and_keeps_its_length(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MAX_RECORD_BYTES", 10)
    monkeypatch.setattr(dead_letters, "HEAD_BYTES", 4)
    put_aside(bus, "writer", [Letter("ticks", b"0123456789a", "r" * 5_000)])
    ((_, letter),) = kept(bus)
    assert (letter.record, letter.record_bytes, len(letter.reason)) == (b"0123", 11, dead_letters.MAX_REASON)


def test_the_topic_keeps_the_newest_letters_within_its_bytes(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "KEEP_BYTES", 100_000)
    for number in range(40):
        put_aside(bus, "writer", [Letter("ticks", b"%05d" % number * 1_000, "bad", offset=number)])
    (state,) = bus.state(topics.DEAD_LETTERS)
    assert 50_000 < state.size_bytes <= 100_000
    assert [found.offset for _, found in kept(bus)][-1] == 39


def test_a_flood_is_counted_and_not_kept(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "BURST", 150.0)
    monkeypatch.setattr(dead_letters, "PER_SECOND", 0.001)
    before = dropped("flooded", "ticks")
    put_aside(bus, "flooded", [Letter("ticks", b"%d" % n, "bad", offset=n) for n in range(300)])
    assert len(list(kept(bus))) == 100
    assert dropped("flooded", "ticks") - before == 200
