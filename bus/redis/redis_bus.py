"""`RedisBus`: the bus on one Redis 6.2 or newer; see README.md for the layout of its keys."""

import math
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bus.api import (
    NOBODY,
    FewRecords,
    GroupRecord,
    Once,
    PartitionState,
    Position,
    Record,
    StoredRecord,
    Swap,
    TopicPartition,
)
from bus.limits import (
    DEFAULT_GROUP_EXPIRY_SECONDS,
    DEFAULT_MAX_BYTES,
    EVICTED,
    REFUSED,
    Limits,
    count_trimmed,
    group_expired,
    pending_lost,
    trim_goal,
)
from bus.lives import LATE_ACKNOWLEDGEMENTS, Lives, life_of
from bus.lost import report
from bus.redis import appending
from bus.redis.pending import PendingAppend, PendingNumber
from bus.redis.replies import dense, stored
from bus.redis.store import Argument, Store, pack
from bus.routing import Router
from bus.topics import ENDING, REFUSING_REGISTRIES
from candlewright.wire.errors import BusError, BusFull, BusLimit, CallsLost, LeaseLost, OffsetOutOfRange, RecordsLost
from core.log import get_logger

log = get_logger()

_LIMITS = Limits()
_TRIM_CHUNK = 2_000
_UNPACK_CHUNK = 2_000
#: The maximum number of arguments that a script can pass to one command.
_DELETED_AT_ONCE = 4_000
#: Requested at once.
_MAX_ENTRIES = 1_000
#: Of each partition, with a wait for records.
_FEW_ENTRIES = 8
#: How long a call is remembered, so that its repetition writes nothing: after a lost connection, or a lost process.
_CALL_SECONDS = 600
_NAMED_CALL_SECONDS = 30 * 86_400


class Known(tuple[int, ...]):
    """The positions of names that were already known."""


