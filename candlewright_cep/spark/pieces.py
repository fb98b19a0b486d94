"""One task's share of a stream: rows that wait for the watermark, and the matcher's state, from batch to batch.

Imports no Spark. Rows and results travel as Arrow streams in bytes, so that pandas changes no types on the way.
Partitions are distributed over buckets, and a bucket's partitions go through the matcher together.
"""

import json
import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.spark.groups import OUTPUT_ROWS, Recognition
from candlewright_cep.streaming.inputs import StreamInput
from candlewright_cep.streaming.query import StreamQuery
from candlewright_cep.streaming.rows.release import SEQUENCE, Clock
from candlewright_cep.streaming.stream import TriggerStream, compile_stream
from candlewright_cep.table_bytes import bytes_of, table_of

__all__ = ["Piece", "StateMismatch", "Step", "advance", "compiled", "packer", "report", "unpacker"]

BUCKET, TIME, ROWS = "__bucket", "time", "rows"
#: Rows of a task are packed together up to this many.
_PACKED_ROWS = 100_000
#: All partitions of a bucket share one time, as Spark's watermark is one for all rows.
_TICKER = "__all"
_MAGIC = b"mr01"
_MICROSECOND = 1_000

Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
_log = logging.getLogger(__name__)


class StateMismatch(Exception):
    """A checkpoint written with another text or another number of buckets."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What every task of a query needs. `time`: the event-time column; `buckets`: how many buckets the partitions are
    distributed over.
    """

    recognition: Recognition
    time: str
    buckets: int

    @property
    def fingerprint(self) -> str:
        """A hash of everything that must not change while a checkpoint is in use."""
        plan = self.recognition
        columns = ",".join(f"{part.name}:{part.type}" for part in plan.schema)
        # The text before the clause contains names of views, which differ from start to start.
        clause = plan.text.split("`", 2)[-1].split()
        return json.dumps([clause, dict(plan.parameters), columns, self.time, self.buckets])


@dataclass(frozen=True, slots=True)
class Step:
    """`state`: to be kept for the next step; `waits`: a later watermark decides something; `late`: rows that arrived
    after the watermark had passed them, or have no time.
    """

    state: bytes
    results: tuple[bytes, ...]
    waits: bool
    late: int


def report(step: Step) -> None:
    if step.late:
        _log.warning("%d rows without a time, or older than the watermark, are left out", step.late)


@lru_cache(maxsize=16)
def _compiled(
    text: str, name: str, schema: pa.Schema, time: str, parameters: tuple[tuple[str, str], ...]
) -> StreamQuery:
    source = StreamInput(schema.append(pa.field(_TICKER, pa.string())), (time,), _TICKER)
    return compile_stream(text, {name: source}, dict(parameters), default_table=name)


def compiled(piece: Piece) -> StreamQuery:
    """The compiled clause. Raises TriggerRejected if it cannot run on a stream."""
    plan = piece.recognition
    return _compiled(plan.text, plan.name, plan.schema, piece.time, tuple(sorted(plan.parameters.items())))


