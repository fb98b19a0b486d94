"""MATCH_RECOGNIZE over a stock session of any Spark: batch, `install` and a stream that is started several times.

python on_spark.py [--rocksdb]

Prints one line for each that agrees with `evaluate`. It imports nothing from the tests, so it also runs where only the
wheel candlewright-cep and a PySpark are installed.
"""

import os
import random
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from candlewright_cep import evaluate, install, match_recognize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Across the hour that Paris has twice: a session with that zone must not change any time.
_START = datetime(2023, 10, 29, 0, 30, tzinfo=UTC)
_ROWS = 400
_COLUMNS = "user string, ts timestamp, v int"
_CLAUSE = """MATCH_RECOGNIZE (PARTITION BY user ORDER BY ts
    MEASURES FIRST(ts) AS since, LAST(ts) AS until, COUNT(*) AS n, MATCH_NUMBER() AS number
    PATTERN (S D+ U+) WITHIN INTERVAL '20' MINUTE DEFINE D AS v < PREV(v), U AS v > PREV(v)) AS m"""
_TEXT = f"SELECT * FROM clicks {_CLAUSE} WHERE n > 3"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def clicks() -> pa.Table:
    chance = random.Random(4)
    return pa.table(
        {
            "user": chance.choices(["a", "b", "c", None], k=_ROWS),
            "ts": pa.array([_START + timedelta(seconds=20 * row) for row in range(_ROWS)], pa.timestamp("us", "UTC")),
            "v": pa.array(chance.choices([1, 2, 3, 4, None], k=_ROWS), pa.int32()),
        }
    )


def wanted(table: pa.Table) -> list[str]:
    found = evaluate(_TEXT, table)
    assert found.num_rows > 5
    return shown(found)


def shown(table: pa.Table) -> list[str]:
    """The rows as text, in a canonical order and time zone."""
    columns = [
        column.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return sorted(map(str, zip(*(column.to_pylist() for column in columns), strict=True)))


def written(frame: "DataFrame", folder: Path) -> list[str]:
    frame.coalesce(1).write.parquet(str(folder))
    return read(folder)


def read(folder: Path) -> list[str]:
    return sorted(row for file in folder.glob("*.parquet") for row in shown(pq.read_table(file)))


def batch_agrees(spark: "SparkSession", folder: Path) -> None:
    table = clicks()
    pq.write_table(table, folder / "clicks.parquet")
    frame = spark.read.parquet(str(folder / "clicks.parquet"))
    assert written(match_recognize(frame, _TEXT), folder / "batch") == wanted(table)
    frame.createOrReplaceTempView("clicks_view")
    text = _TEXT.replace("clicks", "clicks_view").replace("n > 3", "n > :least")
    install(spark)
    assert written(spark.sql(text, {"least": 3}), folder / "installed") == wanted(table)
    views = [view.name for view in spark.catalog.listTables() if view.isTemporary]
    assert views == ["clicks_view"], views
    assert spark.sql("SELECT 'MATCH_RECOGNIZE (' AS s").collect()[0].s == "MATCH_RECOGNIZE ("


def stream_agrees(spark: "SparkSession", folder: Path, seed: int = 1, *, cuts: int = 3) -> None:
    """Rows arrive in any order within a minute, in files cut anywhere; the query is stopped and restarted after every
    second file.
    """
    chance = random.Random(seed)
    table = clicks()
    times = table.column("ts").to_pylist()
    came = [time + timedelta(seconds=chance.uniform(0, 59)) for time in times]
    shuffled = table.take(sorted(range(_ROWS), key=came.__getitem__))
    places = [0, *sorted(chance.sample(range(1, _ROWS), cuts)), _ROWS]
    last = table.slice(0, 1).set_column(1, "ts", pa.array([times[-1] + timedelta(days=1)], table.schema.field(1).type))
    parts = [shuffled.slice(start, end - start) for start, end in pairwise(places)]
    source = folder / "source"
    source.mkdir()
    for number, part in enumerate([*parts, last]):
        pq.write_table(part, source / f"{number}.parquet")
        if number % 2 == 0:
            _run_stream(spark, folder)
    assert read(folder / "sink") == wanted(table)


def _run_stream(spark: "SparkSession", folder: Path) -> None:
    rows = spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "source"))
    found = match_recognize(rows.withWatermark("ts", "1 minute"), _TEXT)
    writer = found.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "sink")).awaitTermination()


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "Europe/Paris")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    # On a busy machine a worker takes longer to start than the default waits.
    builder = builder.config("spark.python.authenticate.socketTimeout", "180s")
    if "--rocksdb" in sys.argv:
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    with TemporaryDirectory() as folder:
        spark = builder.config("spark.sql.warehouse.dir", folder).getOrCreate()
        for check in (batch_agrees, stream_agrees):
            place = Path(folder) / check.__name__
            place.mkdir()
            check(spark, place)
            sys.stdout.write(f"{check.__name__}\n")
        spark.stop()


if __name__ == "__main__":
    main()