class RedisBus:
    """See `bus.api.Bus`. Safe for threads; after a fork the child makes its own connections.

    `url`: redis://, rediss:// or unix://. `partitions`: for topics that this object creates without an explicit number.
    `max_bytes`: of one topic. `retry_seconds`: how long a call retries if the server is down, before it raises
    BusUnavailable. `timeout_seconds`: for one answer.
    """

    def __init__(
        self,
        url: str,
        partitions: int = 4,
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        group_expiry_seconds: float = DEFAULT_GROUP_EXPIRY_SECONDS,
        retry_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        limits: Limits = _LIMITS,
    ) -> None:
        self.url = url
        self._limits = limits
        self._evicted: dict[str, int] = {}
        self._store = Store(url, retry_seconds=retry_seconds, timeout_seconds=timeout_seconds)
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._group_expiry_seconds = group_expiry_seconds
        self._router = Router()
        self._counts: dict[str, int] = {}
        #: By topic and number of partitions, see `_ask_for_state`.
        self._questions: dict[tuple[str, int], bytes] = {}
        self._means: dict[TopicPartition, tuple[float, float]] = {}
        self._touched: dict[tuple[str, str], float] = {}
        self._writer = threading.local()

    # ---- log
    def publish(self, topic: str, records: Sequence[Record], *, lease: str | None = None) -> list[Position]:
        if not records:
            if lease is not None and not self._store.call("HEXISTS", "cw:leases", lease):
                raise LeaseLost(lease)
            return []
        positions: list[Position] = self._append(topic, records, lease=lease, once=())
        return positions

    def publish_as(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        writer: str,
        number: int,
        lease: str | None = None,
        is_contiguous: bool = False,
    ) -> list[Position]:
        if not records:
            return []
        call = f"as:{writer}", number
        positions: list[Position] = self._append(
            topic, records, lease=lease, once=(), call=call, is_contiguous=is_contiguous
        )
        return positions

    def begin_publish_as(
        self, topic: str, records: Sequence[Record], *, writer: str, number: int
    ) -> PendingAppend | None:
        count = self._counts.get(topic)
        if not records or count is None:
            return None
        chosen = self._router.route(topic, records, count)
        pending = PendingAppend(Counter(chosen))
        arguments, packed = self._arguments(
            topic, records, chosen, count, (f"as:{writer}", number), _NAMED_CALL_SECONDS
        )
        return pending if self._store.begin_script(pending, "publish", arguments, arguments=packed) else None

    def publish_once(
        self, topic: str, record: Record, *, registry: str, name: str, content: bytes, keep_seconds: float
    ) -> Once:
        once = (_once_key(registry, name), content, _milliseconds(keep_seconds))
        found = self._append(topic, [record], lease=None, once=once, registry=registry)
        if isinstance(found, bytes):
            return Once(False, found, None)
        return Once(True, content, found[0])

    def publish_new(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        registry: str,
        names: Sequence[str],
        keep_seconds: float,
        contents: Sequence[bytes] = (),
    ) -> list[bool]:
        firsts: dict[str, int] = {}
        for place, name in enumerate(names):
            firsts.setdefault(name, place)
        while firsts:
            keys = [_once_key(registry, name).encode() for name in firsts]
            own = [contents[place] for place in firsts.values()] if contents else []
            lengths = "*" + " ".join(str(len(key)) for key in keys) + "=" + " ".join(str(len(each)) for each in own)
            once = (lengths, b"".join((*keys, *own)), _milliseconds(keep_seconds))
            chosen = [records[place] for place in firsts.values()]
            found = self._append(topic, chosen, lease=None, once=once, registry=registry)
            if not isinstance(found, Known):
                break
            # Nothing was written.
            asked = list(firsts)
            for known in found:
                del firsts[asked[known]]
        return [firsts.get(name) == place for place, name in enumerate(names)]

    def recall(self, registry: str, names: Sequence[str]) -> list[bytes | None]:
        if not names:
            return []
        found: list[bytes | None] = self._store.call("MGET", *(_once_key(registry, name) for name in names))
        return found

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_records: int = 1_000,
        max_bytes: int = 16 << 20,
        lives: Lives | None = None,
    ) -> list[StoredRecord]:
        self._check_partition(topic, partition)
        found: list[StoredRecord] = []
        size = 0
        at = offset
        while len(found) < max_records and size < max_bytes:
            wanted = max_records - len(found)
            count = self._entries_of(topic, partition, wanted, max_bytes - size)
            entries, bounds = self._store.calls(
                [
                    ("XRANGE", _log(topic, partition), f"{at}-0", "+", "COUNT", count),
                    ("HMGET", f"cw:topic:{topic}", *(f"{partition}:{name}" for name in ("first", "end", "lives"))),
                ]
            )
            first, end = int(bounds[0] or 0), int(bounds[1] or 0)
            if lives is not None:
                self._check_lives(lives, (topic, partition), at, bounds[2], end)
            if not first <= at <= end:
                if found:
                    break
                raise OffsetOutOfRange(topic, partition, offset, first=first, end=end)
            if not entries:
                break
            records = dense(entries, at)
            if records is None:
                if found:
                    break
                raise BusError(f"{topic}/{partition} holds entries near {at} that the bus did not write")
            received = sum(len(record[3]) for record in records)
            self._means[topic, partition] = max(1.0, received / len(records)), max(1.0, len(records) / len(entries))
            is_all = len(entries) < count and len(records) <= wanted
            if len(records) > wanted:
                del records[wanted:]
                received = sum(len(record[3]) for record in records)
            if size + received > max_bytes:
                for index, record in enumerate(records):
                    size += len(record[3])
                    if size > max_bytes and (found or index):
                        return found + stored(topic, partition, records[:index])
            else:
                size += received
            found += stored(topic, partition, records)
            at += len(records)
            if is_all:
                break
        return found

    def locate(self, topic: str, name: str, sequence: int) -> Position | None:
        found = self._store.run("locate", topic, name, sequence)
        return Position(*found) if found else None

    def last_sequence(self, name: str) -> int:
        return self.last_sequences([name])[0]

    def last_sequences(self, names: Sequence[str]) -> list[int]:
        found = self._store.calls([("HGET", f"cw:seq:{name}", "last") for name in names])
        return [int(number or 0) for number in found]

    def wait(
        self,
        after: Mapping[TopicPartition, int],
        timeout_seconds: float,
        *,
        lives: Lives | None = None,
        few_records: FewRecords | None = None,
    ) -> set[TopicPartition]:
        deadline = time.monotonic() + timeout_seconds
        if not after:
            threading.Event().wait(max(0.0, timeout_seconds))
            return set()
        for topic, partition in after:
            self._check_partition(topic, partition)
        wanted: dict[str, list[int]] = {}
        for topic, partition in after:
            wanted.setdefault(topic, []).append(partition)
        names = ("end",) if lives is None else ("end", "lives")
        commands = b"".join(
            pack(("HMGET", f"cw:topic:{topic}", *(f"{p}:{name}" for name in names for p in partitions)))
            for topic, partitions in wanted.items()
        )
        while True:
            ready = set()
            arrived, replies = self._look(commands, len(wanted), after, deadline, with_few=few_records is not None)
            for (topic, partitions), found in zip(wanted.items(), replies, strict=True):
                for at, partition in enumerate(partitions):
                    place, end = (topic, partition), int(found[at] or 0)
                    if lives is not None:
                        self._check_lives(lives, place, after[place], found[len(partitions) + at], end)
                    if end > after[place]:
                        ready.add(place)
            if few_records is not None:
                few_records.update(_few(arrived, after))
            if ready or time.monotonic() >= deadline:
                return ready

    def states_after(
        self,
        after: Mapping[TopicPartition, int],
        timeout_seconds: float,
        *,
        lives: Lives | None = None,
        also: Sequence[str] = (),
        few_records: FewRecords | None = None,
    ) -> dict[str, list[PartitionState]]:
        topics = tuple(dict.fromkeys([*(topic for topic, _ in after), *also]))
        commands = b"".join(map(self._ask_for_state, topics))
        deadline = time.monotonic() + timeout_seconds
        while True:
            arrived, replies = self._look(commands, len(topics), after, deadline, with_few=few_records is not None)
            found = _states(topics, replies)
            has_come = False
            for (topic, partition), offset in after.items():
                state = found[topic][partition]
                if lives is not None:
                    self._check_lives(lives, (topic, partition), offset, state.lives.encode(), state.end)
                has_come |= state.end > offset
            if few_records is not None:
                few_records.update(_few(arrived, after))
            if has_come or time.monotonic() >= deadline:
                return found

    def _look(
        self,
        commands: bytes,
        replies: int,
        after: Mapping[TopicPartition, int],
        deadline: float,
        *,
        with_few: bool,
    ) -> tuple[Any, list[Any]]:
        """The new records, for `_few`, and the replies to these commands, as soon as a record has arrived or the time
        is over. The server runs them after a command that blocks, so the records and the states come in one answer.
        """
        left = deadline - time.monotonic()
        if left <= 0 or not after:
            return (), self._store.packed_calls(commands, replies)
        # Shorter than the socket's timeout, so that a hanging server can be distinguished from one without new records.
        block = max(1, math.ceil(min(left, self._store.timeout_seconds / 2) * 1_000))
        streams = [_log(topic, partition) for topic, partition in after]
        ids = [f"{offset}-0" for offset in after.values()]
        count = _FEW_ENTRIES + 1 if with_few else 1
        wait = pack(("XREAD", "COUNT", count, "BLOCK", block, "STREAMS", *streams, *ids))
        arrived, *found = self._store.packed_calls(wait + commands, 1 + replies)
        return arrived or (), found

    def partitions(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = int(self._store.call("HGET", "cw:topics", topic) or 0)
            if count:
                self._counts[topic] = count
        return count

    def create_topic(self, topic: str, partitions: int | None = None) -> int:
        count = self._partitions if partitions is None else partitions
        if not topic or count < 1:
            raise BusError(f"a topic needs a name and a partition, not {topic!r} and {count}")
        made = int(self._store.run("create_topic", topic, count, self._limits.topics))
        if made < 0:
            raise BusLimit("topics", -made, self._limits.topics)
        self._counts[topic] = made
        return made

    def topics(self) -> list[str]:
        return sorted(name.decode() for name in self._store.call("HKEYS", "cw:topics"))

    def state(self, topic: str) -> list[PartitionState]:
        return self.states([topic])[topic]

    def states(self, topics: Sequence[str]) -> dict[str, list[PartitionState]]:
        return _states(topics, self._store.packed_calls(b"".join(map(self._ask_for_state, topics)), len(topics)))

    def _ask_for_state(self, topic: str) -> bytes:
        """The command whose reply `_states` reads."""
        if not (count := self.partitions(topic)):
            raise BusError(f"no topic {topic}")
        found = self._questions.get((topic, count))
        if found is None:
            names = [f"{p}:{name}" for p in range(count) for name in ("first", "end", "size", "lives")]
            found = self._questions[topic, count] = pack(("HMGET", f"cw:topic:{topic}", *names))
        return found

    # ---- retention
    def hold(self, topic: str, reader: str, positions: Mapping[int, int]) -> None:
        if positions:
            pairs = [argument for p, offset in positions.items() for argument in (f"{p}:{reader}", offset)]
            self._store.run("hold", topic, *pairs)

    def release(self, topic: str, reader: str) -> None:
        held = self.holds(topic, reader)
        if held:
            self._store.write([("HDEL", f"cw:holds:{topic}", *(f"{p}:{reader}" for p in held))])

    def holds(self, topic: str, reader: str) -> dict[int, int]:
        found = {}
        for name, offset in _pairs(self._store.call("HGETALL", f"cw:holds:{topic}")):
            partition, _, holder = name.decode().partition(":")
            if holder == reader:
                found[int(partition)] = int(offset)
        return found

    def trim(self, topic: str, *, keep_seconds: float, keep_bytes: int | None = None) -> int:
        dropped = 0
        more = True
        while more:
            reply = self._store.run(
                "trim",
                topic,
                _milliseconds(keep_seconds),
                "inf" if keep_bytes is None else keep_bytes,
                _milliseconds(self._group_expiry_seconds),
                _TRIM_CHUNK,
            )
            dropped += reply[0]
            more = bool(reply[1])
            for group in reply[2:]:
                self._touched.pop((topic, group.decode()), None)
                group_expired(topic, group.decode())
        count_trimmed(topic, dropped)
        return dropped

    # ---- consumer groups
    def create_group(self, topic: str, group: str, *, at_end: bool) -> None:
        count = self.partitions(topic) or self._partitions
        limits = self._limits.topics, self._limits.groups
        while isinstance(made := self._store.run("create_group", topic, count, group, int(at_end), *limits), int):
            if made > 0:
                self._counts[topic] = made
                return
            for partition in range(-made):
                while self._store.run("unpack", topic, partition, _UNPACK_CHUNK):
                    pass
        if made[0] == b"T":
            raise BusLimit("topics", made[1], self._limits.topics)
        raise BusLimit(f"groups of topic {topic}", made[1], self._limits.groups)

    def delete_group(self, topic: str, group: str) -> bool:
        self._touched.pop((topic, group), None)
        return bool(self._store.run("delete_group", topic, group))

    def groups(self, topic: str) -> list[str]:
        return sorted(self._group_positions(topic))

    def read_group(
        self, topic: str, group: str, consumer: str, *, partitions: Sequence[int] | None = None, max_records: int = 100
    ) -> list[GroupRecord]:
        self._touch(topic, group)
        order = self._router.rotated((topic, group), partitions, self.partitions(topic))
        if not order or max_records < 1:
            return []
        call = self._next_call()
        reply = self._store.run("read_group", topic, group, consumer, max_records, *call, _CALL_SECONDS, *order)
        return [
            GroupRecord(record, 1, life_of((lives or b"").decode(), record.offset))
            for partition, entries, lives in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
            for record in stored(topic, int(partition), entries)
        ]

    def acknowledge(
        self, topic: str, group: str, partition: int, *, offsets: Sequence[int], lives: Mapping[int, str] | None = None
    ) -> int:
        if not offsets:
            return 0
        self._touch(topic, group, must_exist=False)
        if not lives:
            command = ("XACK", _log(topic, partition), group, *(f"{offset}-1" for offset in offsets))
            return int(self._store.write([command])[0])
        pairs = (part for offset in offsets for part in (offset, lives.get(offset, "")))
        done, late = self._store.run("acknowledge", topic, group, partition, *pairs)
        if late:
            LATE_ACKNOWLEDGEMENTS.labels(topic).inc(late)
            log.warning("late_acknowledgements", topic=topic, group=group, partition=partition, records=late)
        return int(done)

    def claim_expired(
        self,
        topic: str,
        group: str,
        consumer: str,
        *,
        min_idle_seconds: float,
        partitions: Sequence[int] | None = None,
        max_records: int = 100,
        of_consumer: str | None = None,
    ) -> list[GroupRecord]:
        self._touch(topic, group)
        idle = _milliseconds(min_idle_seconds)
        order = self._router.rotated((topic, group, of_consumer), partitions, self.partitions(topic))
        if not order:
            return []
        of = () if of_consumer is None else (of_consumer,)
        waiting = self._store.calls(
            [("XPENDING", _log(topic, p), group, "IDLE", idle, "-", "+", max_records, *of) for p in order]
        )
        found: list[GroupRecord] = []
        for partition, entries in zip(order, waiting, strict=True):
            entries = entries[: max_records - len(found)]
            if entries:
                found += self._claim(topic, partition, group, consumer, idle, entries)
        return found

    def give_back(self, topic: str, group: str, records: Sequence[GroupRecord]) -> None:
        if records:
            self._store.write([_give_back(topic, group, record) for record in records])

    def pending(self, topic: str, group: str) -> dict[int, int]:
        return {partition: int(reply[0]) for partition, reply in enumerate(self._pending(topic, group))}

    def pending_by_consumer(self, topic: str, group: str) -> dict[int, dict[str, int]]:
        return {
            partition: {consumer.decode(): int(count) for consumer, count in reply[3] or ()}
            for partition, reply in enumerate(self._pending(topic, group))
        }

    def forget_consumer(self, topic: str, group: str, consumer: str) -> None:
        self._store.run("forget_consumer", topic, group, consumer)

    def next_offsets(self, topic: str, group: str) -> dict[int, int]:
        positions = self._check_group(topic, group)
        return {
            p: max(position, part.first)
            for p, (position, part) in enumerate(zip(positions, self.state(topic), strict=True))
        }

    # ---- leases
    def grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> None:
        if leases or revoking:
            self._store.run("grant", *_grant(leases, revoking))

    def begin_grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> PendingNumber | None:
        if not leases and not revoking:
            return None
        pending, arguments = PendingNumber(), _grant(leases, revoking)
        packed = pack(arguments).partition(b"\r\n")[2]
        return pending if self._store.begin_script(pending, "grant", len(arguments), arguments=packed) else None

    def revoke(self, names: Sequence[str]) -> None:
        if names:
            self._store.write([("HDEL", "cw:leases", *names)])

    def leases(self) -> dict[str, bytes]:
        return {name.decode(): note for name, note in _pairs(self._store.call("HGETALL", "cw:leases"))}

    # ---- keyed tables
    def put(self, table: str, values: Mapping[str, bytes], *, keep_seconds: float | None = None) -> None:
        if values:
            keep = "" if keep_seconds is None else _milliseconds(keep_seconds)
            rows = self._limits.rows
            self._store.run("table_put", table, keep, rows, *(part for pair in values.items() for part in pair))

    def put_new(self, table: str, key: str, value: bytes) -> bytes:
        name = f"cw:table:{table}"
        return bytes(self._store.write([("HSETNX", name, key, value), ("HGET", name, key)])[1])

    def replace(
        self,
        table: str,
        key: str,
        old: bytes | None,
        *,
        new: bytes,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> bool:
        rows = put or {}
        expected = b"" if old is None else b"=" + old
        pairs = [part for pair in rows.items() for part in pair]
        return bool(self._store.run("table_replace", table, key, expected, new, len(rows), *pairs, *delete))

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        if not keys:
            return []
        found = dict(_pairs(self._store.run("table_get", table, *keys)))
        return [found.get(key.encode()) for key in keys]

    def items(self, table: str) -> dict[str, bytes]:
        return {key.decode(): value for key, value in _pairs(self._store.run("table_get", table))}

    def delete(self, table: str, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[at : at + _DELETED_AT_ONCE]
            self._store.write([("HDEL", f"cw:table:{table}", *some), ("ZREM", f"cw:expiry:{table}", *some)])

    # ---- shared rate budgets
    def take(self, budget: str, cost: float, *, capacity: float, per_second: float) -> float:
        return float(self._store.run("budget", budget, "take", repr(cost), repr(capacity), repr(per_second)))

    def block_budget(self, budget: str, seconds: float) -> None:
        self._store.run("budget", budget, "block", repr(seconds))

    def correct_budget(self, budget: str, used: float, *, capacity: float) -> None:
        self._store.run("budget", budget, "correct", repr(used), repr(capacity))

    def commit(self, swaps: Sequence[Swap], records: Mapping[str, Sequence[Record]]) -> bool:
        head: list[Argument] = [int(all(topic in ENDING for topic in records)), len(swaps)]
        for swap in swaps:
            head += (swap.table, swap.key, b"" if swap.old is None else b"=" + swap.old, swap.new, len(swap.put))
            head += (part for row in swap.put.items() for part in row)
            head += (len(swap.delete), *swap.delete)
        wanted = {topic: own for topic, own in records.items() if own}
        trimmed: set[str] = set()
        while True:
            count, packed = len(head), [pack(head).partition(b"\r\n")[2]]
            for topic, own in wanted.items():
                partitions = self.partitions(topic) or self._partitions
                chosen = self._router.route(topic, own, partitions)
                arguments, each = self._arguments(topic, own, chosen, partitions, ("", 0), 0)
                packed += (b"$%d\r\n%d\r\n" % (len(str(arguments)), arguments), each)
                count += arguments + 1
            reply = self._store.run_packed("commit", count, b"".join(packed))
            if reply[0] in (b"P", b"X"):
                return bool(reply[0] == b"P")
            topic, why, number = list(wanted)[int(reply[0])], reply[1], int(reply[2])
            if why == b"N":
                self._counts[topic] = number
            elif why == b"T":
                raise BusLimit("topics", number, self._limits.topics)
            else:
                self._make_room(topic, number, is_trimmed=topic in trimmed)
                trimmed.add(topic)

    def count_evicted(self) -> None:
        for name, total in _pairs(self._store.call("HGETALL", "cw:evicted")):
            of, count = name.decode(), int(total)
            EVICTED.labels(of).inc(max(0, count - self._evicted.get(of, 0)))
            self._evicted[of] = count

    def forbids(self) -> str:
        return self._store.forbids()

    def refusal(self) -> str:
        return self._store.refusal()

    def close(self) -> None:
        self._store.close()

    # ---- inside
    def _append(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        lease: str | None,
        once: Sequence[bytes | str],
        call: tuple[str, int] | None = None,
        registry: str = "",
        is_contiguous: bool = False,
    ) -> Any:
        """Positions, or the content (bytes) that `publish_once` found, or the positions of the names that `publish_new`
        found. `call`: a writer and its call's number that outlive this process.
        """
        if not topic:
            raise BusError("a topic needs a name")
        writer, number = call or self._next_call()
        keep_seconds = _CALL_SECONDS if call is None else _NAMED_CALL_SECONDS
        has_trimmed = False
        count = self.partitions(topic) or self._partitions
        while True:
            chosen = self._router.route(topic, records, count)
            arguments, packed = self._arguments(
                topic, records, chosen, count, (writer, number), keep_seconds,
                lease=lease, once=once, is_refusing=registry in REFUSING_REGISTRIES, is_contiguous=is_contiguous,
            )  # fmt: skip
            reply = self._store.run_packed("publish", arguments, packed)
            match reply[0]:
                case b"P":
                    self._counts[topic] = count
                    return appending.positions(chosen, reply[1:])
                case b"N":
                    self._counts[topic] = count = int(reply[1])
                case b"L":
                    raise LeaseLost(str(lease))
                case b"S":
                    raise BusError(f"a publish to {topic} came after a later one of the same writer")
                case b"G":
                    raise CallsLost(writer.removeprefix("as:"), number, int(reply[1]))
                case b"T":
                    raise BusLimit("topics", int(reply[1]), self._limits.topics)
                case b"M":
                    raise BusLimit(f"names of {registry}", int(reply[1]), self._limits.names)
                case b"K":
                    return reply[1]
                case b"D":
                    return Known(map(int, reply[1:]))
                case _:
                    self._make_room(topic, int(reply[1]), is_trimmed=has_trimmed)
                    has_trimmed = True

    def _make_room(self, topic: str, size: int, *, is_trimmed: bool) -> None:
        """`is_trimmed`: trimming has not helped. Raises BusFull."""
        if is_trimmed:
            REFUSED.labels(topic).inc()
            raise BusFull(topic, size, self._max_bytes)
        self.trim(topic, keep_seconds=math.inf, keep_bytes=trim_goal(self._max_bytes))

    def _arguments(
        self,
        topic: str,
        records: Sequence[Record],
        chosen: Sequence[int],
        partitions: int,
        call: tuple[str, int],
        keep_seconds: int,
        *,
        lease: str | None = None,
        once: Sequence[bytes | str] = (),
        is_refusing: bool = False,
        is_contiguous: bool = False,
    ) -> tuple[int, bytes]:
        """The arguments of `lua/publish.lua`."""
        head = (topic, partitions, self._max_bytes, "" if lease is None else f"={lease}", *call)
        limits = self._limits
        bounds = (
            int(topic in ENDING),
            limits.topics,
            limits.sequence_seconds,
            limits.names,
            int(is_refusing),
            int(is_contiguous),
        )
        return appending.packed(records, chosen, (*head, *(once or ("", "", "")), keep_seconds, *bounds))

    def _next_call(self) -> tuple[str, int]:
        """A name for this thread and a number for this call, by which Redis recognises a repetition."""
        local = self._writer
        if getattr(local, "pid", None) != os.getpid():
            local.pid, local.name, local.number = os.getpid(), secrets.token_hex(12), 0
        local.number += 1
        return local.name, local.number

    def _entries_of(self, topic: str, partition: int, max_records: int, max_bytes: int) -> int:
        """How many entries to request: Redis has no byte limit, and an entry may hold many records."""
        means = self._means.get((topic, partition))
        if means is None:
            names = (f"{partition}:{name}" for name in ("first", "end", "size"))
            bounds, entries = self._store.calls(
                [("HMGET", f"cw:topic:{topic}", *names), ("XLEN", _log(topic, partition))]
            )
            first, end, size = (int(value or 0) for value in bounds)
            means = max(1.0, size / max(1, end - first)), max(1.0, (end - first) / max(1, entries))
        record_bytes, records = means
        wanted = min(max_records, int(max_bytes / record_bytes) + 1) / records
        # One more, in case the first records of a pack are not needed.
        return min(_MAX_ENTRIES, math.ceil(wanted) + (records > 1))

    def _claim(
        self, topic: str, partition: int, group: str, consumer: str, idle: str, waiting: Sequence[Any]
    ) -> list[GroupRecord]:
        stream = _log(topic, partition)
        deliveries = {int(entry[0].partition(b"-")[0]): entry[3] + 1 for entry in waiting}
        # A claim by another consumer resets a record's idle time.
        least = max(int(idle), min(entry[2] for entry in waiting))
        command = ("XCLAIM", stream, group, consumer, least, *(entry[0] for entry in waiting))
        # On one connection, which ends with its server, so no other life can begin in between.
        entries, lives = self._store.write([command, ("HGET", f"cw:topic:{topic}", f"{partition}:lives")])
        claimed = stored(topic, partition, [entry for entry in entries if entry is not None])
        if len(claimed) < len(deliveries):
            # Claimed by another consumer meanwhile, or removed from the stream, which only a writer outside the bus can
            # do.
            there = {record.offset for record in claimed}
            missing = [offset for offset in deliveries if offset not in there]
            kept = self._store.calls([("XRANGE", stream, f"{offset}-1", f"{offset}-1") for offset in missing])
            if lost := [offset for offset, found in zip(missing, kept, strict=True) if not found]:
                pending_lost(topic, group, len(lost))
                self.acknowledge(topic, group, partition, offsets=lost)
        history = (lives or b"").decode()
        return [GroupRecord(record, deliveries[record.offset], life_of(history, record.offset)) for record in claimed]

    def _pending(self, topic: str, group: str) -> list[Any]:
        """Redis itself refuses an unknown group; listing them first would cost more with each group."""
        count = self.partitions(topic)
        if not count:
            raise BusError(f"topic {topic} has no group {group}")
        return self._store.calls([("XPENDING", _log(topic, p), group) for p in range(count)])

    def _check_lives(self, lives: Lives, place: TopicPartition, offset: int, history: bytes | None, end: int) -> None:
        try:
            lives.check(place, offset, (history or b"").decode(), end=end)
        except RecordsLost as error:
            report(self, error)
            raise

    def _check_partition(self, topic: str, partition: int) -> None:
        count = self.partitions(topic)
        if count and not 0 <= partition < count:
            raise BusError(f"topic {topic} has no partition {partition}: there are {count}")

    def _touch(self, topic: str, group: str, *, must_exist: bool = True) -> None:
        """Keep `group` from expiring; Redis is only updated occasionally."""
        now = time.monotonic()
        if now - self._touched.get((topic, group), -math.inf) < min(60.0, self._group_expiry_seconds / 10):
            return
        if self._store.run("touch_group", topic, group):
            self._touched[topic, group] = now
        elif must_exist:
            self._check_group(topic, group)

    def _check_group(self, topic: str, group: str) -> list[int]:
        positions = self._group_positions(topic).get(group)
        if positions is None:
            raise BusError(f"topic {topic} has no group {group}")
        return positions

    def _group_positions(self, topic: str) -> dict[str, list[int]]:
        """The next offset by group and partition, for groups that exist on every partition."""
        count = self.partitions(topic)
        found: dict[str, list[int]] = {}
        exists = self._store.calls([("EXISTS", _log(topic, p)) for p in range(count)])
        if not count or not all(exists):
            return {}
        for flats in self._store.calls([("XINFO", "GROUPS", _log(topic, p)) for p in range(count)]):
            for flat in flats:
                group = dict(zip(flat[::2], flat[1::2], strict=True))
                offset, _, part = group[b"last-delivered-id"].partition(b"-")
                found.setdefault(group[b"name"].decode(), []).append(int(offset) + (part != b"0"))
        return {group: positions for group, positions in found.items() if len(positions) == count}


def _grant(leases: Mapping[str, bytes], revoking: Sequence[str]) -> list[Argument]:
    """The arguments of `lua/grant.lua`."""
    return [len(revoking), *revoking, *(part for pair in leases.items() for part in pair)]


def _states(topics: Sequence[str], replies: Sequence[Any]) -> dict[str, list[PartitionState]]:
    return {
        topic: [
            PartitionState(int(first or 0), int(end or 0), int(size or 0), (lives or b"").decode())
            for first, end, size, lives in zip(*[iter(values)] * 4, strict=True)
        ]
        for topic, values in zip(topics, replies, strict=True)
    }


def _few(
    arrived: Iterable[Any], after: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, list[StoredRecord]]]:
    """The records of a reply to XREAD, of the partitions that have no more, and where none is missing."""
    places = {_log(*place).encode(): place for place in after}
    for name, entries in arrived:
        place = places[name]
        if len(entries) <= _FEW_ENTRIES and (records := dense(entries, after[place])):
            yield place, stored(*place, records)


def _log(topic: str, partition: int) -> str:
    return f"cw:log:{topic}:{partition}"


def _once_key(registry: str, name: str) -> str:
    if ":" in registry:
        raise BusError(f"a registry's name has no colon: {registry}")
    return f"cw:once:{registry}:{name}"


def _give_back(topic: str, group: str, offered: GroupRecord) -> tuple[str | int, ...]:
    partition, offset = offered.record.partition, offered.record.offset
    counted = ("RETRYCOUNT", offered.deliveries - 1, "JUSTID")
    return ("XCLAIM", _log(topic, partition), group, NOBODY, 0, f"{offset}-1", *counted)


def _milliseconds(seconds: float) -> str:
    return "inf" if math.isinf(seconds) else str(round(seconds * 1_000))


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
