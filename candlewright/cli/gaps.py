"""`candlewright gaps`: trades that the stream of a ticker missed, repaired or not."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, print_rows, yes_or_no
from core.errors import InvalidRequest
from core.settings import Settings
from venues.ticker import Ticker

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("from_ts", "to_ts", "from_trade_id", "to_trade_id", "missing", "repaired", "reason", "detected_at")


def gaps(ticker: str, output: Output, data_dir: Path | None, config: Path | None) -> None:
    try:
        Ticker.parse(ticker)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    rows = read(settings_for(config, data_dir), ticker).to_pylist()
    if output is Output.table:
        for row in rows:
            row["repaired"] = yes_or_no(row["repaired"])
    print_rows(rows, output, COLUMNS, f"no gaps of {ticker}")


def read(settings: Settings, ticker: str) -> "pa.Table":
    """From the tables themselves where they can be reached, else through Spark Connect."""
    if settings.iceberg.catalog != "sqlite" or (settings.data_dir / "catalog.db").exists():
        from iceberg.read import read_gaps

        return read_gaps(settings, ticker)
    from candlewright.client.spark_connect import session_of

    with session_of(settings.spark) as session:
        query = "SELECT * FROM lake.market.gaps WHERE ticker = :ticker ORDER BY from_ts, detected_at"
        return session.sql(query, args={"ticker": ticker}).toArrow()
