"""A server that answers but accepts no writes for a time: calls fail with the cause, nothing is half done, and calls
succeed afterwards.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from bus import topics
from bus.api import Bus, Record, SequenceStamp
from bus.messaging import Claim
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from bus.redis.redis_messaging import RedisMessaging
from bus.redis.store import _refusal
from candlewright.wire.errors import BusError, BusRefusing


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis"), fsync="no") as server:
        yield server


@pytest.fixture
def admin(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("min-replicas-to-write", 0)
        client.replicaof("NO", "ONE")


@pytest.fixture
def bus(server: EmbeddedRedis, admin: redis.Redis) -> Iterator[RedisBus]:
    bus = RedisBus(server.url, partitions=1, retry_seconds=0.1)
    yield bus
    bus.close()


@pytest.fixture
def messaging(bus: RedisBus) -> Iterator[RedisMessaging]:
    messaging = RedisMessaging(bus, retry_seconds=0.1)
    yield messaging
    messaging.close()


def fill_memory(admin: redis.Redis) -> None:
    admin.config_set("maxmemory", 1)


def content(admin: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: admin.dump(key) for key in sorted(admin.scan_iter())}


def test_asking_for_a_refusal_writes_nothing_to_the_log(bus: RedisBus, admin: redis.Redis) -> None:
    bus.publish("t", [Record(b"first")])
    size = admin.info("persistence")["aof_current_size"]
    assert bus.refusal() == ""
    assert admin.info("persistence")["aof_current_size"] == size > 0


def test_at_maxmemory_a_record_is_refused_by_name_and_taken_when_there_is_room(
    bus: RedisBus, admin: redis.Redis
) -> None:
    bus.publish("t", [Record(b"first")])
    assert bus.refusal() == ""
    fill_memory(admin)
    with pytest.raises(BusRefusing, match=r"Redis has reached maxmemory \(OOM\)") as caught:
        bus.publish("t", [Record(b"second")])
    assert caught.value.code == "OOM" and caught.value.retryable
    assert bus.refusal() == str(caught.value)
    assert [record.value for record in bus.read("t", 0, 0)] == [b"first"]
    admin.config_set("maxmemory", 0)
    bus.publish("t", [Record(b"third")])
    assert bus.refusal() == ""
    assert [record.value for record in bus.read("t", 0, 0)] == [b"first", b"third"]


def test_a_call_waits_for_room_within_its_patience(server: EmbeddedRedis, admin: redis.Redis) -> None:
    bus = RedisBus(server.url, retry_seconds=20)
    fill_memory(admin)
    threading.Timer(0.3, lambda: admin.config_set("maxmemory", 0)).start()
    assert len(bus.publish("t", [Record(b"x")])) == 1
    bus.close()


def calls_of(bus: RedisBus, messaging: RedisMessaging) -> dict[str, Callable[[], object]]:
    """Calls that write, each after what `prepare` has set up."""
    stamp = SequenceStamp("s", tag=b"\x68")
    long = [Record(b"v" * 50, key=b"k", sequence=stamp) for _ in range(300)]

    def once() -> object:
        return bus.publish_once("t", Record(b"x"), registry="r", name="n", content=b"c", keep_seconds=60)

    def receive(*, in_order: bool = False) -> object:
        return messaging.receive(
            "grouped", "g", "c", partition=0, max_records=3, hide_seconds=9, default_hide_seconds=9, in_order=in_order
        )

    return {
        "publish": lambda: bus.publish("t", [Record(b"x"), Record(b"y", key=b"k")]),
        "publish packs": lambda: bus.publish("t", long),
        "publish anew": lambda: bus.publish("made", [Record(b"x", sequence=SequenceStamp("new"))]),
        "publish as": lambda: bus.publish_as("t", [Record(b"x")], writer="w", number=1),
        "publish once": once,
        "publish new": lambda: bus.publish_new(
            "t", [Record(b"x"), Record(b"y")], registry="r", names=["a", "b"], keep_seconds=9
        ),
        "publish an outcome": lambda: bus.publish(topics.HISTORY_OUTCOMES, [Record(b"x")]),
        "create topic": lambda: bus.create_topic("other", 3),
        "create group": lambda: bus.create_group("t", "h", at_end=False),
        "delete group": lambda: bus.delete_group("grouped", "g"),
        "read group": lambda: bus.read_group("grouped", "g", "c"),
        "claim": lambda: bus.claim_expired("grouped", "g", "d", min_idle_seconds=0),
        "hold": lambda: bus.hold("t", "reader", {0: 1}),
        "trim": lambda: bus.trim("t", keep_seconds=0),
        "put": lambda: bus.put("table", {"a": b"1", "b": b"2"}, keep_seconds=9),
        "put new": lambda: bus.put_new("table", "new", b"1"),
        "replace": lambda: bus.replace("table", "replaced", None, new=b"1", put={"other": b"2"}, delete=["kept"]),
        "delete": lambda: bus.delete("table", ["kept"]),
        "revoke": lambda: bus.revoke(["lease"]),
        "take": lambda: bus.take("budget", 1, capacity=2, per_second=1),
        "receive": receive,
        "receive in order": lambda: receive(in_order=True),
        "acknowledge": lambda: messaging.acknowledge([Claim("grouped", "g", 0, 0, 1)]),
        "bury": lambda: messaging.bury(Claim("grouped", "g", 0, 0, 1), queue="q", id="i", payload=b"p"),
        "add": lambda: messaging.add("q", "later", b"p", delay_seconds=0),
        "claim due": lambda: messaging.claim_due("q", max_items=9, lease_seconds=9),
        "prepare": lambda: messaging.prepare("q", "half", b"p", ask_after_seconds=9),
        "resolve": lambda: messaging.resolve("q", "undecided", "commit", delay_seconds=0),
    }


def prepare(bus: RedisBus, messaging: RedisMessaging) -> None:
    bus.publish("t", [Record(b"x", sequence=SequenceStamp("s")) for _ in range(9)])
    bus.create_group("grouped", "g", at_end=False)
    bus.publish("grouped", [Record(b"x") for _ in range(9)])
    messaging.receive("grouped", "g", "c", partition=0, max_records=1, hide_seconds=0, default_hide_seconds=9)
    bus.put("table", {"kept": b"1"})
    bus.grant({"lease": b""})
    messaging.add("q", "there", b"p", delay_seconds=0)
    messaging.prepare("q", "undecided", b"p", ask_after_seconds=9)


#: Calls that add records, rows or names; all others make room, or let work end.
REFUSED = {
    "publish", "publish packs", "publish anew", "publish as", "publish once", "publish new", "create topic",
    "create group", "put new", "take", "add", "prepare",
}  # fmt: skip


@pytest.mark.parametrize("name", list(calls_of(None, None)))  # type: ignore[arg-type]
def test_at_maxmemory_a_call_is_refused_whole_or_done_whole(
    bus: RedisBus, messaging: RedisMessaging, admin: redis.Redis, name: str
) -> None:
    prepare(bus, messaging)
    call = calls_of(bus, messaging)[name]
    fill_memory(admin)
    before = content(admin)
    if name in REFUSED:
        with pytest.raises(BusRefusing):
            call()
        assert content(admin) == before
        admin.config_set("maxmemory", 0)
    call()
    assert content(admin) != before


def test_a_store_at_its_limit_is_emptied_by_its_readers(bus: RedisBus, admin: redis.Redis) -> None:
    bus.create_topic(topics.HISTORY, 1)
    bus.hold(topics.HISTORY, "reader", {0: 0})
    used = int(admin.info("memory")["used_memory"])
    admin.config_set("maxmemory", used + (4 << 20))
    with pytest.raises(BusRefusing):
        while True:
            bus.publish(topics.HISTORY, [Record(b"x" * 100_000)])
    end = bus.state(topics.HISTORY)[0].end
    bus.publish(topics.HISTORY_OUTCOMES, [Record(b"done")])
    bus.publish_once(
        topics.NOTIFICATIONS, Record(b"final"), registry="finals", name="r", content=b"final", keep_seconds=60
    )
    bus.hold(topics.HISTORY, "reader", {0: end})
    assert bus.trim(topics.HISTORY, keep_seconds=0) == end
    bus.publish(topics.HISTORY, [Record(b"x" * 100_000)])


def test_a_replica_and_a_server_without_its_replicas_are_refusals(bus: RedisBus, admin: redis.Redis) -> None:
    bus.publish("t", [Record(b"x")])
    admin.replicaof("127.0.0.1", 1)
    with pytest.raises(BusRefusing, match="READONLY"):
        bus.publish("t", [Record(b"x")])
    admin.replicaof("NO", "ONE")
    admin.config_set("min-replicas-to-write", 1)
    assert "NOREPLICAS" in bus.refusal()
    with pytest.raises(BusRefusing, match="NOREPLICAS"):
        bus.grant({"lease": b""})
    admin.config_set("min-replicas-to-write", 0)
    assert bus.refusal() == ""


def test_a_log_that_cannot_be_written_is_a_refusal(bus: RedisBus, admin: redis.Redis, tmp_path: Path) -> None:
    folder = admin.config_get("dir")["dir"]
    (tmp_path / "gone").mkdir()
    try:
        admin.config_set("dir", str(tmp_path / "gone"))
    except redis.ResponseError as error:
        pytest.skip(f"this server protects its folder: {error}")
    (tmp_path / "gone").rmdir()
    admin.config_set("save", "900 1")
    bus.publish("t", [Record(b"x")])
    try:
        with pytest.raises(redis.ResponseError):
            admin.save()
        admin.execute_command("BGSAVE")
        while admin.info("persistence")["rdb_bgsave_in_progress"]:
            pass
        with pytest.raises(BusRefusing, match="MISCONF"):
            bus.publish("t", [Record(b"x")])
    finally:
        admin.config_set("dir", folder)
        admin.config_set("save", "")
        admin.save()
    bus.publish("t", [Record(b"x")])


def test_a_server_that_is_busy_with_a_script_is_a_refusal(server: EmbeddedRedis, admin: redis.Redis) -> None:
    bus: Bus = RedisBus(server.url, retry_seconds=0.1)
    assert bus.topics() == []
    admin.config_set("lua-time-limit", 1)

    def spin() -> None:
        with redis.Redis.from_url(server.url) as client, pytest.raises(redis.ResponseError):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        with pytest.raises(BusRefusing, match="BUSY"):
            while True:
                bus.topics()
    finally:
        admin.script_kill()
        thread.join()
    assert bus.topics() == []
    bus.close()


def test_a_bus_that_was_accepted_waits_for_its_user_and_one_that_was_not_does_not(
    server: EmbeddedRedis, admin: redis.Redis
) -> None:
    """Its calls used to fail as if they could never succeed, and each part ended."""
    admin.acl_setuser("guest", enabled=True, reset=True, passwords=["+p"], keys=["cw:*"], commands=["+@all"])
    url = f"redis://guest:p@127.0.0.1:{server.port}/0"
    bus, stranger = RedisBus(url, retry_seconds=1.0), RedisBus(url, retry_seconds=60)
    bus.publish("t", [Record(b"first", partition=0)])
    admin.acl_setuser("guest", enabled=True, passwords=["-p", "+q"])
    admin.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(BusError, match="invalid username-password") as never:
        stranger.publish("t", [Record(b"lost", partition=0)])
    assert not never.value.retryable
    began = time.monotonic()
    with pytest.raises(
        BusRefusing, match=r"does not accept calls: Redis refuses the user or password .* \(WRONGPASS\)"
    ):
        bus.publish("t", [Record(b"lost", partition=0)])
    assert time.monotonic() - began > 0.5
    threading.Timer(0.3, lambda: admin.acl_setuser("guest", enabled=True, passwords=["+p"])).start()
    assert bus.publish("t", [Record(b"second", partition=0)])[0].offset == 1
    admin.acl_setuser("guest", enabled=True, commands=["-xadd"])
    with pytest.raises(BusRefusing, match="NOPERM"):
        bus.publish("t", [Record(b"third", partition=0)])
    for each in (bus, stranger):
        each.close()
    admin.acl_deluser("guest")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "OOM"),
        (redis.ResponseError("Error running script (call to f_0): @user_script:9: -OOM command not allowed"), "OOM"),
        (redis.ResponseError("OOM command not allowed. script: 0, on @user_script:1."), "OOM"),
        (redis.ResponseError("NOREPLICAS Not enough good replicas to write."), "NOREPLICAS"),
        (redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), "MISCONF"),
        (redis.exceptions.MasterDownError("Link with MASTER is down"), "MASTERDOWN"),
        (redis.exceptions.ClusterDownError("The cluster is down"), "CLUSTERDOWN"),
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), "LOADING"),
        (redis.ResponseError("BUSYGROUP Consumer Group name already exists"), ""),
        (redis.ResponseError("WRONGTYPE Operation against a key"), ""),
        (redis.ConnectionError("refused"), ""),
    ],
)
def test_refusals_are_known_by_their_codes(error: redis.RedisError, code: str) -> None:
    assert _refusal(error) == code
