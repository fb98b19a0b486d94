"""Shared by both clients besides the session: identity, addresses, arguments, rows."""

import getpass
import hashlib
import socket
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from candlewright.client import http
from candlewright.client.history.rows import Rows, near_rows
from candlewright.client.live.feed import Feed
from candlewright.client.live.items import Bar, Bars, Tick, Ticks
from candlewright.client.operations import Operations
from candlewright.client.records import Notification, Range
from candlewright.client.session.questions import fresh_id
from candlewright.client.session.session import Session
from candlewright.client.session.sockets import reachable
from candlewright.client.sql import query, refused
from candlewright.client.triggers.parameters import Parameter, parameter_texts
from candlewright.client.triggers.trigger_events import TriggerEvent, TriggerEvents
from candlewright.settings import ClientConfig
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright.wire.keys import ClientKey
from candlewright.wire.periods import parse_period
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import Time, format_nanoseconds, to_nanoseconds

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CLIENT_ID_BYTES = 200


def _relays(
    settings: ClientConfig, requests: str | Sequence[tuple[str, str]] | None, notifications: str | None
) -> list[tuple[str, str]]:
    """Addresses for requests and for notifications, of each relay."""
    if requests is not None and not isinstance(requests, str):
        if notifications is not None or not requests:
            raise ValueError("give a list of (requests, notifications) pairs, or the two addresses of one relay")
        return [(reachable(first), reachable(second)) for first, second in requests]
    first, second = requests or settings.relay.requests_bind, notifications or settings.relay.notifications_bind
    return [(reachable(first), reachable(second))]


