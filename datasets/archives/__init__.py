"""Candles from files: public archives of venues, other tools' files, own CSV."""

from datasets.archives import binance, freqtrade, kraken, own_csv
from datasets.archives.candles import Candles, Wanted, together
from datasets.archives.files import MAX_ROWS, BadFile

__all__ = ["FORMATS", "MAX_ROWS", "OF_ONE_VENUE", "BadFile", "Candles", "Wanted", "together"]

#: Each reads a file as the candles that are wanted of it, or raises BadFile.
FORMATS = {
    "binance-klines": binance.read,
    "kraken": kraken.read,
    "freqtrade": freqtrade.read,
    "csv": own_csv.read,
}
#: Formats of a venue's own archives, which hold nothing but its data.
OF_ONE_VENUE = {"binance-klines": binance.VENUE, "kraken": kraken.VENUE}
