"""The live query's work on the executors, from the records of one partition to its results.

It publishes bars on the topic `ohlc`, and trades and gaps to be stored on `tick_rows`; the tables follow these topics.
Each publish is named by query, partition and batch, so a repeated micro-batch publishes nothing twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, repeat

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from bars import exact
from bars.aggregate import NO_QUOTE_VOLUME, NO_TRADE_COUNT
from bars.maker import MadeBars
from bus import Bus, Record, SequenceStamp, StoredRecord
from bus import topics as bus_topics
from bus.api import partition_of
from candlewright.wire import bar_columns, streams, tick_columns
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.tick_columns import TickColumns
from core.poison import culprits, is_poison
from flink_replacement_spark.engine.bus_source import NOTHING_KNOWN, KnownRecords, worker_bus
from flink_replacement_spark.engine.checked_records import CheckedRecords
from flink_replacement_spark.engine.writes import Direct, Outdated, Writes
from flink_replacement_spark.live.journal import MAX_BYTES, Journal, Note
from flink_replacement_spark.live.partition import LiveOutput, LivePartition
from flink_replacement_spark.live.results import LiveCounts, counts_of
from flink_replacement_spark.live.source import Range, ranges_of, records_of
from flink_replacement_spark.live.tick_rows import records_of_rows
from protobuf import records_pb2 as records
from venues import sound

__all__ = ["is_quiet", "process", "run_step"]

#: The most bars published at once, and the most records of ticks to store, each of which has many trades.
_PUBLISH_RECORDS, _FEW_RECORDS = 5_000, 200
_PUBLISH_ROWS = 4
#: The sources of bars made only from trades, and of bars partly made from an exchange's aggregates.
_SOURCES = ("ticks", "derived")
#: After a lost checkpoint, these first batches may contain trades that the previous query has stored.
_FIRST_BATCHES = 8
_MILLISECOND_NS = 1_000_000
#: Trades decoded together.
_PART_BYTES = 8 << 20

Batches = Iterable[pa.RecordBatch]


def process(
    url: str,
    query_id: str,
    batch_id: int,
    *,
    lateness_ns: int,
    horizon_ns: int,
    max_ahead_ns: int,
    journal_bytes: int = MAX_BYTES,
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A task's function for one micro-batch; a task gets the rows of source `live` of one partition. `journal_bytes`:
    the most bytes of records that the bus must keep, twice, for the state of a partition.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        partition, ranges = ranges_of(batches)
        if ranges:
            # Imported by the worker: this function is pickled, with copies of the module's names that it uses, and the
            # states in the module must not be copied.
            counts = run_step(
                url,
                query_id,
                batch_id,
                partition=partition,
                lateness_ns=lateness_ns,
                horizon_ns=horizon_ns,
                max_ahead_ns=max_ahead_ns,
                ranges=ranges,
                journal_bytes=journal_bytes,
            )
            yield from counts.rows()
            # Spark uses any worker for a task, so each would keep as much memory as its largest task took.
            pa.default_memory_pool().release_unused()

    return run


def run_step(
    url: str,
    query_id: str,
    batch_id: int,
    *,
    partition: int,
    lateness_ns: int,
    horizon_ns: int,
    max_ahead_ns: int,
    ranges: Sequence[Range],
    journal_bytes: int = MAX_BYTES,
    starts: Mapping[int, int] | None = None,
    writes: Writes | None = None,
    known: KnownRecords = NOTHING_KNOWN,
) -> LiveCounts:
    """Carry out a micro-batch for one partition. `starts`: its first offset of each of TOPICS, also of those without
    records. `writes`: how to write; by default each call at once. `known`: records that need not be read.
    """
    bus = worker_bus(url)
    writes = writes or Direct(bus)
    journal = Journal(bus, query_id, partition, max_bytes=journal_bytes, writes=writes)
    partitions = bus.partitions(bus_topics.TICKS)

    def replay(live: LivePartition, note: Note) -> None:
        """Replay a batch whose results are already published."""
        for own in note.steps:
            _output(live, url, partition, own, CheckedRecords(note.max_ahead_ns, partitions, note.excluded))

    # Removed from the cache, because a state that a failed batch has changed must not be reused.
    kept = _CACHE.pop((query_id, partition), None)
    if (
        kept is not None
        and kept.unwritten.steps
        and (kept.unwritten.ends != starts or kept.batch != journal.base_of(batch_id))
    ):
        kept = None
    if kept is None and writes.follows_unwritten:
        raise Outdated("the state after steps that were not written is gone")
    before = kept.unwritten if kept is not None else _NONE

    def state(cached: _Kept | None) -> tuple[int, LivePartition]:
        """The state before the batch, and the last batch on the bus that it contains."""
        base, found = journal.resume(batch_id, (cached.batch, cached.live) if cached else None, replay)
        return base, found or _begin(bus, partition, ranges, lateness_ns, horizon_ns)

    base, live = state(kept)
    duplicates, too_late = live.duplicates, live.too_late
    checked = CheckedRecords(max_ahead_ns, partitions)
    try:
        output = _output(live, url, partition, ranges, checked, known)
    except Exception as error:  # No error caused by one record may stop the others.
        if not is_poison(error):
            raise
        if before.steps:
            raise Outdated(
                "the records since the stored state are read again, because one cannot be processed"
            ) from error
        stored = state(None)[1].save()
        checked.exclude(_culprits(lambda: LivePartition.load(stored), url, partition, ranges, checked=checked))
        live = LivePartition.load(stored)
        output = _output(live, url, partition, ranges, checked)
    has_refused = checked.has_refused
    checked.put_aside(bus)
    counts = counts_of(output, live.duplicates - duplicates, live.too_late - too_late)
    after = before.and_then(ranges, output.ticks, starts or {}, size=checked.size)
    if writes.may_wait and base >= 0 and not has_refused and counts.counted().keys() <= {"ticks"}:
        writes.afterwards(lambda: _CACHE.__setitem__((query_id, partition), _Kept(base, live, after)))
        return LiveCounts()
    output.ticks, counts.ticks = after.ticks, sum(map(len, after.ticks))
    with ThreadPoolExecutor(1) as publisher:
        # Publishing many bars takes longest. The state is written last, since it says that everything is published.
        published = _publish(publisher, writes, f"{query_id}:{partition}", batch_id, output)
        first_batch = batch_id - len(before.steps)
        _publish_rows(
            writes, f"{query_id}:{partition}:rows", batch_id, partition, output,
            perhaps_stored=first_batch < _FIRST_BATCHES,
        )  # fmt: skip
        published.result()
    journal.keep(batch_id, live, Note.of(after.steps, max_ahead_ns, checked.excluded, size=after.size))
    writes.afterwards(lambda: _CACHE.__setitem__((query_id, partition), _Kept(batch_id, live)))
    return counts


def is_quiet(query_id: str, partition: int, found: Iterable[StoredRecord]) -> bool:
    """Whether these next records close no bar, as far as this process knows."""
    kept = _CACHE.get((query_id, partition))
    return kept is not None and all(_closes_none(kept.live, record) for record in found)


def _closes_none(live: LivePartition, record: StoredRecord) -> bool:
    if record.topic == bus_topics.TICKS:
        times = tick_columns.time_range(record.value)
        return times is not None and live.closes_none((record.key or b"").decode(errors="replace"), *times[:2])
    try:
        mark = records.TickMark.FromString(record.value)
    except DecodeError:
        return False
    return mark.HasField("clock") and live.closes_none(mark.ticker, mark.clock.exchange_time, mark.clock.exchange_time)


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """Steps that are not on the bus yet: the records and new trades to store of each, where the next one starts, and
    the bytes of their records.
    """

    steps: Sequence[Sequence[Range]] = ()
    ticks: list[TickColumns] = field(default_factory=list)
    ends: Mapping[int, int] = field(default_factory=dict)
    size: int = 0

    def and_then(
        self, ranges: Sequence[Range], ticks: Sequence[TickColumns], starts: Mapping[int, int], *, size: int
    ) -> "_Unwritten":
        ends = {**starts, **{tag: last + 1 for tag, _, last in ranges}}
        return _Unwritten([*self.steps, ranges], [*self.ticks, *ticks], ends, self.size + size)


_NONE = _Unwritten()


@dataclass(frozen=True, slots=True)
class _Kept:
    """The state of one of this worker's partitions: after `batch`, the last one on the bus, and `unwritten` steps."""

    batch: int
    live: LivePartition
    unwritten: _Unwritten = _NONE


