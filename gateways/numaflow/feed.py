"""The source's consumer group: blocking bus calls, for threads."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from bus.api import Bus, GroupRecord, StoredRecord
from candlewright.wire.errors import OffsetOutOfRange
from core.log import get_logger
from gateways.numaflow import metrics
from gateways.numaflow.partitions import RecordId, SourcePartition, number_partitions
from gateways.numaflow.refusals import Refusals
from gateways.numaflow.state import Fetch, FetchAgain, FetchExpired, FetchNew, FetchOwn, Found

log = get_logger()

Fetched = list[tuple[Found, StoredRecord]]

#: Offsets per call: the store takes at most a million words.
_OFFSETS_A_CALL = 10_000


class GroupFeed:
    """One replica's part in `group` on all of `topics`. Every method raises BusError."""

    def __init__(self, bus: Bus, topics: Sequence[str], group: str, *, consumer: str, at_end: bool) -> None:
        self._bus = bus
        self._topics = list(topics)
        self._group = group
        self._consumer = consumer
        self._at_end = at_end
        self._refusals = Refusals(bus, group, consumer)
        self._by_id: dict[int, SourcePartition] = {}
        self._id_of: dict[tuple[str, int], int] = {}

    def open(self) -> None:
        """Make missing topics and groups, and number the partitions. Raises ConfigurationError."""
        for topic in self._topics:
            self._bus.create_group(topic, self._group, at_end=self._at_end)
        found = number_partitions(self._bus, self._topics)
        self._by_id = {each.partition_id: each for each in found}
        self._id_of = {(each.topic, each.partition): each.partition_id for each in found}

    @property
    def partition_ids(self) -> list[int]:
        return sorted(self._by_id)

    def fetch(self, fetch: Fetch) -> Fetched:
        match fetch:
            case FetchOwn(idle_seconds, count):
                return self._claimed(idle_seconds, count, self._consumer)
            case FetchAgain(records):
                return self._again(records)
            case FetchExpired(idle_seconds, count):
                return self._claimed(idle_seconds, count, None)
            case FetchNew(count):
                return self._new(count)

    def wait(self, seconds: float) -> None:
        """Wait until there may be a new record, at most `seconds`."""
        after: dict[tuple[str, int], int] = {}
        for topic in self._topics:
            after |= {(topic, p): offset for p, offset in self._bus.next_offsets(topic, self._group).items()}
        self._bus.wait(after, seconds)

    def acknowledge(self, records: Sequence[RecordId]) -> int:
        """Returns how many were pending; skips partitions of other sources."""
        own: dict[SourcePartition, list[RecordId]] = defaultdict(list)
        for record in records:
            if (place := self._by_id.get(record.partition_id)) is not None:
                own[place].append(record)
        count = 0
        for place, wanted in own.items():
            for at in range(0, len(wanted), _OFFSETS_A_CALL):
                lives = {record.offset: record.life for record in wanted[at : at + _OFFSETS_A_CALL]}
                count += self._bus.acknowledge(place.topic, self._group, place.partition, offsets=[*lives], lives=lives)
        self._refusals.forget(records)
        return count

    def refuse(self, deliveries: Mapping[RecordId, int], delay_seconds: float) -> None:
        """Record that these are due again after the delay, and how often they were delivered."""
        self._refusals.note(deliveries, delay_seconds)

    def backlog(self) -> int:
        """The number of records not yet delivered, and of those not acknowledged."""
        count = 0
        for topic in self._topics:
            count += sum(self._bus.pending(topic, self._group).values())
            following = self._bus.next_offsets(topic, self._group)
            count += sum(max(0, part.end - following[p]) for p, part in enumerate(self._bus.state(topic)))
        return count

    def leave(self) -> None:
        """Forget the names of replicas that have ended, unless they still hold records."""
        for topic in self._topics:
            self._bus.forget_consumer(topic, self._group, self._consumer)

    def is_ready(self) -> bool:
        """Whether the groups exist; asks the store."""
        return all(self._group in self._bus.groups(topic) for topic in self._topics)

    def _claimed(self, idle_seconds: float, count: int, of_consumer: str | None) -> Fetched:
        found: Fetched = []
        for topic in self._topics:
            if len(found) >= count:
                break
            found += self._identified(
                self._bus.claim_expired(
                    topic,
                    self._group,
                    self._consumer,
                    min_idle_seconds=idle_seconds,
                    max_records=count - len(found),
                    of_consumer=of_consumer,
                )
            )
        refusals = self._refusals.taken_over([each.record for each, _ in found])
        return [
            (Found(each.record, refusal.deliveries + 1, refusal.wait_seconds), stored)
            if (refusal := refusals.get(each.record)) is not None
            else (each, stored)
            for each, stored in found
        ]

    def _again(self, records: Iterable[Found]) -> Fetched:
        found: Fetched = []
        records = list(records)
        # The others may have been given to another replica, or acknowledged through it.
        own = self._refusals.own([each.record for each in records])
        for each in records:
            if each.record not in own:
                continue
            place = self._by_id[each.record.partition_id]
            try:
                stored = self._bus.read(place.topic, place.partition, each.record.offset, max_records=1)
            except OffsetOutOfRange:
                stored = []
            if stored:
                found.append((each, stored[0]))
            else:
                # Only a writer outside the bus can remove records that a group has not acknowledged.
                metrics.TRIMMED.labels(place.topic).inc()
                log.error("record_lost", topic=place.topic, partition=place.partition, offset=each.record.offset)
                self.acknowledge([each.record])
        return found

    def _new(self, count: int) -> Fetched:
        found: Fetched = []
        # A different topic is first each time, so that a busy one does not starve the others.
        self._topics.append(self._topics.pop(0))
        for topic in list(self._topics):
            if len(found) >= count:
                break
            found += self._identified(
                self._bus.read_group(topic, self._group, self._consumer, max_records=count - len(found))
            )
        return found

    def _identified(self, offered: Iterable[GroupRecord]) -> Fetched:
        ids = self._id_of
        return [
            (Found(RecordId(ids[stored.topic, stored.partition], stored.offset, each.life), each.deliveries), stored)
            for each in offered
            for stored in (each.record,)
        ]
