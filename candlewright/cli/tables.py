"""`candlewright sql`: Spark SQL on the tables, through Spark Connect."""

from pathlib import Path

from candlewright.cli.loading import settings_for
from candlewright.cli.output import FileOutput, print_arrow
from candlewright.client.spark_connect import open_session
from core.errors import CandlewrightError


def sql(statement: str, output: FileOutput, file: Path | None, config: Path | None) -> None:
    from pyspark.errors import PySparkException

    session = open_session(settings_for(config).spark.connect_bind)
    try:
        table = session.sql(statement).toArrow()
    except PySparkException as error:
        raise CandlewrightError(first_lines(str(error))) from error
    finally:
        session.stop()
    print_arrow(table, output, file)


def first_lines(text: str) -> str:
    """Spark's message without its JVM stack."""
    kept = text.partition("\nJVM stacktrace:")[0].strip()
    return "\n".join(kept.splitlines()[:12])
