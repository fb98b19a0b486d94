"""What a step writes together."""

import pytest

from bus import Record, Swap
from candlewright.wire.errors import BusError
from flink_replacement_spark.engine import writes as engine_writes
from flink_replacement_spark.engine.writes import Direct, Outdated, Together, Writes, commit_together
from tests.fresh_bus import FreshBus


def keep(writes: Writes, old: bytes | None, new: bytes, *, called: list[bytes]) -> None:
    """Write as a step does: publish, keep the state, and remember what is kept."""
    number = int(new)
    writes.publish_as("t", [Record(b"r" + new, partition=0)], writer="w", number=number)
    assert writes.replace("state", "p", old, new=new, put={f"p/{number}": b"s" + new}, delete=[f"p/{number - 1}"])
    writes.afterwards(lambda: called.append(new))


def plan(old: bytes | None, new: bytes) -> list[Swap]:
    return [Swap("steps", "p", old, new, {})]


@pytest.fixture(params=["one call", "call by call"])
def bus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FreshBus:
    if request.param == "call by call":
        monkeypatch.setattr(engine_writes, "MOST_BYTES", 1)
    bus = FreshBus(1)
    bus.create_topic("t", 1)
    return bus


def test_nothing_is_written_before_the_commit_and_all_of_it_is_then(bus: FreshBus) -> None:
    together, called = Together(bus), list[bytes]()
    assert together.is_empty
    keep(together, None, b"1", called=called)
    assert not together.is_empty and not bus.items("state") and not bus.state("t")[0].end and not called
    assert commit_together([together], plan(None, b"1"))
    assert bus.items("state") == {"p": b"1", "p/1": b"s1"} and bus.items("steps") == {"p": b"1"}
    assert [record.value for record in bus.read("t", 0, 0)] == [b"r1"] and called == [b"1"]
    keep(together, b"1", b"2", called=called)
    together.begin()
    assert together.is_empty and commit_together([together], plan(b"1", b"2")), "a failed step left nothing of it"
    assert bus.items("state")["p"] == b"1" and called == [b"1"]


def test_rows_that_were_written_are_known_until_another_has_written_them(bus: FreshBus) -> None:
    one, other, called = Together(bus), Together(bus), list[bytes]()
    keep(one, None, b"1", called=called)
    assert commit_together([one], plan(None, b"1"))
    (kept,) = other.get("state", ["p"])
    keep(other, kept, b"2", called=called)
    assert commit_together([other], plan(b"1", b"2"))
    assert one.get("state", ["p"]) == [b"1"], "as far as it knows"
    keep(one, b"1", b"2", called=called)
    assert not commit_together([one], plan(b"1", b"3"))
    assert one.get("state", ["p"]) == [b"2"] and one.is_empty and called == [b"1", b"2"]
    assert bus.state("t")[0].end == 2


def test_a_failed_commit_leaves_nothing_known_and_nothing_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = FreshBus(1)
    together, called = Together(bus), list[bytes]()

    def refuse(*_: object, **named: object) -> bool:
        raise BusError("refused")

    keep(together, None, b"1", called=called)
    monkeypatch.setattr(bus, "commit", refuse)
    with pytest.raises(BusError, match="refused"):
        commit_together([together], plan(None, b"1"))
    assert together.is_empty and together.get("state", ["p"]) == [None] and not called


def test_an_outdated_state_ends_writing_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_writes, "MOST_BYTES", 1)
    bus = FreshBus(1)
    bus.create_topic("t", 1)
    together, called = Together(bus), list[bytes]()
    keep(together, None, b"1", called=called)
    bus.put("state", {"p": b"9"})
    with pytest.raises(Outdated):
        commit_together([together], plan(None, b"1"))
    assert not called


def test_direct_writes_are_written_at_once() -> None:
    bus, called = FreshBus(1), list[bytes]()
    bus.create_topic("t", 1)
    keep(Direct(bus), None, b"1", called=called)
    assert Direct(bus).get("state", ["p"]) == [b"1"] and bus.state("t")[0].end == 1 and called == [b"1"]
