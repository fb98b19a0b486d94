"""Run by freqtrade's own Python: the candles of one pair in the folder argv[1] as CSV on stdout."""

import sys
from pathlib import Path

from freqtrade.data.history import load_pair_history

rows = load_pair_history(sys.argv[2], "1m", Path(sys.argv[1]), fill_up_missing=False, drop_incomplete=False)
for row in rows.itertuples():
    print(int(row.date.timestamp()), row.open, row.high, row.low, row.close, row.volume, sep=",")  # noqa: T201
