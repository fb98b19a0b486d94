"""Writes candles to files in the layouts that other tools expect; one module per layout."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datasets.layouts import backtrader, freqtrade, lean, nautilus, plain
from datasets.stored import Candles

__all__ = ["LAYOUTS", "Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """`write(candles, folder)` returns the files it wrote, and raises InvalidRequest for a period that the tool does
    not support.

    `keeps_incomplete`: the files mark incomplete rows; layouts that cannot mark them omit these rows.
    """

    write: Callable[[Candles, Path], list[Path]]
    doc: str
    keeps_incomplete: bool = False


LAYOUTS = {
    "parquet": Layout(plain.parquet, "columns as in lake.market.ohlc, one file a series", keeps_incomplete=True),
    "csv": Layout(plain.csv, "the same columns as text", keeps_incomplete=True),
    "freqtrade": Layout(freqtrade.write, "feather files for freqtrade's user_data/data"),
    "nautilus": Layout(nautilus.write, "a ParquetDataCatalog of nautilus_trader"),
    "backtrader": Layout(backtrader.write, "CSV for backtrader's GenericCSVData"),
    "lean": Layout(lean.write, "zip files for the data folder of QuantConnect's LEAN"),
}
