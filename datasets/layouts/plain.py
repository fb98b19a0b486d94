"""Parquet and CSV with the columns of `lake.market.ohlc`."""

from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from candlewright.wire.periods import format_period
from datasets.layouts.files import pair_of, replacing, venue_of
from datasets.stored import Candles


def parquet(candles: Candles, folder: Path) -> list[Path]:
    file = _file(candles, folder, "parquet")
    with replacing(file) as draft:
        pq.write_table(candles.table, draft, compression="zstd")
    return [file]


def csv(candles: Candles, folder: Path) -> list[Path]:
    file = _file(candles, folder, "csv")
    with replacing(file) as draft:
        pa_csv.write_csv(candles.table, draft)
    return [file]


def _file(candles: Candles, folder: Path, suffix: str) -> Path:
    name = f"{pair_of(candles.ticker, '_')}-{format_period(candles.period_seconds)}.{suffix}"
    return folder / venue_of(candles.ticker) / name
