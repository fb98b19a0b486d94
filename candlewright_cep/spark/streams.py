"""MATCH_RECOGNIZE over a streaming DataFrame: Spark keeps the state in its checkpoint, and the watermark.

It uses `transformWithStateInPandas` if the session has the state store that this needs (RocksDB, Spark 4), otherwise
`applyInPandasWithState`. Both carry the same bytes (see `pieces`).
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, DataType, IntegerType, StructField, StructType

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.spark.groups import Recognition
from candlewright_cep.spark.pieces import BUCKET, ROWS, TIME, Piece, advance, compiled, packer, report, unpacker
from candlewright_cep.spark.words import quoted

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

__all__ = ["BUCKETS", "matches_of_stream"]

#: The number of buckets of a stream. A checkpoint depends on it, so it never depends on the cluster.
BUCKETS = 64
_DELAY = "spark.watermarkDelayMs"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "state binary"
_RESULT = f"{ROWS} binary"


def matches_of_stream(rows: "DataFrame", recognition: Recognition, result: StructType) -> "DataFrame":
    """Raises TriggerRejected for a clause that cannot run on a stream."""
    time = recognition.first
    if not time or rows.schema[time].dataType.typeName() not in ("timestamp", "timestamp_ntz"):
        raise TriggerRejected("MATCH_RECOGNIZE on a stream needs ORDER BY a time, ascending, as the first key")
    piece = Piece(recognition, time, BUCKETS if recognition.keys else 1)
    compiled(piece)
    rows, delay = _with_watermark(rows, time)
    packed = rows.selectExpr("*", f"{_bucket(recognition)} AS {BUCKET}").mapInArrow(
        packer(piece), _packed_schema(rows.schema[time].dataType)
    )
    # Arrow functions lose the event-time mark, which stateful operators require.
    marked = packed[TIME].alias(TIME, metadata={_DELAY: delay})
    grouped = packed.select(BUCKET, marked, ROWS).groupBy(BUCKET)
    if _has_column_families(rows):
        from candlewright_cep.spark.processor import Matcher

        found = grouped.transformWithStateInPandas(Matcher(piece), _RESULT, "append", "EventTime")
    else:
        found = grouped.applyInPandasWithState(_stepper(piece), _RESULT, _STATE, "append", "EventTimeTimeout")
    return found.mapInArrow(unpacker(), result)


def _with_watermark(rows: "DataFrame", time: str) -> tuple["DataFrame", int]:
    metadata = rows.schema[time].metadata
    if _DELAY in metadata:
        return rows, int(metadata[_DELAY])
    warnings.warn(
        f"the stream has no watermark on {time}: rows that are older than a row of an earlier micro-batch are left "
        f'out. Say how long to wait for them: df.withWatermark("{time}", "10 seconds")',
        stacklevel=2,
    )
    return rows.withWatermark(time, "0 seconds"), 0


def _bucket(recognition: Recognition) -> str:
    if not recognition.keys:
        return "0"
    return f"CAST(pmod(xxhash64({', '.join(map(quoted, recognition.keys))}), {BUCKETS}) AS INT)"


def _packed_schema(time: DataType) -> StructType:
    return StructType([StructField(BUCKET, IntegerType()), StructField(TIME, time), StructField(ROWS, BinaryType())])


def _has_column_families(rows: "DataFrame") -> bool:
    if not hasattr(type(rows.groupBy()), "transformWithStateInPandas"):
        return False
    return "RocksDB" in (rows.sparkSession.conf.get(_PROVIDER, "") or "")


def _stepper(piece: Piece) -> Any:
    def step(
        key: tuple[int], batches: Iterable["pandas.DataFrame"], state: "GroupState"
    ) -> Iterator["pandas.DataFrame"]:
        import pandas

        watermark = max(state.getCurrentWatermarkMs(), 0)
        packed = [bytes(rows) for batch in batches for rows in batch[ROWS]]
        done = advance(piece, state.get[0] if state.exists else None, packed, watermark_ms=watermark)
        report(done)
        state.update((done.state,))
        if done.waits:
            state.setTimeoutTimestamp(watermark + 1)
        yield pandas.DataFrame({ROWS: list(done.results)})

    return step