class Connection:
    """`settings` supply the addresses and the key that are not given, and the location of the tables.

    Raises ConfigurationError for a key that cannot be read.
    """

    def __init__(
        self,
        settings: ClientConfig,
        *,
        requests: str | Sequence[tuple[str, str]] | None,
        notifications: str | None,
        timeout: float,
        client_id: str | None,
        rows: Rows | None,
        key: str | PathLike[str] | None = None,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout must be over 0 s, not {timeout}")
        path = key if key is not None else settings.client.key
        self.key = ClientKey.read(path) if path else None
        self._name = self.key.name if self.key is not None else ""
        self.client_id = client_id or fresh_id("client", self._name)
        #: The client's identity across restarts, for which a generated id cannot be used.
        self._identity = client_id or self._name or f"{getpass.getuser()}@{socket.gethostname()}"
        if not self.client_id.startswith(self._name):
            raise ValueError(f"with the key of {self._name}, a client id begins with {self._name!r}")
        if len(self.client_id.encode()) > MAX_CLIENT_ID_BYTES:
            raise ValueError(f"a client id has at most {MAX_CLIENT_ID_BYTES} bytes")
        self.relays = _relays(settings, requests, notifications)
        self.requests = self.relays[0][0]
        self.session = Session(has_other_relays=len(self.relays) > 1)
        self.operations = Operations(
            self.session, self.client_id, address=self.requests, timeout_seconds=timeout, name=self._name
        )
        self._settings = settings
        self._rows = rows
        self._timeout, self._path = timeout, path

    def another(self) -> "Connection":
        """A connection to the same platform, for separate sockets."""
        return Connection(
            self._settings,
            requests=self.relays,
            notifications=None,
            timeout=self._timeout,
            client_id=None,
            rows=self._rows,
            key=self._path,
        )

    def new_request_id(self) -> str:
        return fresh_id("request", self._name)

    def range(
        self, ticker: str, period: str | int, *, start: Time, end: Time, limit: int | None, refresh: bool = False
    ) -> Range:
        """Raises InvalidRequest for an invalid time or period; the platform checks the rest."""
        return Range(ticker, parse_period(str(period)), to_nanoseconds(start), to_nanoseconds(end), limit, refresh)

    def bars(self, ticker: str, period: str | int, *, revisions: bool, first: int | None, buffer: int) -> Feed[Bar]:
        """Raises InvalidRequest for an invalid ticker or period."""
        kind = Bars(str(Ticker.parse(ticker)), parse_period(str(period)), revisions=revisions)
        return Feed(kind.topic, kind, first=first, buffer=buffer)

    def ticks(self, ticker: str, first: int | None, buffer: int) -> Feed[Tick]:
        """Raises InvalidRequest for an invalid ticker."""
        kind = Ticks(str(Ticker.parse(ticker)))
        return Feed(kind.topic, kind, first=first, buffer=buffer)

    def trigger(
        self,
        trigger_id: str | None,
        sql: str,
        tickers: Sequence[str],
        *,
        parameters: Mapping[str, Parameter] | None,
        callback_id: str | None,
    ) -> CEPTriggerRequest:
        """Raises InvalidRequest for an invalid ticker or parameter; the platform checks the text."""
        if isinstance(tickers, str):
            raise InvalidRequest(f"tickers are a list: write [{tickers!r}]")
        request = CEPTriggerRequest(
            trigger_id=trigger_id,
            sql_pattern=sql,
            tickers=[str(Ticker.parse(ticker)) for ticker in tickers],
            parameters=parameter_texts(parameters),
            callback_id=callback_id,
        )
        if trigger_id is None:
            request.trigger_id = self._derived_id(request)
        return request

    def _derived_id(self, request: CEPTriggerRequest) -> str:
        """The same for the same trigger of the same client: a script that runs twice registers one trigger."""
        tickers, parameters = sorted(request.tickers), sorted(request.parameters.items())
        content = repr((self._identity, request.sql_pattern, tickers, parameters, request.callback_id))
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        return "-".join(filter(None, (self._name, "trigger", digest)))

    def trigger_events(self, trigger_id: str, first: int | None, buffer: int) -> Feed[TriggerEvent]:
        kind = TriggerEvents(trigger_id)
        return Feed(kind.topic, kind, first=first, buffer=buffer)

    def periods(self, periods: Sequence[str | int]) -> list[int]:
        """Raises InvalidRequest."""
        return [parse_period(str(period)) for period in periods]

    def sql(self, text: str, limit: int | None) -> "pa.Table":
        return query(self._settings, text, limit)

    def read(self, path: str, parameters: Mapping[str, object]) -> bytes:
        """An answer of the HTTP API; raises InvalidRequest, NotAuthorised, PlatformRefused and PlatformUnreachable."""
        try:
            return http.call(self._settings, "GET", f"/{path}", query=parameters)[0]
        except http.Refused as error:
            raise refused(error) from None

    @property
    def near(self) -> Rows | None:
        """Reads rows without the relay; None if that is not possible."""
        if self._rows is None:
            self._rows = near_rows(self._settings)
        return self._rows

    def stored(self, wanted: Range, as_of: Time | None) -> int | None:
        """The `as_of` time in ns of rows that are read without a request; raises InvalidRequest for other arguments."""
        Ticker.parse(wanted.ticker)
        if wanted.start >= wanted.end:
            raise InvalidRequest("the start of the range must be before its end")
        if wanted.limit is not None and wanted.limit < 1:
            raise InvalidRequest("the limit must be at least 1")
        if wanted.refresh:
            raise InvalidRequest("as_of fetches nothing: leave out refresh")
        moment = None if as_of is None else to_nanoseconds(as_of)
        if moment is not None and moment > time.time_ns():
            raise InvalidRequest(f"as_of {format_nanoseconds(moment)} is in the future")
        return moment


def end_of(end: Time | None, as_of: Time | None, request_id: str | None) -> Time:
    """The end of a range that a call may leave open: now, or the given time. Raises InvalidRequest if repeating the
    request would mean another range later.
    """
    if end is not None:
        return end
    if request_id is not None:
        raise InvalidRequest("a request_id names one range: give its end too")
    return time.time_ns() if as_of is None else as_of


def range_of(final: Notification, limit: int | None) -> Range:
    return Range(final.ticker, final.period_seconds, final.start, final.end, limit)
