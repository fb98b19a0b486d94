"""Records that a part cannot process: `put_aside` moves them to topic `dead_letters`, so that their stream continues.

Only for a bad record (poison), never for a bad environment: failures that may pass without a change to the record (a
bus that is down, a locked catalog) are retried in place, without limit. Putting aside is idempotent: the same record of
a part is kept once. The topic is bounded by age and bytes, oldest first, and its writers by a shared rate; records
beyond that rate are only counted and logged, so that a flood of bad records costs no more than the records themselves.
"""

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from bus import Log, Registries, topics
from bus.api import Bus, Record, SequenceStamp, StoredRecord
from candlewright.wire.errors import BusFull
from core.log import get_logger
from core.metrics import REGISTRY, Counter
from protobuf import records_pb2 as rec

__all__ = [
    "KEEP_BYTES",
    "KEEP_SECONDS",
    "Letter",
    "Tally",
    "alarms",
    "kept",
    "kind_of",
    "put_aside",
    "replay",
    "tallies",
]

#: Retention of the topic.
KEEP_SECONDS = 7 * 86_400.0
KEEP_BYTES = 64 << 20
#: A longer record is truncated to its first HEAD_BYTES, and can then only be viewed.
MAX_RECORD_BYTES = 4 << 20
HEAD_BYTES = 64 << 10
MAX_REASON = 1_000
#: Kinds of reasons that are counted per part and topic; further ones count as OTHER.
MAX_KINDS = 20
MAX_KIND = 80
OTHER = "other"
#: Of all parts together: a token bucket.
BURST, PER_SECOND = 10_000.0, 100.0
#: A record that is put aside again within this time, as by a repeated micro-batch, is not kept twice.
REMEMBER_SECONDS = 3_600.0
#: How long a record that was put aside stays a warning.
ALARM_SECONDS = 86_400.0

_PER_PUBLISH = 100
_BUDGET = "dead_letters"
_NUMBER_TAG = b"\x50"
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.,:eE+-]*|\b(?:nan|inf)\b")

_PUT_ASIDE = Counter(
    "candlewright_bus_put_aside_total",
    "Records that this process moved to the topic dead_letters.",
    ["part", "topic"],
    registry=REGISTRY,
)
_DROPPED = Counter(
    "candlewright_bus_dead_letters_dropped_total",
    "Bad records that were only counted, because dead_letters was full.",
    ["part", "topic"],
    registry=REGISTRY,
)

log = get_logger()


@dataclass(frozen=True, slots=True)
class Letter:
    """A record and why it could not be processed. `partition` and `offset` None: it never reached its topic."""

    topic: str
    value: bytes
    reason: str
    key: bytes | None = None
    partition: int | None = None
    offset: int | None = None

    @classmethod
    def of(cls, record: StoredRecord, reason: str) -> "Letter":
        return cls(record.topic, record.value, reason, record.key, record.partition, record.offset)


@dataclass(frozen=True, slots=True)
class Tally:
    """For a part, topic and kind of reason: how many records were ever put aside, and the newest of them, without its
    bytes.
    """

    count: int
    newest: rec.DeadLetter


def kind_of(reason: str) -> str:
    """The reason without its values; records are counted by it."""
    return _VALUES.sub("…", reason)[:MAX_KIND].strip()


