"""Random histories of publishing, reading, trimming and groups, against lists and sets."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from bus.api import Position, Record, SequenceStamp
from candlewright.wire.errors import BusError, OffsetOutOfRange
from candlewright.wire.varint import varint
from tests.fresh_bus import FreshBus
from tests.rounds import rounds

PARTITIONS = 2
KEY_OF_PARTITION = (b"A", b"")
partition = st.integers(0, PARTITIONS - 1)
STAMPS = [SequenceStamp(f"s{p}", tag=b"\x68") for p in range(PARTITIONS)]
OFFSETS = st.integers(0, 30) | st.integers(0, 300)
group_name = st.sampled_from(["g", "h"])


@dataclass
class ModelGroup:
    next_offset: list[int]
    pending: list[dict[int, int]] = field(default_factory=lambda: [{} for _ in range(PARTITIONS)])


class BusMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bus = FreshBus()
        self.bus.create_topic("t", PARTITIONS)
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.numbers: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.first = [0] * PARTITIONS
        self.holds: dict[str, dict[int, int]] = {}
        self.groups: dict[str, ModelGroup] = {}

    def teardown(self) -> None:
        self.bus.close()

    @rule(records=st.lists(st.tuples(partition, st.binary(max_size=40), st.none() | st.binary(max_size=4)), max_size=6))
    def publish(self, records: list[tuple[int, bytes, bytes | None]]) -> None:
        expected = []
        for p, value, _ in records:
            expected.append(Position(p, len(self.values[p])))
            self.values[p].append(value)
        batch = [Record(value, key=key, partition_key=KEY_OF_PARTITION[p]) for p, value, key in records]
        assert self.bus.publish("t", batch) == expected

    @rule(p=partition, values=st.lists(st.binary(max_size=40), min_size=1, max_size=200))
    def publish_numbered(self, p: int, values: list[bytes]) -> None:
        """Adjacent records, in packs if there are no groups."""
        end, numbers, stamp = len(self.values[p]), self.numbers[p], STAMPS[p]
        batch = [Record(value, key=KEY_OF_PARTITION[p], sequence=stamp) for value in values]
        assert self.bus.publish("t", batch) == [Position(p, end + place) for place in range(len(values))]
        for value in values:
            number = len(numbers) + 1
            numbers[number] = len(self.values[p])
            self.values[p].append(value + stamp.tag + varint(number))

    @rule(p=partition, at=st.integers(0, 100))
    def locate(self, p: int, at: int) -> None:
        number = len(self.numbers[p]) * at // 100
        found = self.bus.locate("t", STAMPS[p].name, number)
        offset = self.numbers[p].get(number, -1)
        if offset < self.first[p]:
            assert found is None
        else:
            assert found is not None and found.partition == p and self.first[p] <= found.offset <= offset

    @rule(p=partition, start=OFFSETS, limit=st.integers(1, 80))
    def read(self, p: int, start: int, limit: int) -> None:
        if not self.first[p] <= start <= len(self.values[p]):
            with pytest.raises(OffsetOutOfRange):
                self.bus.read("t", p, start, max_records=limit)
            return
        found = self.bus.read("t", p, start, max_records=limit)
        assert [r.value for r in found] == self.values[p][start : start + limit]
        assert [r.offset for r in found] == list(range(start, start + len(found)))

    @rule(reader=st.sampled_from(["r", "s:0"]), p=partition, offset=OFFSETS)
    def hold(self, reader: str, p: int, offset: int) -> None:
        self.bus.hold("t", reader, {p: offset})
        self.holds.setdefault(reader, {})[p] = offset

    @rule(reader=st.sampled_from(["r", "s:0"]))
    def release(self, reader: str) -> None:
        self.bus.release("t", reader)
        self.holds.pop(reader, None)

    @rule()
    def trim(self) -> None:
        dropped = 0
        for p in range(PARTITIONS):
            needed = [len(self.values[p])]
            needed += [held[p] for held in self.holds.values() if p in held]
            for group in self.groups.values():
                needed.append(min(group.pending[p], default=group.next_offset[p]))
            limit = max(self.first[p], min(needed))
            dropped += limit - self.first[p]
            self.first[p] = limit
        assert self.bus.trim("t", keep_seconds=-1) == dropped

    @rule(name=group_name, at_end=st.booleans())
    def create_group(self, name: str, at_end: bool) -> None:
        self.bus.create_group("t", name, at_end=at_end)
        if name not in self.groups:
            start = [len(values) for values in self.values] if at_end else list(self.first)
            self.groups[name] = ModelGroup(start)

    @rule(name=group_name)
    def delete_group(self, name: str) -> None:
        assert self.bus.delete_group("t", name) == (self.groups.pop(name, None) is not None)

    @rule(name=group_name, p=partition, limit=st.integers(1, 40))
    def read_group(self, name: str, p: int, limit: int) -> None:
        group = self.groups.get(name)
        if group is None:
            with pytest.raises(BusError):
                self.bus.read_group("t", name, "c", partitions=[p], max_records=limit)
            return
        found = self.bus.read_group("t", name, "c", partitions=[p], max_records=limit)
        start = group.next_offset[p]
        assert [r.record.value for r in found] == self.values[p][start : start + limit]
        assert all(r.deliveries == 1 for r in found)
        group.next_offset[p] = start + len(found)
        group.pending[p] |= dict.fromkeys(range(start, start + len(found)), 1)

    @rule(name=group_name, p=partition, offsets=st.sets(st.integers(0, 30), max_size=6))
    def acknowledge(self, name: str, p: int, offsets: set[int]) -> None:
        pending = self.groups[name].pending[p] if name in self.groups else {}
        assert self.bus.acknowledge("t", name, p, offsets=sorted(offsets)) == len(offsets & set(pending))
        for offset in offsets:
            pending.pop(offset, None)

    @rule(name=group_name, p=partition, limit=st.integers(1, 5))
    def claim(self, name: str, p: int, limit: int) -> None:
        if name not in self.groups:
            return
        pending = self.groups[name].pending[p]
        expected = sorted(pending)[:limit]
        for offset in expected:
            pending[offset] += 1
        found = self.bus.claim_expired("t", name, "d", min_idle_seconds=0, partitions=[p], max_records=limit)
        assert [(r.record.offset, r.deliveries) for r in found] == [(offset, pending[offset]) for offset in expected]
        assert [r.record.value for r in found] == [self.values[p][offset] for offset in expected]

    @invariant()
    def state_is_as_in_the_model(self) -> None:
        state = self.bus.state("t")
        assert [(part.first, part.end) for part in state] == [
            (self.first[p], len(self.values[p])) for p in range(PARTITIONS)
        ]
        assert [part.size_bytes == 0 for part in state] == [part.first == part.end for part in state]
        assert self.bus.groups("t") == sorted(self.groups)
        for name, group in self.groups.items():
            assert self.bus.next_offsets("t", name) == dict(enumerate(group.next_offset))
            assert self.bus.pending("t", name) == {p: len(group.pending[p]) for p in range(PARTITIONS)}


def test_random_histories_are_as_in_the_model() -> None:
    chosen = settings(
        max_examples=rounds(30),
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    run_state_machine_as_test(BusMachine, settings=chosen)
