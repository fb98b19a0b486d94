"""Run by nautilus_trader's own Python: the bars of the catalog in argv[1] as CSV on stdout."""

import sys

from nautilus_trader.persistence.catalog import ParquetDataCatalog

for bar in ParquetDataCatalog(sys.argv[1]).bars():
    print(bar.bar_type.instrument_id, bar.ts_event, bar.open, bar.high, bar.low, bar.close, bar.volume, sep=",")  # noqa: T201
