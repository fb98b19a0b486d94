"""Reads candles from files: public archives of venues, other tools' files, CSV."""

from datasets.archives import binance, freqtrade, kraken, own_csv
from datasets.archives.candles import Candles, Wanted, together
from datasets.archives.files import MAX_ROWS, BadFile
from datasets.archives.own_csv import OWN_COLUMNS

__all__ = ["FORMATS", "MAX_ROWS", "OF_ONE_VENUE", "OWN_COLUMNS", "BadFile", "Candles", "Wanted", "together"]

#: Reader of each format: returns the wanted candles of a file, or raises BadFile.
FORMATS = {
    "binance-klines": binance.read,
    "kraken": kraken.read,
    "freqtrade": freqtrade.read,
    "csv": own_csv.read,
}
#: Formats of a venue's own archives, which hold only that venue's data.
OF_ONE_VENUE = {"binance-klines": binance.VENUE, "kraken": kraken.VENUE}
