"""backtrader: CSV that `bt.feeds.GenericCSVData` reads with its default columns and `dtformat`, times in UTC."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from candlewright.wire.periods import format_period
from datasets.layouts.files import pair_of, replacing, venue_of
from datasets.stored import Candles


def write(candles: Candles, folder: Path) -> list[Path]:
    """Columns datetime, open, high, low, close, volume, openinterest, with a header line."""
    name = f"{pair_of(candles.ticker, '_')}-{format_period(candles.period_seconds)}.csv"
    file = folder / venue_of(candles.ticker) / name
    rows = candles.whole
    times = pc.strftime(rows["open_time"].cast(pa.timestamp("s", "UTC")), "%Y-%m-%d %H:%M:%S")
    columns = [times, *(rows[column] for column in ("open", "high", "low", "close", "volume"))]
    names = ["datetime", "open", "high", "low", "close", "volume", "openinterest"]
    table = pa.table([*columns, pa.repeat(pa.scalar(0), rows.num_rows)], names=names)
    with replacing(file) as draft:
        pa_csv.write_csv(table, draft, pa_csv.WriteOptions(quoting_style="none"))
    return [file]
