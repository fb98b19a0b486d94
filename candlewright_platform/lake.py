"""Rows read directly from the Iceberg tables, without Spark, as the client reads them if the platform is installed."""

from collections.abc import Sequence

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history.history import History
from candlewright.client.history.promised import as_promised
from candlewright.client.history.stored import Stored
from candlewright.client.records import Notification, Range
from candlewright.settings import ClientConfig
from candlewright.wire.errors import CandlewrightError
from core.background import only_noted, start_thread
from core.settings import Settings


class LakeRows:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def history(self, wanted: Range, final: Notification) -> History:
        # Loading pyiceberg takes longer than most requests, so it is imported only to read rows.
        from iceberg.coverage import read_request
        from iceberg.read import read_ohlc

        try:
            table = read_ohlc(
                self._settings,
                wanted.ticker,
                wanted.period_seconds,
                start_ns=wanted.start,
                end_ns=wanted.end,
                limit=wanted.limit,
            )
            covered = read_request(self._settings, final.request_id)
        except (CandlewrightError, OSError) as error:
            raise RowsUnavailable(f"the tables in {self._settings.data_dir} cannot be read: {error}") from error
        return as_promised(table, holes=covered.holes, closed_until=covered.closed_until, wanted=wanted, final=final)

    def histories(self, wanted: Sequence[Range], finals: Sequence[Notification]) -> list[History | RowsUnavailable]:
        from iceberg.coverage import read_requests
        from iceberg.read import read_ohlc_of

        first = wanted[0]
        try:
            tables = read_ohlc_of(
                self._settings,
                [each.ticker for each in wanted],
                first.period_seconds,
                start_ns=first.start,
                end_ns=first.end,
            )
            covered = read_requests(self._settings, [final.request_id for final in finals])
        except (CandlewrightError, OSError) as error:
            unreadable = RowsUnavailable(f"the tables in {self._settings.data_dir} cannot be read: {error}")
            return [unreadable for _ in wanted]
        found: list[History | RowsUnavailable] = []
        for each, final in zip(wanted, finals, strict=True):
            about = covered[final.request_id]
            try:
                found.append(
                    as_promised(
                        tables[each.ticker].slice(0, each.limit),
                        holes=about.holes,
                        closed_until=about.closed_until,
                        wanted=each,
                        final=final,
                    )
                )
            except RowsUnavailable as error:
                found.append(error)
        return found

    def stored(self, wanted: Range, as_of: int | None) -> Stored:
        from iceberg.coverage import read_holes
        from iceberg.read import read_ohlc
        from iceberg.revisions import read_as_of

        what = (self._settings, wanted.ticker, wanted.period_seconds)
        try:
            if as_of is not None:
                return Stored.of(
                    read_as_of(*what, start_ns=wanted.start, end_ns=wanted.end, as_of_ns=as_of, limit=wanted.limit),
                    wanted,
                    as_of=as_of,
                )
            holes = read_holes(self._settings, wanted.ticker, wanted.period_seconds)
            return Stored.of(
                read_ohlc(*what, start_ns=wanted.start, end_ns=wanted.end, limit=wanted.limit), wanted, holes
            )
        except (CandlewrightError, OSError) as error:
            raise RowsUnavailable(f"the tables in {self._settings.data_dir} cannot be read: {error}") from error


def are_near(config: ClientConfig) -> bool:
    """Whether the tables can be read without a running platform."""
    if not isinstance(config, Settings):
        return False
    return config.iceberg.catalog != "sqlite" or (config.data_dir / "catalog.db").exists()


def near_rows(config: ClientConfig, *, is_command: bool = False) -> LakeRows | None:
    """None if the tables cannot be reached from here. `is_command`: begin to load the libraries that read them."""
    if not isinstance(config, Settings) or not are_near(config):
        return None
    if is_command:
        # A read that begins earlier waits for the import, and raises the same error.
        start_thread("load-tables", _load, on_failure=only_noted)
    return LakeRows(config)


def _load() -> None:
    import iceberg.coverage
    import iceberg.read  # noqa: F401
