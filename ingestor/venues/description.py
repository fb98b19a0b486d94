"""The types with which an exchange's file declares what is known about it.

A venue is a `VenueDescription` and pure functions, from a query to the parameters of a raw call of ccxt, and from the
decoded reply to columns or trades. The other rooms make the calls, page, keep to rate limits and repair; they take from
here what differs between exchanges.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from candlewright.wire.grid import SECOND
from ingestor.candles import Candles
from ingestor.trade import Aggregate
from ingestor.venues.hooks import Hooks
from ingestor.venues.limits import Call, Limits
from ingestor.venues.reading import Parse, Row

MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Market:
    symbol: str
    market_id: str
    is_active: bool
    base_id: str
    quote_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """A raw call: ccxt's implicit method, its parameters, and the kind of call that pays for it."""

    call: Call
    method: str
    parameters: Mapping[str, Any]


# ---- candles


class Fill(Enum):
    """The end of the window at which a page begins if it cannot hold the whole window."""

    OLDEST_FIRST = "oldest first"
    NEWEST_FIRST = "newest first"
    UNKNOWN = "unknown"


class Closing(Enum):
    """How an answer itself marks a candle that has not closed. The exchange's clock decides in any case."""

    NOTHING = "nothing"
    FLAG = "a flag on each candle"
    LAST = "the time of the last finished candle"


@dataclass(frozen=True, slots=True)
class Query:
    """Candles with start <= open < end (ns, on the grid); `now` is a time that the exchange's clock had reached."""

    market: Market
    timeframe: str
    period_seconds: int
    start: int
    end: int
    now: int

    @property
    def period(self) -> int:
        return self.period_seconds * SECOND

    def newest(self, bars: int) -> int:
        """The open time (ns) at which the newest `bars` candles begin."""
        return self.now - bars * self.period


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The candles received, even those outside the window; `unfinished` is the open time of a candle that the exchange
    marked as not closed (it is not among `candles`).
    """

    candles: Candles
    unfinished: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeCursor:
    """Trades after a time (ns, exclusive), the oldest first: `ask(market, since)`, None for the newest.

    `read`: the rows of a reply, and the cursor (ns) that asks for what follows.
    """

    ask: Callable[[Market, int | None], Request]
    read: Callable[[Any, Market], tuple[Sequence[Row], int]]
    parse: Parse
    page_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CandleSource:
    """The source of a venue's candles, and how its pages behave.

    `ask(query, interval)`: the raw call, with the exchange's own name of the period; None uses ccxt's unified call.
    `read` raises BadReply for a reply that is not a well-formed page. `is_wide`: a window may be longer than one page.
    `depth` > 0: only this many of the newest candles are kept; `older` builds earlier ones from trades. `recent_bars` >
    0: this many of the newest candles have a separate endpoint, and a window stays on one side.
    """

    max_candles: int
    fill: Fill
    closing: Closing = Closing.NOTHING
    ask: Callable[[Query, str], Request] | None = None
    read: Callable[[Any, Query], Page] | None = None
    is_wide: bool = False
    depth: int = 0
    recent_bars: int = 0
    older: TradeCursor | None = None


# ---- trades


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateTrades:
    """Aggregates, oldest first, that name the raw ids that they join.

    `since(market, start)` requests those of `window_ns` from a time (ns); `after(market, number)` those after the
    aggregate with this number; `parse` returns one row's aggregate and its number.
    """

    since: Callable[[Market, int], Request]
    after: Callable[[Market, int], Request]
    parse: Callable[[Row], tuple[int, Aggregate]]
    window_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestTrades:
    """Only the newest page of trades is available without a key; `path` leads to its rows in the reply, newest first.

    `joins_fills`: the socket joins the fills of an order under the id of the last one, while REST shows them one by
    one. `aggregates` repair the bars beyond the page's reach.
    """

    ask: Callable[[Market], Request]
    parse: Parse
    path: tuple[str, ...] = ()
    joins_fills: bool = False
    aggregates: AggregateTrades | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """`hooks` are mixed in ahead of the ccxt.pro class. `is_dense`: trade ids of a market count up by one. `repair`:
    the REST source of trades that a socket missed. `by_symbol`: frames name a market by ccxt's symbol instead of the
    exchange's id. `subscribe_pause`: seconds between two subscriptions on one connection. `lag_ms`: how long after its
    time a trade may reach the socket, although later messages already have. The exchange's clock is published with this
    delay, or with the largest one of the last minutes.
    """

    hooks: type[Hooks]
    is_dense: bool
    repair: NewestTrades | TradeCursor
    by_symbol: bool = False
    subscribe_pause: float = 0.05
    lag_ms: int = 250


# ---- the whole


@dataclass(frozen=True, slots=True)
class Lie:
    """An answer that looks right but is wrong, and where it is documented."""

    what: str
    link: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A property that was verified on bytes recorded from the exchange, and the test that does so."""

    what: str
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VenueDescription:
    """`name` is the venue of a ticker, `ccxt_id` the class of ccxt that speaks to it.

    `has_spot_switch`: ccxt loads derivatives too, unless an option excludes them. `needs_currencies`: its market list
    is incomplete without the list of currencies, a further request. `needs_raw_markets`: ccxt reads its raw market
    records again, which use most of a market list's memory.
    """

    name: str
    ccxt_id: str
    candles: CandleSource
    limits: Limits
    stream: Stream | None = None
    has_spot_switch: bool = False
    needs_currencies: bool = True
    needs_raw_markets: bool = True
    lies: tuple[Lie, ...] = ()
    verified: tuple[Proof, ...] = ()
    unverified: tuple[str, ...] = field(default=())
