"""`candlewright sql`: Spark SQL on the tables, through Spark Connect, with MATCH_RECOGNIZE over any of them."""

import logging
from pathlib import Path

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import FileOutput, print_arrow, say
from candlewright.client.history.spark_connect import session_of
from candlewright.wire.errors import TriggerRejected

#: Spark's client writes each refusal to stderr, as JSON with its stack, before it raises what we show.
_CHATTER = "SQLQueryContextLogger"


def sql(statement: str, output: FileOutput, file: Path | None, config: Path | None) -> None:
    from flink_replacement_spark.sql.connect import answer

    logging.getLogger(_CHATTER).disabled = True
    with session_of(settings_for(config).spark) as session:
        try:
            table = answer(session, statement)
        except TriggerRejected as error:
            say(" ".join(str(error).split()))
            raise typer.Exit(1) from error
    print_arrow(table, output, file)
