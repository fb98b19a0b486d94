"""Each record reaches its table once, whatever fails in between."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise

import pytest

from bus import Bus, PartitionState, Record, RecordRun, StoredRecord, TopicPartition
from bus.dead_letters import kept
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from flink_replacement_spark.tables import follower
from flink_replacement_spark.tables.follower import Followed, Follower, Taken
from tests.flink_replacement_spark.harness import wait_for

_numbers = count()


def digest(records: Sequence[StoredRecord]) -> None:
    for record in records:
        if record.value.startswith(b"bad"):
            raise ValueError("cannot be stored")


def decode(values: Sequence[bytes], lengths: Sequence[int]) -> bytes:
    return b"".join(values)


class Table:
    """A table in memory: rows by the commit that wrote them."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.commits: dict[str, int] = {}
        self.failures: list[str] = []

    def store(self, taken: Taken) -> None:
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "before":
            raise OSError("the catalog is locked")
        digest(taken.records)
        if not (taken.is_repeat and taken.name in self.commits):
            assert taken.name not in self.commits
            self.rows += [record.value for record in taken.records]
            self.commits[taken.name] = len(taken.records)
        if failure == "after":
            raise OSError("the answer was lost")


class Case:
    def __init__(self, bus: Bus) -> None:
        self.bus, self.table, self.stopping = bus, Table(), threading.Event()
        name = f"followed-{next(_numbers)}"
        self.followed = Followed(
            topic=name, reader="table", state=f"{name}-state", max_records=10, many_records=5, digest=digest
        )
        bus.create_topic(name, 2)
        self.follower = self.restart()

    def restart(self) -> Follower:
        self.follower = Follower(self.bus, self.followed, self.table.store, stopping=self.stopping)
        return self.follower

    def publish(self, *values: str, partition: int = 0) -> None:
        self.bus.publish(self.followed.topic, [Record(value.encode(), partition=partition) for value in values])

    def drain(self) -> None:
        while self.follower.step():
            pass

    @property
    def held(self) -> dict[int, int]:
        return self.bus.holds(self.followed.topic, "table")


@pytest.fixture
def case(redis: EmbeddedRedis) -> Iterator[Case]:
    found = Case(RedisBus(redis.url))
    try:
        yield found
    finally:
        found.bus.close()


def test_records_of_all_partitions_reach_the_table_once_and_are_held_until_then(case: Case) -> None:
    case.publish("a", "b")
    case.publish("c", partition=1)
    case.drain()
    assert sorted(case.table.rows) == [b"a", b"b", b"c"]
    assert case.held == {0: 2, 1: 1}
    case.publish("d")
    case.drain()
    assert sorted(case.table.rows) == [b"a", b"b", b"c", b"d"]
    assert not case.follower.step()


@pytest.mark.parametrize("bad", [1, 7])
def test_records_that_cannot_be_stored_are_put_aside_and_the_others_stored(case: Case, bad: int) -> None:
    case.publish(*(f"bad {number}" for number in range(bad)), "good", "fine")
    case.drain()
    assert case.table.rows == [b"good", b"fine"]
    own = [letter for _, letter in kept(case.bus) if letter.topic == case.followed.topic]
    assert [letter.record.decode() for letter in own] == [f"bad {number}" for number in range(bad)]
    assert {letter.reason for letter in own} == {"ValueError: cannot be stored"}