_CACHE: dict[tuple[str, int], _Kept] = {}


def _begin(bus: Bus, partition: int, ranges: Sequence[Range], lateness_ns: int, horizon_ns: int) -> LivePartition:
    """The initial state of a partition. After a lost checkpoint, the needs of tickers come from the broker's table,
    since their marks were already read.
    """
    live = LivePartition(lateness_ns, horizon_ns)
    if not any(tag == 1 and first == 0 for tag, first, _ in ranges):
        partitions = bus.partitions(bus_topics.TICKS)
        for ticker, wanted in bus.items(bus_topics.TABLE_WANTED).items():
            if partition_of(ticker.encode(), partitions) == partition and (demand := _demand(wanted)) is not None:
                live.want(ticker, demand)
    return live


def _demand(value: bytes) -> records.Wanted | None:
    """The needs of a ticker; None if unreadable, since the broker writes them again whenever they change."""
    try:
        wanted = records.Wanted.FromString(value)
    except DecodeError:
        return None
    return None if sound.problem_with_wanted(wanted) else wanted


def _output(
    live: LivePartition,
    url: str,
    partition: int,
    ranges: Sequence[Range],
    checked: CheckedRecords,
    known: KnownRecords = NOTHING_KNOWN,
) -> LiveOutput:
    """Process trades part by part, so that a task's memory does not grow with the lag of its partition."""
    found_marks = list(chain.from_iterable(records_of(url, partition, ranges, tag=1, known=known)))
    marks = checked.values(found_marks)
    newest_ms = found_marks[-1].timestamp_ms if found_marks else 0
    values: list[bytes] = []
    size = 0
    for found in records_of(url, partition, ranges, tag=0, known=known):
        newest_ms = max(newest_ms, found[-1].timestamp_ms)
        # Parts depend only on sizes, so a repeated batch is cut at the same places.
        for record in found:
            values += checked.values([record])
            size += len(record.value)
            if size >= _PART_BYTES:
                live.add(values, marks)
                checked.refuse(live.take_refused())
                values, marks, size = [], [], 0
    live.add(values, marks)
    checked.refuse(live.take_refused())
    return live.finish(newest_ms * _MILLISECOND_NS)


