"""Rows straight from the Iceberg tables, without Spark."""

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history import History
from candlewright.client.promised import as_promised
from candlewright.client.records import Notification, Range
from core.errors import CandlewrightError
from core.settings import Settings


class LakeRows:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def history(self, wanted: Range, final: Notification) -> History:
        # Loading pyiceberg takes longer than most requests: only those who read rows pay for it.
        from iceberg.coverage import read_holes
        from iceberg.read import read_ohlc

        try:
            table = read_ohlc(
                self._settings, wanted.ticker, wanted.period_seconds, wanted.start, wanted.end, wanted.limit
            )
            holes = read_holes(self._settings, final.request_id)
        except (CandlewrightError, OSError) as error:
            raise RowsUnavailable(f"the tables in {self._settings.data_dir} cannot be read: {error}") from error
        return as_promised(table, holes, wanted, final)
