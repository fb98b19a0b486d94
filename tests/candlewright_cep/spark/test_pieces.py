"""A stream's state machine without Spark: batches and watermarks in, bytes out."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate
from candlewright_cep.spark.groups import Recognition
from candlewright_cep.spark.pieces import BUCKET, ROWS, Piece, StateMismatch, advance, compiled, packer, unpacker
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)

_START = datetime(2024, 1, 1, tzinfo=UTC)
_SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int32())])
_TYPES = (pa.string(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), pa.int64(), pa.int64())
_BODY = """MATCH_RECOGNIZE (PARTITION BY k ORDER BY t
    MEASURES FIRST(t) AS since, LAST(t) AS until, COUNT(*) AS n, MATCH_NUMBER() AS number {clauses}) AS m"""
_PATTERNS = {
    "v shapes": "PATTERN (S D+ U+) DEFINE D AS v < PREV(v), U AS v > PREV(v)",
    "within": "PATTERN (A B* C) WITHIN INTERVAL '8' SECOND DEFINE A AS v = 1, C AS C.v = 4",
    "pauses": "PATTERN (A B* C?) WITHIN INTERVAL '2' SECOND FROM PREVIOUS ROW DEFINE A AS v = 1, C AS C.v = 4",
    "overlapping": "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B C) DEFINE B AS v > A.v, C AS v > B.v",
    "timeouts": "ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A B+ C) WITHIN INTERVAL '5' SECOND DEFINE C AS v = 4",
}
_END = _START + timedelta(days=1)


def _piece(pattern: str, keys: tuple[str, ...] = ("k",), buckets: int = 3) -> Piece:
    text = f"SELECT * FROM t {_BODY.format(clauses=pattern)}"
    return Piece(Recognition(text=text, name="t", schema=_SCHEMA, keys=keys, types=_TYPES, first="t"), "t", buckets)


def _rows(chance: random.Random, count: int) -> pa.Table:
    times = sorted(chance.choices(range(count * 2), k=count))
    return pa.table(
        {
            "k": pa.array(chance.choices(["a", "b", None, "d"], k=count), pa.string()),
            "t": pa.array([_START + timedelta(seconds=time / 2) for time in times], _SCHEMA.field("t").type),
            "v": pa.array(chance.choices([1, 2, 3, 4, None], k=count), pa.int32()),
        }
    )


def _stream(piece: Piece, batches: list[pa.Table], delay: timedelta) -> list[str]:
    """Run the query as Spark does: a batch sees the watermark of the previous ones; every state is serialised."""
    states: dict[int, bytes] = {}
    waiting: set[int] = set()
    results: list[bytes] = []
    latest, watermark = _START, 0
    for batch in [*batches, _SCHEMA.empty_table()]:
        buckets = pa.array([hash(key) % piece.buckets for key in batch.column("k").to_pylist()], pa.int32())
        packed: dict[int, list[bytes]] = {bucket: [] for bucket in waiting}
        for part in packer(piece)(batch.append_column(BUCKET, buckets).to_batches(max_chunksize=7)):
            for bucket, rows in zip(part.column(BUCKET).to_pylist(), part.column(ROWS).to_pylist(), strict=True):
                packed.setdefault(bucket, []).append(rows)
        for bucket, rows in packed.items():
            step = advance(piece, states.get(bucket), rows, watermark_ms=watermark)
            states[bucket] = step.state
            results += step.results
            (waiting.add if step.waits else waiting.discard)(bucket)
            assert step.late == 0
        latest = max([latest, *batch.column("t").to_pylist()])
        watermark = int((latest - delay).timestamp() * 1000)
    rows = unpacker()([pa.record_batch({ROWS: results})]) if results else ()
    return _shown(pa.Table.from_batches(rows, pa.schema([(f"c{i}", kind) for i, kind in enumerate(_TYPES)])))


def _shown(table: pa.Table) -> list[str]:
    return sorted(map(str, zip(*(column.to_pylist() for column in table.columns), strict=True)))


@pytest.mark.parametrize("pattern", _PATTERNS)
@pytest.mark.parametrize("seed", seeds(6))
def test_a_stream_agrees_with_one_evaluation(pattern: str, seed: int) -> None:
    chance = random.Random(seed)
    piece = _piece(_PATTERNS[pattern])
    rows = _rows(chance, 150)
    rows = piece.recognition.in_order(rows)
    wanted = evaluate(piece.recognition.text, _with_ends(rows))
    # Rows within the delay arrive in any order, in batches cut anywhere.
    delay = timedelta(seconds=5)
    arrival = [time + timedelta(seconds=chance.uniform(0, 4.9)) for time in rows.column("t").to_pylist()]
    shuffled = rows.take(sorted(range(rows.num_rows), key=arrival.__getitem__))
    cuts = [0, *sorted(chance.sample(range(rows.num_rows), chance.randint(0, 12))), rows.num_rows]
    batches = [shuffled.slice(start, end - start) for start, end in pairwise(cuts)]
    last = _with_ends(rows).slice(rows.num_rows)
    found = _stream(piece, [*batches, last, last.set_column(1, "t", _late_times(last))], delay)
    assert wanted.num_rows
    assert found == _shown(wanted)


def _with_ends(rows: pa.Table) -> pa.Table:
    """Adds a row a day later that ends each partition's attempts and begins nothing."""
    keys = pa.array(["a", "b", None, "d"], pa.string())
    ends = pa.table([keys, pa.array([_END] * 4, _SCHEMA.field("t").type), pa.nulls(4, pa.int32())], schema=_SCHEMA)
    return pa.concat_tables([rows, ends])