def test_a_table_that_fails_as_if_by_a_record_puts_nothing_aside(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(taken: Taken) -> None:
        raise ValueError("the catalog answered nonsense")

    case.publish("good")
    case.follower._store = fail
    with pytest.raises(ValueError):
        case.drain()
    case.restart().step()
    assert case.table.rows == [b"good"]
    assert [letter for _, letter in kept(case.bus) if letter.topic == case.followed.topic] == []


def test_a_commit_takes_no_more_than_its_share(case: Case) -> None:
    case.publish(*map(str, range(25)))
    case.drain()
    assert list(case.table.commits.values()) == [10, 10, 5]
    assert case.table.rows == [str(number).encode() for number in range(25)]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_that_failed_is_done_again_and_writes_each_row_once(case: Case, moment: str) -> None:
    case.publish("a", "b")
    case.table.failures = [moment]
    with pytest.raises(OSError, match=r"locked|lost"):
        case.follower.step()
    assert case.held == {0: 0, 1: 0}
    case.publish("c")
    case.drain()
    assert case.table.rows == [b"a", b"b", b"c"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_follower_leaves_a_commit_to_the_next_one(case: Case, moment: str) -> None:
    case.publish("a", "b")
    case.table.failures = [moment]
    with pytest.raises(OSError, match=r"locked|lost"):
        case.follower.step()
    case.restart()
    case.publish("c")
    case.drain()
    assert case.table.rows == [b"a", b"b", b"c"]
    assert case.held == {0: 3, 1: 0}


def test_a_follower_killed_before_it_noted_completion_writes_nothing_twice(case: Case) -> None:
    case.publish("a")
    case.drain()
    (taken,) = case.bus.get(case.followed.state, ["taken"])
    assert taken is not None
    case.bus.put(case.followed.state, {"taken": taken.replace(b'"done": true', b'"done": false')})
    case.restart()
    case.drain()
    assert case.table.rows == [b"a"]


def test_a_table_that_fails_shows_its_lag_and_catches_up(case: Case) -> None:
    case.table.failures = ["before"] * 3
    case.publish("a", "b")
    thread = threading.Thread(target=case.follower.run)
    thread.start()
    try:
        wait_for(lambda: case.follower.problem or None)
        assert "cannot be written: the catalog is locked" in case.follower.problem
        status = case.follower.status()
        assert status["backlog_records"] == 2
        wait_for(lambda: case.follower.lag_seconds >= 1 or None)
        wait_for(lambda: case.table.rows == [b"a", b"b"] or None)
        wait_for(lambda: not case.follower.problem or None)
        assert case.follower.lag_seconds == 0
    finally:
        case.stopping.set()
        thread.join()


def test_records_published_before_a_stop_are_in_the_table_after_the_flush(case: Case) -> None:
    case.publish("a")
    case.stopping.set()
    case.follower.run()
    case.follower.flush()
    assert case.table.rows == [b"a"]


def test_many_records_do_not_wait_for_the_second_to_pass(case: Case) -> None:
    class Impatient(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError("it waits although many records are there")

    follower = Follower(case.bus, case.followed, case.table.store, stopping=Impatient())
    case.publish(*map(str, range(25)))
    for _ in range(3):
        follower._round()
    assert list(case.table.commits.values()) == [10, 10, 5]


class Flood(threading.Event):
    """While the follower waits, each of these numbers of records arrives, one number per wait."""

    def __init__(self, case: Case, *arriving: int) -> None:
        super().__init__()
        self.case, self.arriving = case, list(arriving)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout < 0.1
        self.case.publish(*["x"] * self.arriving.pop(0))
        return False


@pytest.mark.parametrize(("arriving", "commits"), [((0,), [5]), ((2, 1, 0), [8]), ((2, 3), [10]), ((3, 3), [10])])
def test_many_records_share_a_commit_with_those_that_follow_at_once(
    case: Case, arriving: tuple[int, ...], commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, read_runs = [], case.bus.read_runs

    def noted(topic: str, partition: int, *, first: int, end: int) -> Iterator[RecordRun]:
        read.extend(range(first, end))
        return read_runs(topic, partition, first=first, end=end)

    monkeypatch.setattr(case.bus, "read_runs", noted)
    flood = Flood(case, *arriving)
    case.publish(*["x"] * 5)
    followed = replace(case.followed, decode=decode)
    Follower(case.bus, followed, case.table.store, stopping=flood)._round()
    assert list(case.table.commits.values()) == commits
    assert not flood.arriving
    assert read == list(range(commits[0]))


def test_a_flood_without_end_waits_for_half_a_second(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    now, flood = 100.0, Flood(case, *[1] * 100)

    def monotonic() -> float:
        nonlocal now
        now += 0.05
        return now

    monkeypatch.setattr(follower.time, "monotonic", monotonic)
    case.publish(*["x"] * 5)
    followed = replace(case.followed, max_records=1_000, decode=decode)
    Follower(case.bus, followed, case.table.store, stopping=flood)._round()
    (count,) = case.table.commits.values()
    assert 5 < count < 20


def test_records_read_ahead_are_read_again_if_the_store_may_have_replaced_them(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.publish(*["lost"] * 5)
    case.follower._read(*case.follower._range(case.follower._states()))
    other = f"{case.followed.topic}-other"
    case.bus.create_topic(other, 2)
    case.bus.publish(other, [Record(b"new", partition=0)] * 5)
    states, read_runs = [replace(state, lives="other@0") for state in case.bus.state(other)], case.bus.read_runs
    monkeypatch.setattr(case.bus, "state", lambda topic: states)
    monkeypatch.setattr(
        case.bus, "read_runs", lambda topic, partition, *, first, end: read_runs(other, partition, first=first, end=end)
    )
    case.follower.step()
    assert case.table.rows == [b"new"] * 5


def test_a_record_after_a_pause_is_stored_as_soon_as_it_is_published(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "INTERVAL_SECONDS", 60.0)
    thread = threading.Thread(target=case.follower.run)
    case.publish("a")
    thread.start()
    try:
        wait_for(lambda: case.follower.stored_records or None)
        case.follower._committed_at = -1_000.0
        case.publish("b")
        wait_for(lambda: case.table.rows == [b"a", b"b"] or None)
    finally:
        case.stopping.set()
        case.publish("c")
        thread.join()


def test_records_that_the_bus_has_lost_do_not_stop_those_that_follow(case: Case) -> None:
    case.publish("a", "b", "c")
    case.table.failures = ["before"]
    with pytest.raises(OSError, match="locked"):
        case.follower.step()
    case.bus.release(case.followed.topic, "table")
    case.bus.trim(case.followed.topic, keep_seconds=0)
    case.restart()
    case.publish("d")
    case.drain()
    assert case.table.rows == [b"d"]


def test_records_that_trickle_in_share_ever_fewer_commits(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    now, commits = 100.0, [100.0]

    class Trickle(threading.Event):
        """A record arrives while the follower waits."""

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now = round(now + (timeout or 0.0), 6)
            case.publish("x")
            return False

    trickle, states_after = Trickle(), case.bus.states_after

    def later(after: Mapping[TopicPartition, int], timeout_seconds: float) -> dict[TopicPartition, PartitionState]:
        trickle.wait(timeout_seconds)
        return states_after(after, 0.0)

    monkeypatch.setattr(case.bus, "states_after", later)
    monkeypatch.setattr(follower.time, "monotonic", lambda: now)
    followed = replace(case.followed, many_records=1_000)
    case.follower = Follower(case.bus, followed, lambda taken: commits.append(now), stopping=trickle)
    while now < 120:
        case.follower._round()
    assert [later - former for former, later in pairwise(commits)] == [1, 1, 2, 4, 5, 5]
    now += 60
    after_pause = now
    while len(commits) < 9:
        case.follower._round()
    assert commits[-2:] == [after_pause, after_pause + 1]


def test_a_topic_without_records_is_held_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    hold = case.bus.hold
    monkeypatch.setattr(case.bus, "hold", lambda *arguments: held.append(arguments[0]) or hold(*arguments))
    for _ in range(3):
        case.follower._look()
    assert held == [case.followed.topic]
    assert case.held == {0: 0, 1: 0}
