"""What both twins share besides the session: identity, addresses, arguments, rows."""

from collections.abc import Mapping, Sequence
from os import PathLike

from candlewright.client.feed import Feed
from candlewright.client.history import History
from candlewright.client.live import Bar, Bars, Tick, Ticks
from candlewright.client.operations import Operations
from candlewright.client.parameters import Parameter, parameter_texts
from candlewright.client.questions import fresh_id
from candlewright.client.records import Notification, Range
from candlewright.client.rows import Rows, rows_from
from candlewright.client.session import Session
from candlewright.client.sockets import reachable
from candlewright.client.times import Time, to_nanoseconds
from candlewright.client.trigger_events import TriggerEvent, TriggerEvents
from core.errors import InvalidRequest
from core.keys import ClientKey
from core.settings import Settings
from protobuf.ingestor_pb2 import CEPTriggerRequest
from venues.periods import parse_period
from venues.ticker import Ticker

MAX_CLIENT_ID_BYTES = 200


class Connection:
    """`settings` name the addresses and the key that are not given, and where the tables are.

    Raises ConfigurationError for a key that cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        requests: str | None,
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
        if not self.client_id.startswith(self._name):
            raise ValueError(f"with the key of {self._name}, a client id begins with {self._name!r}")
        if len(self.client_id.encode()) > MAX_CLIENT_ID_BYTES:
            raise ValueError(f"a client id has at most {MAX_CLIENT_ID_BYTES} bytes")
        self.requests = reachable(requests or settings.relay.requests_bind)
        self.notifications = reachable(notifications or settings.relay.notifications_bind)
        self.session = Session()
        self.operations = Operations(self.session, self.client_id, self.requests, timeout, self._name)
        self._settings = settings
        self._rows = rows

    def new_request_id(self) -> str:
        return fresh_id("request", self._name)

    def range(self, ticker: str, period: str | int, start: Time, end: Time, limit: int | None) -> Range:
        """Raises InvalidRequest for what is no time or period; the rest is the platform's to judge."""
        return Range(ticker, parse_period(str(period)), to_nanoseconds(start), to_nanoseconds(end), limit)

    def bars(self, ticker: str, period: str | int, revisions: bool, first: int | None, buffer: int) -> Feed[Bar]:
        """Raises InvalidRequest for what is no ticker or period."""
        kind = Bars(str(Ticker.parse(ticker)), parse_period(str(period)), revisions)
        return Feed(kind.topic, kind, first, buffer)

    def ticks(self, ticker: str, first: int | None, buffer: int) -> Feed[Tick]:
        """Raises InvalidRequest for what is no ticker."""
        kind = Ticks(str(Ticker.parse(ticker)))
        return Feed(kind.topic, kind, first, buffer)

    def trigger(
        self,
        trigger_id: str | None,
        sql: str,
        tickers: Sequence[str],
        parameters: Mapping[str, Parameter] | None,
        callback_id: str | None,
    ) -> CEPTriggerRequest:
        """Raises InvalidRequest for what is no ticker or parameter; the text is the platform's to judge."""
        if isinstance(tickers, str):
            raise InvalidRequest(f"tickers are a list: write [{tickers!r}]")
        return CEPTriggerRequest(
            trigger_id=trigger_id if trigger_id is not None else fresh_id("trigger", self._name),
            sql_pattern=sql,
            tickers=[str(Ticker.parse(ticker)) for ticker in tickers],
            parameters=parameter_texts(parameters),
            callback_id=callback_id,
        )

    def trigger_events(self, trigger_id: str, first: int | None, buffer: int) -> Feed[TriggerEvent]:
        kind = TriggerEvents(trigger_id)
        return Feed(kind.topic, kind, first, buffer)

    def periods(self, periods: Sequence[str | int]) -> list[int]:
        """Raises InvalidRequest."""
        return [parse_period(str(period)) for period in periods]

    def read_history(self, wanted: Range, final: Notification) -> History:
        """The rows of a request that ended OK; raises RowsUnavailable."""
        if self._rows is None:
            self._rows = rows_from(self._settings)
        return self._rows.history(wanted, final)

    def read_final(self, final: Notification, limit: int | None) -> History:
        return self.read_history(Range(final.ticker, final.period_seconds, final.start, final.end, limit), final)
