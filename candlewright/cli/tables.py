"""`candlewright sql`: Spark SQL on the tables, through Spark Connect, with MATCH_RECOGNIZE over any of them."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import FileOutput, print_arrow, say
from candlewright.client.history.spark_connect import session_of
from candlewright.extensions import PlatformMissing, extension
from candlewright.wire.errors import InvalidRequest, TriggerRejected

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession

#: Spark's client writes each refusal to stderr, as JSON with its stack, before it raises the error that we show.
_CHATTER = "SQLQueryContextLogger"


def sql(statement: str, *, output: FileOutput, file: Path | None, config: Path | None) -> None:
    answer = extension("sql") or _plain
    logging.getLogger(_CHATTER).disabled = True
    with session_of(settings_for(config).spark) as session:
        try:
            table = answer(session, statement)
        except TriggerRejected as error:
            say(" ".join(str(error).split()))
            raise typer.Exit(1) from error
    print_arrow(table, output, file)


def _plain(session: "SparkSession", statement: str) -> "pa.Table":
    """Without the platform: plain Spark SQL."""
    from pyspark.errors import PySparkException

    if "MATCH_RECOGNIZE" in statement.upper():
        raise PlatformMissing("MATCH_RECOGNIZE in `candlewright sql`")
    try:
        return session.sql(statement).toArrow()
    except PySparkException as error:
        raise InvalidRequest(str(error).partition("\nJVM stacktrace")[0].strip()) from error