def _culprits(
    state: Callable[[], LivePartition], url: str, partition: int, ranges: Sequence[Range], *, checked: CheckedRecords
) -> list[tuple[StoredRecord, str]]:
    """The records that prevent the others from being counted; empty if counting works after all."""
    found = [record for tag in (1, 0) for some in records_of(url, partition, ranges, tag=tag) for record in some]

    def digest(some: Sequence[StoredRecord]) -> None:
        ticks = [record for record in some if record.topic == bus_topics.TICKS]
        marks = [record for record in some if record.topic != bus_topics.TICKS]
        state().process(checked.values(ticks), checked.values(marks))

    return culprits(found, digest)


def _publish(publisher: Executor, writes: Writes, writer: str, batch_id: int, output: LiveOutput) -> Future[None]:
    """Publish the results. Returns the future of the last bars; bars are published in order, and nothing after a failed
    publish.
    """
    found = chain.from_iterable(_bar_records(tickers, made) for tickers, made in output.bars)
    under_way: Future[None] = Future()
    under_way.set_result(None)
    chunk = 0
    while part := list(islice(found, _PUBLISH_RECORDS)):
        under_way.result()
        if chunk == 0 and len(part) < _FEW_RECORDS:
            # Starting a thread would take longer.
            _publish_chunk(writes, part, f"{writer}:{chunk}", batch_id)
            break
        under_way = publisher.submit(_publish_chunk, writes, part, f"{writer}:{chunk}", batch_id)
        chunk += 1
    return under_way


def _publish_rows(
    writes: Writes, writer: str, batch_id: int, partition: int, output: LiveOutput, *, perhaps_stored: bool
) -> None:
    found = records_of_rows(output.ticks, output.gaps, partition, perhaps_stored=perhaps_stored)
    chunk = 0
    while part := list(islice(found, _PUBLISH_ROWS)):
        writes.publish_as(bus_topics.TICK_ROWS, part, writer=f"{writer}:{chunk}", number=batch_id)
        chunk += 1


def _publish_chunk(writes: Writes, part: Sequence[Record], writer: str, batch_id: int) -> None:
    writes.publish_as(bus_topics.OHLC, part, writer=writer, number=batch_id)


def _bar_records(tickers: list[str], made: MadeBars) -> Iterator[Record]:
    bars = made.bars
    period = bars.period_seconds
    values = _encoded(tickers, made, _SOURCES[0])
    if (derived := np.flatnonzero(bars.is_derived)).size:
        own = MadeBars(bars.take(derived), made.revision[derived], made.complete[derived])
        for row, value in zip(derived.tolist(), _encoded(tickers, own, _SOURCES[1]), strict=True):
            values[row] = value
    for row in np.flatnonzero(bars.unknown).tolist():
        values[row] = _without_unknown(values[row], int(bars.unknown[row]))
    keys = [ticker.encode() for ticker in tickers]
    stamps = [SequenceStamp(streams.bars(ticker, period), tag=streams.BARS.tag) for ticker in tickers]
    groups = bars.group.tolist()
    own_keys, own_stamps = map(keys.__getitem__, groups), map(stamps.__getitem__, groups)
    rows = zip(values, own_keys, repeat({}), repeat(None), repeat(None), own_stamps, strict=False)
    # A named tuple's own constructor takes three times as long.
    return map(partial(tuple.__new__, Record), rows)


def _without_unknown(value: bytes, unknown: int) -> bytes:
    bar = OHLCV.FromString(value)
    if unknown & NO_QUOTE_VOLUME:
        bar.ClearField("quote_volume")
    if unknown & NO_TRADE_COUNT:
        bar.ClearField("trade_count")
    return bar.SerializeToString()


def _encoded(tickers: list[str], made: MadeBars, source: str) -> list[bytes]:
    bars = made.bars
    return bar_columns.encode(
        tickers,
        bars.group,
        period_seconds=bars.period_seconds,
        open_time=bars.open_time,
        prices=(bars.open, bars.high, bars.low, bars.close),
        volume=exact.to_doubles(bars.volume),
        quote_volume=exact.to_doubles(bars.quote_volume),
        trade_count=bars.trade_count,
        complete=made.complete,
        revision=made.revision,
        source=source,
    )
