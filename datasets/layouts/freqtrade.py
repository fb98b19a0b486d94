"""freqtrade: `DATADIR/binance/BTC_USDT-1m.feather`, columns date, open, high, low, close, volume.

Source: freqtrade's FeatherDataHandler. Time frames have ccxt's names.
"""

from pathlib import Path

import pyarrow as pa
from pyarrow import feather

from candlewright.wire.periods import format_period
from candlewright.wire.ticker import ccxt_id
from datasets.layouts.files import pair_of, replacing, venue_of
from datasets.stored import Candles


def write(candles: Candles, folder: Path) -> list[Path]:
    name = f"{pair_of(candles.ticker, '_')}-{format_period(candles.period_seconds)}.feather"
    file = folder / ccxt_id(venue_of(candles.ticker)) / name
    rows = candles.whole
    columns = [rows["open_time"].cast(pa.timestamp("ms", "UTC"))]
    columns += [rows[column] for column in ("open", "high", "low", "close", "volume")]
    table = pa.table(columns, names=["date", "open", "high", "low", "close", "volume"])
    with replacing(file) as draft:
        feather.write_feather(table, str(draft), compression="lz4", compression_level=9)
    return [file]