def advance(piece: Piece, state: bytes | None, packed: Iterable[bytes], *, watermark_ms: int) -> Step:
    """Take rows that arrived, and a watermark: no row at or before it will follow.

    Raises StateMismatch, and TriggerRejected if the work exceeds a limit.
    """
    schema = piece.recognition.schema
    stream = TriggerStream(query=compiled(piece))
    passed, sequence, held = None, 0, schema.empty_table()
    if state is not None:
        passed, sequence, held = _restored(piece, stream, state)
    fresh = pa.concat_tables([schema.empty_table(), *(table_of(rows) for rows in packed)])
    times = _microseconds(fresh, piece.time)
    in_time = np.ones(len(times), np.bool_) if passed is None else times > passed
    known = fresh.column(piece.time).is_valid().to_numpy()
    late = int((~(in_time & known)).sum())
    rows = pa.concat_tables([held, fresh.filter(pa.array(in_time & known))]).combine_chunks()
    reached = watermark_ms * _MICROSECOND
    if passed is not None:
        reached = max(reached, passed)
    due = _microseconds(rows, piece.time) <= reached
    held = rows.filter(pa.array(~due))
    released = piece.recognition.in_order(rows.filter(pa.array(due)))
    count = released.num_rows
    released = released.append_column(_TICKER, pa.array([""] * count, pa.string()))
    released = released.append_column(SEQUENCE, pa.array(np.arange(sequence, sequence + count, dtype=np.int64)))
    # A clock's time is the earliest that may still arrive.
    clock = Clock({"": (reached + 1) * 1_000})
    matches = stream.feed(released, clock).table
    if _TICKER in matches.column_names:
        # ALL ROWS PER MATCH returns every column.
        matches = matches.drop_columns(_TICKER)
    found = piece.recognition.result(matches)
    results = tuple(bytes_of(found.slice(at, OUTPUT_ROWS)) for at in range(0, found.num_rows, OUTPUT_ROWS))
    waits = held.num_rows > 0 or (_has_deadline(stream) and stream.retained_rows > 0)
    return Step(_kept(piece, stream, reached, sequence + count, held), results, waits, late)


def _has_deadline(stream: TriggerStream) -> bool:
    return any(match.recognize.search.has_deadline for match in stream.query.compiled.matches)


def packer(piece: Piece) -> Task:
    """For `mapInArrow`: the rows of each bucket as bytes, with their latest time."""
    names = piece.recognition.schema.names

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _gathered(batches):
            table = table.sort_by(BUCKET)
            buckets = table.column(BUCKET).to_numpy()
            rows = table.select(names).cast(piece.recognition.schema)
            starts = np.flatnonzero(np.concatenate([[True], buckets[1:] != buckets[:-1]])).tolist()
            parts = [rows.slice(at, end - at) for at, end in zip(starts, [*starts[1:], len(buckets)], strict=True)]
            times = [pc.max(part.column(piece.time)) for part in parts]
            yield pa.record_batch(
                [
                    pa.array(buckets[starts], pa.int32()),
                    pa.array([time.as_py() for time in times], rows.schema.field(piece.time).type),
                    pa.array([bytes_of(part) for part in parts], pa.binary()),
                ],
                names=[BUCKET, TIME, ROWS],
            )

    return pack


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= _PACKED_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def unpacker() -> Task:
    """For `mapInArrow`: results from bytes to rows."""

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed in batch.column(ROWS):
                yield from table_of(packed.as_py()).to_batches()

    return unpack


def _microseconds(table: pa.Table, column: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = pc.fill_null(
        table.column(column).cast(pa.int64()), -(2**63)
    ).to_numpy()
    return found


def _kept(piece: Piece, stream: TriggerStream, reached: int, sequence: int, held: pa.Table) -> bytes:
    header = json.dumps({"of": piece.fingerprint, "reached": reached, "sequence": sequence}).encode()
    rows = bytes_of(held)
    return _MAGIC + struct.pack("<2Q", len(header), len(rows)) + header + rows + stream.snapshot()


def _restored(piece: Piece, stream: TriggerStream, state: bytes) -> tuple[int, int, pa.Table]:
    if state[:4] != _MAGIC:
        raise StateMismatch("the checkpoint was not written by MATCH_RECOGNIZE")
    header_size, rows_size = struct.unpack_from("<2Q", state, 4)
    rows_at = 20 + header_size
    header = json.loads(state[20:rows_at])
    if header["of"] != piece.fingerprint:
        raise StateMismatch(
            "the checkpoint belongs to another MATCH_RECOGNIZE: text, parameters, columns or buckets differ. "
            "Start the query with a new checkpointLocation."
        )
    stream.restore(state[rows_at + rows_size :])
    return header["reached"], header["sequence"], table_of(state[rows_at : rows_at + rows_size])
