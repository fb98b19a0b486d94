"""`match_recognize` and `install` over frames that are unrelated to the platform's tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from candlewright_cep import TriggerRejected, install, match_recognize
from tests.candlewright_cep.spark.on_spark import ROCKSDB, batch_agrees, stream_agrees
from tests.conftest import ROOT
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def session(platform: Platform) -> Iterator[SparkSession]:
    found = platform.driver.session.newSession()
    found.catalog.setCurrentCatalog("spark_catalog")
    found.conf.set("spark.sql.shuffle.partitions", "2")
    found.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    yield found
    # The method that `install` has replaced.
    found.__dict__.pop("sql", None)


def test_a_frame_and_a_view_give_the_rows_of_evaluate(session: SparkSession, tmp_path: Path) -> None:
    batch_agrees(session, tmp_path)


@pytest.mark.parametrize("cuts", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_stream_over_restarts_gives_the_rows_of_evaluate(session: SparkSession, tmp_path: Path, cuts: int) -> None:
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    stream_agrees(session, tmp_path, cuts=cuts)


@pytest.mark.long
def test_a_stream_in_the_default_state_store_gives_the_rows_of_evaluate(session: SparkSession, tmp_path: Path) -> None:
    stream_agrees(session, tmp_path, seed=2)


def test_other_texts_reach_spark_unchanged_and_clauses_are_refused_in_their_place(session: SparkSession) -> None:
    assert install(install(session)) is session
    assert session.sql("SELECT :a AS a", {"a": 1}).collect()[0].a == 1
    rows = session.range(3)
    assert session.sql("SELECT SUM(id) AS n FROM {rows}", rows=rows).collect()[0].n == 3
    with pytest.raises(TypeError, match="args="):
        session.sql("SELECT * FROM {rows} MATCH_RECOGNIZE (PATTERN (A))", rows=rows)
    with pytest.raises(TriggerRejected, match=r"INVALID_SQL 2:27: .*did you mean 'id'"):
        match_recognize(rows, "\nMATCH_RECOGNIZE (ORDER BY idd PATTERN (A))")
    with pytest.raises(TriggerRejected, match="the text has no MATCH_RECOGNIZE"):
        match_recognize(rows, "SELECT * FROM rows")


def test_a_stream_needs_the_event_time_and_reports_a_missing_watermark(session: SparkSession) -> None:
    rows = session.readStream.format("rate").load()
    clause = "MATCH_RECOGNIZE (ORDER BY {0} MEASURES A.value AS v PATTERN (A B) DEFINE B AS value > A.value)"
    with pytest.raises(TriggerRejected, match="needs ORDER BY a time"):
        match_recognize(rows, clause.format("value"))
    with pytest.warns(UserWarning, match="no watermark on timestamp"):
        found = match_recognize(rows, clause.format("timestamp"))
    assert found.isStreaming
    assert found.columns == ["v"]


def test_the_fraud_of_the_readme_is_found(session: SparkSession) -> None:
    text = (ROOT / "candlewright_cep" / "README.md").read_text().partition('FRAUD = """')[2].partition('"""')[0]
    rows = session.sql(
        "SELECT * FROM VALUES ('x', TIMESTAMP '2024-01-01 00:00:00', 1.0), "
        "('x', TIMESTAMP '2024-01-01 00:00:20', 2.0), "
        "('x', TIMESTAMP '2024-01-01 00:00:40', 900.0), ('y', TIMESTAMP '2024-01-01 00:00:00', 900.0) "
        "AS payments(card, ts, amount)"
    )
    assert [(row.card, row.amount) for row in match_recognize(rows, text).collect()] == [("x", 900.0)]
