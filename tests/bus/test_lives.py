"""A reader notices that the store went back in time, even if other records have filled the lost offsets since."""

from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as hyp

from bus.api import Lives, Record
from bus.lives import agreed
from candlewright.wire.errors import RecordsLost
from tests.fresh_bus import FreshBus


@dataclass
class Log:
    """The contents of a partition and its history; `copies` are the states that it may be set back to."""

    records: list[int] = field(default_factory=list)
    history: str = ""
    copies: list[tuple[list[int], str]] = field(default_factory=list)


@given(
    hyp.lists(hyp.tuples(hyp.sampled_from(["append", "copy", "restart", "restore"]), hyp.integers(0, 5)), max_size=60)
)
def test_two_histories_agree_up_to_the_first_record_that_differs(steps: list[tuple[str, int]]) -> None:
    log, life, number = Log(), 0, 0
    seen: list[tuple[list[int], str]] = [([], "")]
    for what, count in steps:
        if what == "append":
            for _ in range(count):
                if not log.history.startswith(f"life{life}@"):
                    log.history = f"life{life}@{len(log.records)} {log.history}".strip()
                log.records.append(number := number + 1)
        elif what == "copy":
            log.copies.append((list(log.records), log.history))
        elif what == "restart":
            life += 1
        elif log.copies:
            records, log.history = log.copies[count % len(log.copies)]
            log.records = list(records)
            # Another run of the server loads what was copied.
            life += 1
        seen.append((list(log.records), log.history))
    for records, history in seen:
        same = 0
        while same < min(len(records), len(log.records)) and records[same] == log.records[same]:
            same += 1
        kept = agreed(history, log.history, len(log.records))
        # Nothing is known about records that never existed.
        assert min(len(records), kept) == same


def test_records_that_were_there_before_lives_were_counted_are_trusted() -> None:
    assert agreed("", "new@90", 100) == 100
    assert agreed("-@0", "new@90 -@0", 100) == 90
    assert agreed("new@90 -@0", "", 70) == 70
    assert agreed("new@90 -@0", "other@80 -@0", 100) == 80


def test_a_store_that_was_emptied_and_filled_past_the_old_end_is_noticed() -> None:
    bus = FreshBus()
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"old")] * 5)
    lives = Lives()
    assert len(bus.read("t", 0, 0, lives=lives)) == 5
    bus._store.call("FLUSHDB")
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"new")] * 9)
    for _ in range(2):
        with pytest.raises(RecordsLost) as lost:
            bus.read("t", 0, 5, lives=lives)
        assert (lost.value.offset, lost.value.kept) == (5, 0)
    with pytest.raises(RecordsLost):
        bus.wait({("t", 0): 5}, 0, lives=lives)
    (state,) = bus.state("t")
    assert lives.rewound(("t", 0), 5, state.lives, end=state.end) == 0
    assert len(bus.read("t", 0, 0, lives=lives)) == 9


def test_a_partition_remembers_a_bounded_number_of_lives() -> None:
    bus = FreshBus()
    bus.create_topic("t", 1)
    for number in range(80):
        bus._store.call("SET", "cw:life", f"{number:012}")
        bus.publish("t", [Record(b"")])
    words = bus.state("t")[0].lives.split()
    assert words == [f"{number:012}@{number}" for number in range(79, 15, -1)]


def test_a_connection_that_meets_another_run_of_the_server_begins_a_life() -> None:
    bus = FreshBus()
    bus.publish("t", [Record(b"", partition=0)])
    with redis.Redis.from_url(bus.url) as client:
        before = client.get("cw:life")
        assert isinstance(before, bytes)
        bus._store._drop_idle()
        bus.publish("t", [Record(b"", partition=0)])
        assert client.get("cw:life")[:12] == bus.state("t")[0].lives[:12].encode()  # type: ignore[index]
        # As in a copy of another server's data.
        client.set("cw:life", before[:12] + b"0" * 40)
        bus._store._drop_idle()
        bus.publish("t", [Record(b"", partition=0)])
        after = client.get("cw:life")
    assert isinstance(after, bytes)
    assert after[:12] != before[:12]
    assert bus.state("t")[0].lives.startswith(f"{after[:12].decode()}@2 ")


def test_records_from_before_lives_were_counted_are_taken_as_they_are() -> None:
    """A data directory of an older version, to which nothing has been written since."""
    assert agreed("-@0", "", 7) == 7
    lives = Lives()
    for end in (7, 7, 9):
        lives.check(("t", 0), end, "", end=end)