def put_aside(bus: Bus, part: str, letters: Sequence[Letter]) -> None:
    """Move records that `part` cannot process to `dead_letters`. Idempotent. Raises BusUnavailable."""
    if not letters:
        return
    bus.create_topic(topics.DEAD_LETTERS, 1)
    for at in range(0, len(letters), _PER_PUBLISH):
        _put(bus, part, letters[at : at + _PER_PUBLISH])
    (state,) = bus.state(topics.DEAD_LETTERS)
    if state.size_bytes > KEEP_BYTES:
        bus.trim(topics.DEAD_LETTERS, keep_seconds=KEEP_SECONDS, keep_bytes=KEEP_BYTES // 4 * 3)


def _put(bus: Bus, part: str, letters: Sequence[Letter]) -> None:
    if bus.take(_BUDGET, len(letters), capacity=BURST, per_second=PER_SECOND):
        _drop(part, letters, "too many at once")
        return
    counted = set(bus.items(topics.TABLE_DEAD_LETTERS))
    messages = [_message(part, letter, _counted_kind(part, letter, counted)) for letter in letters]
    names = [_name(part, letter) for letter in letters]
    try:
        is_new = bus.publish_new(
            topics.DEAD_LETTERS,
            [_record(message) for message in messages],
            registry=topics.REGISTRY_DEAD_LETTERS,
            names=names,
            keep_seconds=REMEMBER_SECONDS,
        )
    except BusFull as error:
        _drop(part, letters, str(error))
        return
    newest: dict[str, bytes] = {}
    for letter, message, is_first in zip(letters, messages, is_new, strict=True):
        _PUT_ASIDE.labels(part, letter.topic).inc(is_first)
        message.ClearField("record")
        newest[_series(message)] = message.SerializeToString()
    # Also in a repetition: the previous run may have written only to the topic.
    bus.put(topics.TABLE_DEAD_LETTERS, newest)
    if any(is_new):
        log.error("records_put_aside", to=part, topic=letters[0].topic, records=sum(is_new), reason=letters[0].reason)


def _drop(part: str, letters: Sequence[Letter], reason: str) -> None:
    for letter in letters:
        _DROPPED.labels(part, letter.topic).inc()
    first = letters[0]
    log.error("dead_letters_dropped", to=part, topic=first.topic, records=len(letters), why=reason, reason=first.reason)


def _counted_kind(part: str, letter: Letter, counted: set[str]) -> str:
    """`counted`: the existing series; a new one is added."""
    kind = kind_of(letter.reason)
    name = f"{part}:{letter.topic}:{kind}"
    if name not in counted:
        if sum(each.startswith(f"{part}:{letter.topic}:") for each in counted) >= MAX_KINDS:
            return OTHER
        counted.add(name)
    return kind


def _message(part: str, letter: Letter, kind: str) -> rec.DeadLetter:
    size = len(letter.value)
    return rec.DeadLetter(
        part=part,
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        reason=letter.reason[:MAX_REASON],
        at=time.time_ns(),
        record=letter.value if size <= MAX_RECORD_BYTES else letter.value[:HEAD_BYTES],
        key=letter.key,
        record_bytes=size,
        kind=kind,
    )


def _record(message: rec.DeadLetter) -> Record:
    stamp = SequenceStamp(_sequence(message), tag=_NUMBER_TAG)
    return Record(message.SerializeToString(), key=message.topic.encode(), partition=0, sequence=stamp)


def _sequence(message: rec.DeadLetter) -> str:
    return f"{topics.DEAD_LETTERS}:{_series(message)}"


def _series(message: rec.DeadLetter) -> str:
    """The key of a series. Letters of older versions have no kind."""
    name = f"{message.part}:{message.topic}"
    return f"{name}:{message.kind}" if message.kind else name


def _name(part: str, letter: Letter) -> str:
    """An offset alone does not identify a record: a store that lost its newest records assigns their offsets again."""
    digest = hashlib.sha256(letter.value).hexdigest()[:24]
    return f"{part}:{letter.topic}:{letter.partition}:{letter.offset}:{digest}"


def replay(bus: Registries, letter: rec.DeadLetter, record: Record) -> bool:
    """Publish `record` to the letter's topic, once; False if that was done before. Raises BusError."""
    name = f"replayed:{_series(letter)}:{letter.number}:{letter.at}"
    (is_new,) = bus.publish_new(
        letter.topic, [record], registry=topics.REGISTRY_DEAD_LETTERS, names=[name], keep_seconds=KEEP_SECONDS
    )
    return is_new


def alarms(found: Iterable[Tally], now_ns: int) -> list[str]:
    """A sentence for each part and topic that put records aside within `ALARM_SECONDS`."""
    by_topic: dict[tuple[str, str], list[Tally]] = defaultdict(list)
    for tally in found:
        by_topic[tally.newest.part, tally.newest.topic].append(tally)
    texts = []
    for own in by_topic.values():
        count, newest = (
            sum(tally.count for tally in own),
            max((tally.newest for tally in own), key=lambda each: each.at),
        )
        age = (now_ns - newest.at) / 1e9
        if age < ALARM_SECONDS:
            what = f"a record of {newest.topic}" if count == 1 else f"{count} records of {newest.topic}"
            when = f"the last {max(0.0, age) / 60:.0f} min ago"
            remedy = "see candlewright dead-letters list"
            texts.append(f"{newest.part} has put aside {what}, {when} ({newest.reason[:200]}): {remedy}")
    return texts


# ---- records put aside


def kept(bus: Log, first: int = 0) -> Iterator[tuple[int, rec.DeadLetter]]:
    """The kept letters, oldest first, from number `first` of the topic on. Raises BusError."""
    if not bus.partitions(topics.DEAD_LETTERS):
        return
    (state,) = bus.state(topics.DEAD_LETTERS)
    offset = max(first, state.first)
    while found := bus.read(topics.DEAD_LETTERS, 0, offset):
        for record in found:
            letter = _read(record.value)
            if letter is None:
                reason = "a foreign record of dead_letters, not a DeadLetter"
                letter = rec.DeadLetter(topic=topics.DEAD_LETTERS, reason=reason, at=record.timestamp_ms * 1_000_000)
                letter.record, letter.record_bytes = record.value[:HEAD_BYTES], len(record.value)
            yield record.offset, letter
        offset = found[-1].offset + 1


def tallies(bus: Bus) -> list[Tally]:
    """One for each part, topic and kind of reason of which a record was ever put aside. Raises BusError."""
    values = [_read(value) for _, value in sorted(bus.items(topics.TABLE_DEAD_LETTERS).items())]
    newest = [letter for letter in values if letter is not None]
    counts = bus.last_sequences([_sequence(each) for each in newest])
    return [Tally(count, each) for count, each in zip(counts, newest, strict=True)]


def _read(value: bytes) -> rec.DeadLetter | None:
    try:
        return rec.DeadLetter.FromString(value)
    except DecodeError:
        return None
