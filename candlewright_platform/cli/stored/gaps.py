"""`candlewright gaps`: trades that the stream of a ticker missed, repaired or not."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from candlewright.cli.output import Output, print_rows, yes_or_no
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ticker import Ticker
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.stored.near_tables import naming_the_folder
from candlewright_platform.cli.stored.near_tickers import near_stored
from candlewright_platform.lake import are_near
from core.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("from_ts", "to_ts", "from_trade_id", "to_trade_id", "missing", "repaired", "reason", "detected_at")


def gaps(ticker: str, output: Output, data_dir: Path | None, *, config: Path | None) -> None:
    try:
        Ticker.parse(ticker)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    settings = settings_for(config, data_dir)
    with naming_the_folder(settings):
        rows = read(settings, ticker).to_pylist()
    if output is Output.table:
        for row in rows:
            row["repaired"] = yes_or_no(row["repaired"])
    print_rows(rows, output, columns=COLUMNS, empty=_nothing(settings, ticker) if not rows else "")


def _nothing(settings: Settings, ticker: str) -> str:
    from iceberg.read import is_stored

    if not are_near(settings) or is_stored(settings, ticker):
        return f"no gaps of {ticker}"
    return f"no gaps of {ticker}: nothing of it is stored{near_stored(settings, ticker)}"


def read(settings: Settings, ticker: str) -> "pa.Table":
    """Reads the tables directly if they can be reached, else through Spark Connect."""
    if are_near(settings):
        from iceberg.read import read_gaps

        return read_gaps(settings, ticker)
    from candlewright.client.history.spark_connect import session_of

    with session_of(settings.spark) as session:
        query = "SELECT * FROM lake.market.gaps WHERE ticker = :ticker ORDER BY from_ts, detected_at"
        return session.sql(query, args={"ticker": ticker}).toArrow()
