"""Reading from a bus on Redis, and waiting for records."""

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from bus.api import FewRecords, PartitionState, Position, RecordRun, StoredRecord, TopicPartition
from bus.lives import Lives
from bus.lost import report
from bus.redis.replies import dense, run_of, stored
from bus.redis.store import bulks, pack
from bus.redis.tables import RedisTables
from bus.redis.topics import log_of, states_of
from candlewright.wire.errors import BusError, OffsetOutOfRange, RecordsLost

__all__ = ["RedisReading"]

#: Requested at once.
_MAX_ENTRIES = 1_000
#: About the bytes of one run.
_RUN_BYTES = 4 << 20
#: Of each partition, with a wait for records.
_FEW_ENTRIES = 8


@lru_cache(maxsize=1_024)
def _awaited(places: tuple[TopicPartition, ...]) -> bytes:
    """The names of their streams, packed. A gateway awaits ever-changing sets of partitions, so few are remembered."""
    return bulks("STREAMS", *(log_of(*place) for place in places))


class RedisReading(RedisTables):
    """The reading half of `bus.api.Log`; a loss that it finds is noted in a table."""

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
                    ("XRANGE", log_of(topic, partition), f"{at}-0", "+", "COUNT", count),
                    ("HMGET", f"cw:topic:{topic}", *(f"{partition}:{name}" for name in ("first", "end", "lives"))),
                ]
            )
            first, end = int(bounds[0] or 0), int(bounds[1] or 0)
            if lives is not None:
                self._check_lives(lives, (topic, partition), at, (bounds[2] or b"").decode(), end)
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
            self._note_means(topic, partition, received, len(records), len(entries))
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

    def read_runs(self, topic: str, partition: int, *, first: int, end: int) -> Iterator[RecordRun]:
        self._check_partition(topic, partition)
        at = first
        while at < end:
            count = self._entries_of(topic, partition, end - at, _RUN_BYTES)
            entries, (kept, written) = self._store.calls(
                [
                    ("XRANGE", log_of(topic, partition), f"{at}-0", "+", "COUNT", count),
                    ("HMGET", f"cw:topic:{topic}", f"{partition}:first", f"{partition}:end"),
                ]
            )
            if not int(kept or 0) <= at < int(written or 0):
                raise OffsetOutOfRange(topic, partition, at, first=int(kept or 0), end=int(written or 0))
            run = run_of(topic, partition, entries, first=at, end=end) if entries else None
            if run is None:
                raise BusError(f"{topic}/{partition} holds entries near {at} that the bus did not write")
            self._note_means(topic, partition, sum(run.lengths), len(run.lengths), len(run.counts))
            yield run
            at += len(run.lengths)

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
                        history = (found[len(partitions) + at] or b"").decode()
                        self._check_lives(lives, place, after[place], history, end)
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
        also: Iterable[TopicPartition] = (),
        few_records: FewRecords | None = None,
    ) -> dict[TopicPartition, PartitionState]:
        wanted: dict[str, dict[int, None]] = {}
        for topic, partition in (*after, *also):
            wanted.setdefault(topic, {})[partition] = None
        asks = [self._ask_for_state(topic, tuple(own)) for topic, own in wanted.items()]
        commands = b"".join((pack(("MULTI",)), *asks, pack(("EXEC",))))
        deadline = time.monotonic() + timeout_seconds
        while True:
            arrived, replies = self._look(commands, len(asks) + 2, after, deadline, with_few=few_records is not None)
            found = {
                (topic, partition): state
                for (topic, own), reply in zip(wanted.items(), replies[-1], strict=True)
                for partition, state in zip(own, states_of(reply), strict=True)
            }
            has_come = False
            for place, offset in after.items():
                state = found[place]
                if lives is not None:
                    self._check_lives(lives, place, offset, state.lives, state.end)
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
        logs = _awaited(tuple(after))
        count = _FEW_ENTRIES + 1 if with_few else 1
        ids = bulks(*(b"%d-0" % offset for offset in after.values()))
        wait = b"*%d\r\n%b%b%b" % (6 + 2 * len(after), bulks("XREAD", "COUNT", count, "BLOCK", block), logs, ids)
        arrived, *found = self._store.packed_calls(wait + commands, 1 + replies)
        return arrived or (), found

    def _check_lives(self, lives: Lives, place: TopicPartition, offset: int, history: str, end: int) -> None:
        try:
            lives.check(place, offset, history, end=end)
        except RecordsLost as error:
            report(self, error)
            raise

    def _note_means(self, topic: str, partition: int, size: int, records: int, entries: int) -> None:
        self._means[topic, partition] = max(1.0, size / records), max(1.0, records / entries)

    def _entries_of(self, topic: str, partition: int, max_records: int, max_bytes: int) -> int:
        """How many entries to request: Redis has no byte limit, and an entry may hold many records."""
        means = self._means.get((topic, partition))
        if means is None:
            names = (f"{partition}:{name}" for name in ("first", "end", "size"))
            bounds, entries = self._store.calls(
                [("HMGET", f"cw:topic:{topic}", *names), ("XLEN", log_of(topic, partition))]
            )
            first, end, size = (int(value or 0) for value in bounds)
            means = max(1.0, size / max(1, end - first)), max(1.0, (end - first) / max(1, entries))
        record_bytes, records = means
        wanted = min(max_records, int(max_bytes / record_bytes) + 1) / records
        # One more, in case the first records of a pack are not needed.
        return min(_MAX_ENTRIES, math.ceil(wanted) + (records > 1))


def _few(
    arrived: Iterable[Any], after: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, list[StoredRecord]]]:
    """The records of a reply to XREAD, of the partitions that have no more, and where none is missing."""
    places = {log_of(*place).encode(): place for place in after}
    for name, entries in arrived:
        place = places[name]
        if len(entries) <= _FEW_ENTRIES and (records := dense(entries, after[place])):
            yield place, stored(*place, records)
