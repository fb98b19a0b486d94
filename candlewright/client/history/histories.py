"""Candles of several tickers, requested and read together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from candlewright.client.errors import PlatformUnreachable, RowsUnavailable
from candlewright.client.history.history import Candles, History
from candlewright.client.history.progress import NotedProgress, Progress, Reporter
from candlewright.client.history.relayed_rows import RelayedRows
from candlewright.client.history.rows import Rows
from candlewright.client.notebook.cards import card, rows
from candlewright.client.records import Notification, Range
from candlewright.client.session.session import Operation
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.periods import format_period

T = TypeVar("T")


class Asked(Protocol):
    """The part of `Operations` that is needed here."""

    def history(
        self, wanted: Range, request_id: str, progress: Progress | None, *, timeout_seconds: float | None
    ) -> Operation[Notification]: ...

    rows: RelayedRows


Start: TypeAlias = Callable[[Asked], Operation[T]]
#: Requests of one call that run at a time.
AT_ONCE = 100
#: Tickers that the error of a call names.
_NAMED = 5


@dataclass(frozen=True, eq=False, repr=False)
class Histories(Candles):
    """The rows of several requests as one table: one ticker after the other, in the requested order.

    `of`: the history of each ticker. `errors`: why a ticker has none; empty unless `errors="keep"`.
    """

    of: Mapping[str, History]
    errors: Mapping[str, CandlewrightError]

    def __repr__(self) -> str:
        return f"<Histories tickers={len(self.of)} rows={self.row_count} errors={len(self.errors)}>"

    def __getitem__(self, ticker: str) -> History:
        """Raises the ticker's error if it has no history, and KeyError for one that was not requested."""
        if ticker in self.errors:
            raise self.errors[ticker]
        return self.of[ticker]

    def _repr_html_(self) -> str:
        found = [
            {"ticker": ticker, "candles": f"{history.row_count:,}", "holes": len(history.holes), "error": ""}
            for ticker, history in self.of.items()
        ]
        # The last rows of a long table are those that are shown.
        found += [{"ticker": ticker, "error": str(error)} for ticker, error in self.errors.items()]
        about = [f"{self.row_count:,} candles", f"{len(self.errors)} errors" if self.errors else ""]
        return card(f"{len(found)} tickers", about, rows(["ticker", "candles", "holes", "error"], found))


class TickersFailed(CandlewrightError):
    """`errors` says why, by ticker; `histories` has the candles of the others."""

    def __init__(self, errors: Mapping[str, CandlewrightError], histories: Histories) -> None:
        lines = [f"{ticker}: {error}" for ticker, error in list(errors.items())[:_NAMED]]
        more = f"; and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
        count = len(errors) + len(histories.of)
        super().__init__(f"{len(errors)} of {count} tickers failed: {'; '.join(lines)}{more}")
        self.errors = errors
        self.histories = histories


class Several:
    """One call for several tickers, step by step: its requests, the rows of those that ended well, the result."""

    def __init__(self, ranges: Sequence[Range], errors: str, progress: Progress | None) -> None:
        """Raises InvalidRequest for no ticker."""
        if not ranges:
            raise InvalidRequest("name at least one ticker")
        if errors not in ("raise", "keep"):
            raise InvalidRequest(f"errors is 'raise' or 'keep', not {errors!r}")
        self._ranges = {each.ticker: each for each in ranges}
        self._keeps_errors = errors == "keep"
        period = format_period(ranges[0].period_seconds)
        self._report = Reporter(f"history of {len(self._ranges)} tickers by {period}", progress)
        self._counts: dict[str, tuple[int, int]] = {}
        self._errors: dict[str, CandlewrightError] = {}
        self._finals: dict[str, Notification] = {}

    def requests(self, new_id: Callable[[], str], timeout: float | None) -> list[Start[Notification]]:
        def start(wanted: Range, identity: str) -> Start[Notification]:
            return lambda ask: self._request(ask, wanted, identity, timeout)

        return [start(each, new_id()) for each in self._ranges.values()]

    def _request(self, ask: Asked, wanted: Range, identity: str, timeout: float | None) -> Operation[Notification]:
        report = self.progress_of(wanted.ticker)
        try:
            return (yield from ask.history(wanted, identity, report, timeout_seconds=timeout))
        except CandlewrightError:
            # Its missing candles will not arrive.
            done, _ = self._counts.get(wanted.ticker, (0, 0))
            report(done, done, note="")
            raise

    def ended(self, outcomes: Sequence[Notification | CandlewrightError]) -> None:
        """Raises PlatformUnreachable, which does not concern a single ticker."""
        for ticker, outcome in zip(self._ranges, outcomes, strict=True):
            if isinstance(outcome, PlatformUnreachable):
                raise outcome
            if isinstance(outcome, CandlewrightError):
                self._errors[ticker] = outcome
            else:
                self._finals[ticker] = outcome

    def near_rows(self, near: Rows) -> list[History | RowsUnavailable]:
        wanted = [self._ranges[ticker] for ticker in self._finals]
        return near.histories(wanted, list(self._finals.values())) if wanted else []

    def row_queries(self) -> list[Start[History]]:
        def start(wanted: Range, final: Notification) -> Start[History]:
            return lambda ask: ask.rows.of(wanted, final)

        return [start(self._ranges[ticker], final) for ticker, final in self._finals.items()]

    def gathered(self, outcomes: Sequence[History | CandlewrightError]) -> Histories:
        """The histories, in the order of their requests. Raises TickersFailed unless errors are to be kept."""
        import pyarrow as pa

        found: dict[str, History] = {}
        for ticker, outcome in zip(self._finals, outcomes, strict=True):
            if isinstance(outcome, History):
                found[ticker] = outcome
            else:
                self._errors[ticker] = outcome
        errors = {ticker: self._errors[ticker] for ticker in self._ranges if ticker in self._errors}
        tables = [each.table for each in found.values()]
        histories = Histories(pa.concat_tables(tables) if tables else pa.table({}), found, errors)
        if errors and not self._keeps_errors:
            raise TickersFailed(errors, histories)
        return histories

    def progress_of(self, ticker: str) -> NotedProgress:
        def report(done: int, expected: int, *, note: str) -> None:
            self._counts[ticker] = done, expected
            dones, all_expected = zip(*self._counts.values(), strict=True)
            self._report(sum(dones), sum(all_expected), f"{ticker}: {note}" if note else "")

        return report