def _late_times(last: pa.Table) -> pa.Array:
    return pa.array([_END + timedelta(days=2)] * last.num_rows, _SCHEMA.field("t").type)


def test_all_rows_show_the_columns_of_the_rows_alone() -> None:
    text = """SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH
        PATTERN (A B) DEFINE B AS v > A.v) AS m"""
    types = (pa.string(), _SCHEMA.field("t").type, pa.string(), pa.int32())
    piece = Piece(Recognition(text=text, name="t", schema=_SCHEMA, keys=("k",), types=types, first="t"), "t", 1)
    rows = pa.table([["a", "a"], [_START, _START + timedelta(seconds=1)], [1, 2]], schema=_SCHEMA)
    (part,) = packer(piece)(rows.append_column(BUCKET, pa.array([0, 0], pa.int32())).to_batches())
    step = advance(piece, None, part.column(ROWS).to_pylist(), watermark_ms=int(_START.timestamp() * 1000) + 5_000)
    (found,) = unpacker()([pa.record_batch({ROWS: list(step.results)})])
    assert [found.column(2).to_pylist(), found.column(3).to_pylist()] == [["A", "B"], [1, 2]]


def test_rows_after_the_watermark_and_rows_without_a_time_are_left_out_and_counted() -> None:
    piece = _piece(_PATTERNS["v shapes"], (), 1)

    def packed(*seconds: int | None) -> list[bytes]:
        times = [None if each is None else _START + timedelta(seconds=each) for each in seconds]
        rows = pa.table([["a"] * len(times), times, range(len(times))], schema=_SCHEMA)
        (part,) = packer(piece)(rows.append_column(BUCKET, pa.array([0] * len(times), pa.int32())).to_batches())
        return list(part.column(ROWS).to_pylist())

    second = int(_START.timestamp() * 1000)
    first = advance(piece, None, packed(1, 2, None), watermark_ms=second + 1_000)
    assert (first.late, first.waits) == (1, True)
    then = advance(piece, first.state, packed(1, 2, 3), watermark_ms=second + 5_000)
    assert (then.late, then.waits) == (1, False)


def test_a_deadline_waits_for_the_watermark() -> None:
    piece = _piece(_PATTERNS["timeouts"], (), 1)
    rows = pa.table([["a"], [_START], [1]], schema=_SCHEMA).append_column(BUCKET, pa.array([0], pa.int32()))
    (part,) = packer(piece)(rows.to_batches())
    start = int(_START.timestamp() * 1000)
    step = advance(piece, None, part.column(ROWS).to_pylist(), watermark_ms=start)
    assert step.waits and not step.results
    step = advance(piece, step.state, [], watermark_ms=start + 4_999)
    assert step.waits and not step.results
    step = advance(piece, step.state, [], watermark_ms=start + 5_000)
    assert len(step.results) == 1 and not step.waits


def test_state_of_another_text_is_refused() -> None:
    step = advance(_piece(_PATTERNS["v shapes"]), None, [], watermark_ms=0)
    with pytest.raises(StateMismatch, match="another MATCH_RECOGNIZE"):
        advance(_piece(_PATTERNS["overlapping"]), step.state, [], watermark_ms=0)
    with pytest.raises(StateMismatch, match="another MATCH_RECOGNIZE"):
        advance(_piece(_PATTERNS["v shapes"], buckets=4), step.state, [], watermark_ms=0)
    with pytest.raises(StateMismatch, match="not written by"):
        advance(_piece(_PATTERNS["v shapes"]), b"something", [], watermark_ms=0)


def test_a_clause_that_a_stream_cannot_decide_is_refused_with_its_position() -> None:
    with pytest.raises(TriggerRejected, match=r"INVALID_SQL 1:\d+: \$ is never true"):
        compiled(_piece("PATTERN (A+ $) DEFINE A AS v > 1"))
