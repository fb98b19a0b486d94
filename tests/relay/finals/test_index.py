from hypothesis import given
from hypothesis import strategies as hyp

from bus.api import Position
from core.metrics import REGISTRY
from relay.finals.index import FinalIndex, runs

ENTRIES = hyp.lists(hyp.tuples(hyp.sampled_from("abc"), hyp.integers(0, 3)), max_size=60)


def places(entries: list[tuple[str, int]]) -> list[tuple[str, Position]]:
    """Each partition numbers its own records."""
    ends = dict.fromkeys(range(4), 0)
    found = []
    for client_id, partition in entries:
        found.append((client_id, Position(partition, ends[partition])))
        ends[partition] += 1
    return found


@given(ENTRIES, hyp.integers(1, 80), hyp.integers(1, 20))
def test_the_index_gives_each_client_its_newest_finals(entries: list[tuple[str, int]], size: int, count: int) -> None:
    index = FinalIndex(size)
    stored = places(entries)
    for client_id, position in stored:
        index.add(client_id, position.partition, position.offset)
    kept = stored[-size:]
    assert len(index) == len(kept)
    for client_id in "abcd":
        own = [position for owner, position in kept if owner == client_id][-count:]
        assert index.newest(client_id, count) == sorted(own, key=lambda p: (p.partition, p.offset))


def test_entries_dropped_by_a_full_index_are_counted() -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("candlewright_relay_forgotten_finals_total") or 0.0

    before = counted()
    index = FinalIndex(3)
    for offset in range(5):
        index.add("a", 0, offset)
    assert counted() - before == 2
    index.forget_before({0: 4})
    assert (len(index), counted() - before) == (1, 2)


def test_trimmed_finals_are_forgotten() -> None:
    index = FinalIndex(100)
    for offset in range(10):
        index.add("a" if offset % 2 else "b", 0, offset)
    index.forget_before({0: 7})
    assert index.newest("a", 10) == [Position(0, 7), Position(0, 9)]
    assert index.newest("b", 10) == [Position(0, 8)]
    index.forget_before({0: 10})
    assert len(index) == 0
    assert index.newest("a", 10) == []


@given(hyp.sets(hyp.tuples(hyp.integers(0, 2), hyp.integers(0, 300))), hyp.integers(1, 20), hyp.integers(1, 50))
def test_runs_cover_every_position_with_short_reads(places: set[tuple[int, int]], gap: int, length: int) -> None:
    positions = [Position(*place) for place in sorted(places)]
    stretches = runs(positions, gap, length)
    covered = {(partition, offset) for partition, first, last in stretches for offset in range(first, last + 1)}
    assert places <= covered
    assert sum(last - first + 1 for _, first, last in stretches) == len(covered)
    assert all(last - first < length + gap for _, first, last in stretches)
    assert all((partition, edge) in places for partition, first, last in stretches for edge in (first, last))
