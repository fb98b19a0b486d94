"""Running totals and indicators keep one state per partition, and as many as patterns may."""

import pyarrow as pa
import pytest

from candlewright_cep import (
    Limits,
    ReleaseBuffer,
    StreamInput,
    TriggerRejected,
    TriggerStream,
    compile_stream,
)

pytestmark = pytest.mark.timeout(60)

_DAY = 86_400 * 10**9
_OVER = "SELECT {} OVER (PARTITION BY ticker, trade_id ORDER BY ts) AS x FROM ticks"
_TEXTS = {
    "total": _OVER.format("SUM(price)"),
    "number": _OVER.format("ROW_NUMBER()"),
    "percentile": _OVER.format("APPROX_PERCENTILE(price, 0.5)"),
    "indicator": _OVER.format("EMA(price, 3)"),
    "changes": "SELECT ticker, trade_id, COUNT(*) AS x FROM ticks GROUP BY ticker, trade_id EMIT CHANGES",
}


def _trades(first: int, count: int, step_ns: int = 1) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "ticker": ["A"] * count,
            "trade_id": [str(number) for number in numbers],
            "ts": pa.array([number * step_ns for number in numbers]).cast(pa.timestamp("ns", "UTC")),
            "price": [1.0] * count,
        }
    )


class _Fed:
    def __init__(self, sql: str, partitions: int) -> None:
        source = StreamInput(_trades(0, 1).schema, ("ts",))
        self.stream = TriggerStream(query=compile_stream(sql, {"ticks": source}, limits=Limits(partitions=partitions)))
        self._buffer = ReleaseBuffer("ts", "ticker")

    def feed(self, rows: pa.Table) -> int:
        released = self._buffer.push(rows).rows
        return self.stream.feed(released, self._buffer.clock).table.num_rows


@pytest.mark.parametrize("name", _TEXTS)
def test_too_many_partitions_are_refused(name: str) -> None:
    fed = _Fed(_TEXTS[name], partitions=100)
    fed.feed(_trades(0, 100))
    fed.feed(_trades(50, 50))
    assert fed.stream.partitions in (99, 100)  # a newest row may wait for those of its time
    with pytest.raises(TriggerRejected, match="OVER keeps more than 100 partitions at a time"):
        fed.feed(_trades(100, 2))


@pytest.mark.parametrize("function", ["COUNT(*)", "EMA(price, 3)"])
def test_partitions_of_past_days_do_not_count(function: str) -> None:
    sql = f"""SELECT {function} OVER (PARTITION BY ticker, day ORDER BY ts) AS x
        FROM (SELECT ticker, ts, price, CAST(ts AS DATE) AS day FROM ticks)"""
    fed = _Fed(sql, partitions=10)
    for day in range(30):
        fed.feed(_trades(day, 1, step_ns=_DAY))
    assert fed.stream.partitions <= 10
