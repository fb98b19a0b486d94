"""Each family of keys besides the records of topics has a bound that holds; docs/operations.md lists them."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import topics
from bus.api import Record, SequenceStamp
from bus.limits import Limits
from bus.redis import reading
from bus.redis.redis_messaging import RedisMessaging
from candlewright.wire.errors import BusFull, BusLimit
from core.metrics import REGISTRY
from tests.fresh_bus import FreshBus

LIMITS = Limits(names=50, topics=20, groups=10, rows=50, sequence_seconds=1)
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.fixture
def bus() -> Iterator[FreshBus]:
    bus = FreshBus(partitions=1, max_bytes=1 << 20, limits=LIMITS)
    yield bus
    bus.close()


def keys(bus: FreshBus, pattern: str) -> list[bytes]:
    found: list[bytes] = bus._store.call("KEYS", pattern)
    return found


def evicted(of: str) -> float:
    return REGISTRY.get_sample_value("candlewright_bus_evicted_total", {"of": of}) or 0.0


def test_topics_beyond_the_limit_are_refused_however_they_are_made(bus: FreshBus) -> None:
    for number in range(LIMITS.topics):
        bus.publish(f"t{number}", [Record(b"x")])
    for make in (
        lambda: bus.publish("more", [Record(b"x")]),
        lambda: bus.create_topic("more"),
        lambda: bus.create_group("more", "g", at_end=False),
    ):
        with pytest.raises(BusLimit, match="the bus has 20 topics; the maximum is 20"):
            make()
    assert len(bus.topics()) == LIMITS.topics
    assert len(bus.publish("t3", [Record(b"x")])) == bus.create_topic("t4") == 1
    bus.create_group("t5", "g", at_end=False)


def test_ever_changing_sets_of_awaited_partitions_are_not_all_remembered(bus: FreshBus) -> None:
    bus.create_topic("t", 11)
    bus.publish("t", [Record(b"x", partition=partition) for partition in range(11)])
    for number in range(1, 1_100):
        bus.wait({("t", partition): 0 for partition in range(11) if number >> partition & 1}, 20)
    known = reading._awaited.cache_info()
    assert known.misses > known.currsize == known.maxsize


def test_groups_beyond_the_limit_of_a_topic_are_refused_until_one_is_deleted(bus: FreshBus) -> None:
    for number in range(LIMITS.groups):
        bus.create_group("t", f"g{number}", at_end=False)
    with pytest.raises(BusLimit, match="the bus has 10 groups of topic t; the maximum is 10"):
        bus.create_group("t", "more", at_end=False)
    bus.create_group("t", "g3", at_end=False)
    bus.delete_group("t", "g3")
    bus.create_group("t", "more", at_end=False)
    assert len(bus.groups("t")) == LIMITS.groups


def test_the_oldest_names_beyond_the_limit_are_removed_and_counted(bus: FreshBus) -> None:
    before = evicted("registry finals")
    for number in range(80):
        bus.publish_once("t", Record(b"x"), registry="finals", name=f"n{number}", content=b"c", keep_seconds=60)
    bus.publish_new(
        "t", [Record(b"x")] * 30, registry="ids", names=[f"i{number}" for number in range(30)], keep_seconds=60
    )
    names = [f"n{number}" for number in range(80)]
    assert [content is not None for content in bus.recall("finals", names)] == [False] * 30 + [True] * 50
    assert len(keys(bus, "cw:once:finals:*")) == LIMITS.names
    assert len(keys(bus, "cw:once:ids:*")) == 30
    bus.count_evicted()
    bus.count_evicted()
    assert evicted("registry finals") - before == 30


def test_too_many_names_of_requests_are_refused_until_their_time_is_over(bus: FreshBus) -> None:
    def submit(name: str, keep_seconds: float = 60) -> bool:
        return bus.publish_once(
            "t", Record(b"x"), registry="requests", name=name, content=b"c", keep_seconds=keep_seconds
        ).is_first

    for number in range(LIMITS.names):
        submit(f"n{number}", 60 if number else 0.5)
    with pytest.raises(BusLimit, match="50 names of requests"):
        submit("more")
    # Known names remain known.
    assert not submit("n3")
    deadline = time.monotonic() + 5
    while bus.recall("requests", ["n0"]) != [None]:
        assert time.monotonic() < deadline
    assert submit("more")
    assert bus.state("t")[0].end == LIMITS.names + 1


def test_a_table_whose_rows_expire_keeps_a_limited_number_and_counts_the_others(bus: FreshBus) -> None:
    before = evicted("table states")
    for number in range(80):
        bus.put("states", {f"r{number}": b"x"}, keep_seconds=100 + number)
        bus.put("rows", {f"r{number}": b"x"})
    assert sorted(bus.items("states")) == sorted(f"r{number}" for number in range(30, 80))
    assert len(bus.items("rows")) == 80
    bus.count_evicted()
    assert evicted("table states") - before == 30


def test_an_unused_sequence_is_removed(bus: FreshBus) -> None:
    for number in range(30):
        bus.publish("t", [Record(b"x", sequence=SequenceStamp(f"TICKS:{number}"))])
    assert len(keys(bus, "cw:seq:*")) == len(keys(bus, "cw:marks:*")) == 30
    deadline = time.monotonic() + 5
    while keys(bus, "cw:seq:*") or keys(bus, "cw:marks:*"):
        assert time.monotonic() < deadline
    assert bus.last_sequence("TICKS:3") == 0


def test_messages_outside_the_log_are_bounded_in_bytes(bus: FreshBus) -> None:
    messaging = RedisMessaging(bus)
    with pytest.raises(BusFull):
        for number in range(200):
            messaging.add("q", f"m{number}", b"x" * 10_000, delay_seconds=60)
    with pytest.raises(BusFull):
        messaging.prepare("q", "half", b"x" * 100_000, ask_after_seconds=60)
    assert messaging.kept_bytes("q") <= 1 << 20
    for _ in range(300):
        messaging.post("address", b"x" * 100, 60)
    assert bus._store.call("LLEN", "cw:mail:address") == 100
    messaging.close()


def test_deleting_a_group_removes_everything_kept_for_it(bus: FreshBus) -> None:
    messaging = RedisMessaging(bus)
    bus.create_group("t", "g", at_end=False)
    for _ in range(100):
        bus.publish("t", [Record(b"x", key=b"k")])
    messaging.receive(
        "t", "g", "c", partition=0, max_records=5, hide_seconds=60, default_hide_seconds=60, in_order=True
    )
    assert keys(bus, "cw:due:*") and keys(bus, "cw:order:*")
    bus.delete_group("t", "g")
    assert not keys(bus, "cw:due:*") and not keys(bus, "cw:order:*") and not keys(bus, "cw:parked:*")
    messaging.close()


def test_every_key_expires_or_is_in_a_family_that_operations_lists(bus: FreshBus) -> None:
    """Writes everything that the bus can write, and reads the list of families from the document."""
    messaging = RedisMessaging(bus)
    stamp = SequenceStamp("s")
    bus.publish("t", [Record(b"x", key=b"k", sequence=stamp) for _ in range(3)])
    bus.publish_as("t", [Record(b"x")], writer="w", number=1)
    bus.publish_once("t", Record(b"x"), registry=topics.REGISTRY_FINALS, name="n", content=b"", keep_seconds=9)
    bus.create_group("t", "g", at_end=False)
    bus.read_group("t", "g", "c", max_records=1)
    messaging.receive("t", "g", "c", partition=0, max_records=1, hide_seconds=9, default_hide_seconds=9, in_order=True)
    bus.hold("t", "r", {0: 0})
    bus.grant({"job": b""})
    bus.put("a", {"k": b"v"})
    bus.put("b", {"k": b"v"}, keep_seconds=9)
    bus.take("budget", 1, capacity=2, per_second=1)
    messaging.add("q", "m", b"x", delay_seconds=9)
    messaging.prepare("q", "h", b"x", ask_after_seconds=9)
    messaging.resolve("q", "h", "commit")
    messaging.post("address", b"x", 9)
    bus.refusal()
    listed = re.findall(r"`(cw:[a-z]+)(:\*)?", OPERATIONS.read_text())
    families = {family for family, _ in listed}
    found = {key.decode() for key in keys(bus, "*")}
    assert {":".join(key.split(":")[:2]) for key in found} <= families
    for key in found:
        if key.startswith(("cw:once:", "cw:writer:", "cw:reader:", "cw:given:", "cw:seq:", "cw:marks:", "cw:names:")):
            assert bus._store.call("TTL", key) > 0, key
    messaging.close()


def test_every_table_that_the_code_names_is_listed_with_its_bound() -> None:
    root = OPERATIONS.parents[1]
    listed = set(re.findall(r"`([a-z_]+)(?:[:/]\*)?`", OPERATIONS.read_text().partition("### Keyed tables")[2]))
    parts = ("bus", "broker", "relay", "ingestor", "flink_replacement_spark", "gateways", "triggers")
    text = "\n".join(file.read_text() for part in parts for file in sorted((root / part).rglob("*.py")))
    named = set(re.findall(r'^(?:_?TABLE(?:_[A-Z]+)*|[A-Z_]*STATE_PREFIX) = "([a-z_]+)"', text, re.MULTILINE))
    named |= set(re.findall(r'self\._table = f"([a-z_]+)[:/]', text))
    named |= set(re.findall(r'Followed\(\s*[\w.]+,\s*[\w.]+,\s*"([a-z_]+)"', text))
    assert len(named) > 25
    assert named - listed == set()
