"""`candlewright sql`: Spark SQL on the tables, through Spark Connect, with the trigger language over any of them."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import FileOutput, print_arrow, say
from candlewright.client import PlatformUnreachable, connect
from candlewright.client.history.spark_connect import session_of
from candlewright.extensions import PlatformMissing, extension
from candlewright.settings import ClientConfig
from candlewright.wire.errors import InvalidRequest, TriggerRejected

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession

#: Spark's client writes each refusal to stderr, as JSON with its stack, before it raises the error that we show.
_CHATTER = "SQLQueryContextLogger"
_VIEWS_SECONDS = 5.0


def sql(statement: str, *, output: FileOutput, file: Path | None, config: Path | None) -> None:
    answer = extension("sql") or _plain
    settings = settings_for(config)
    logging.getLogger(_CHATTER).disabled = True
    with session_of(settings.spark) as session:
        try:
            table = answer(session, statement, views=lambda: _views(settings))
        except TriggerRejected as error:
            say(" ".join(str(error).split()))
            raise typer.Exit(1) from error
    print_arrow(table, output, file)


def _views(settings: ClientConfig) -> dict[str, str]:
    """The texts of the registered views by name."""
    try:
        with connect(settings=settings, timeout=_VIEWS_SECONDS) as c:
            return {view.name: view.sql for view in c.views.list()}
    except PlatformUnreachable as error:
        say(f"warning: registered views are unknown here: {error}")
        return {}


def _plain(session: "SparkSession", statement: str, views: object) -> "pa.Table":
    """Without the platform: plain Spark SQL."""
    from pyspark.errors import PySparkException

    if "MATCH_RECOGNIZE" in statement.upper():
        raise PlatformMissing("MATCH_RECOGNIZE in `candlewright sql`")
    try:
        return session.sql(statement).toArrow()
    except PySparkException as error:
        raise InvalidRequest(str(error).partition("\nJVM stacktrace")[0].strip()) from error
