"""Validates requests. Raises InvalidRequest with a sentence for the user, and returns the form that is put on the
bus.
"""

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import EARLIEST_NS, LATEST_NS, WEEK_SECONDS, count_opens, other_unit
from candlewright.wire.ticker import Ticker
from relay.venues.venue_book import VenueBook

MAX_ID_BYTES = 200


def check_id(name: str, value: str) -> None:
    if not value:
        raise InvalidRequest(f"The {name} is empty.")
    size = len(value.encode())
    if size > MAX_ID_BYTES:
        raise InvalidRequest(f"The {name} has {size} bytes; at most {MAX_ID_BYTES} are allowed.")
    if "#" in value:
        raise InvalidRequest(f"The {name} holds the character '#', which is reserved for the pieces of a request.")


def check_time(name: str, value: int) -> None:
    if EARLIEST_NS <= value < LATEST_NS:
        return
    if (unit := other_unit(value)) is not None:
        raise InvalidRequest(f"The {name} {value} looks like {unit}; times are nanoseconds since 1970, UTC.")
    raise InvalidRequest(
        f"The {name} {value} is not between the years 1990 and 2200; times are nanoseconds since 1970, UTC."
    )


def check_ticker(text: str, venues: VenueBook) -> Ticker:
    try:
        ticker = Ticker.parse(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"The ticker is malformed: {error}.") from error
    venues.check_venue(ticker.venue)
    return ticker


def check_range(start: int, end: int) -> None:
    check_time("start_time", start)
    check_time("end_time", end)
    if start >= end:
        raise InvalidRequest("The start_time is not before the end_time; a range is [start, end).")


def historical(message: ing.SubmitHistoricalRequest, venues: VenueBook) -> ing.SubmitHistoricalRequest:
    """The request in the form in which it is compared and stored: without unknown fields or an empty client id."""
    check_id("request_id", message.request_id)
    if message.client_id:
        check_id("client_id", message.client_id)
    ticker = check_ticker(message.ticker, venues)
    if message.period_seconds == 0:
        raise InvalidRequest("The period_seconds is 0; give the length of a candle in seconds.")
    venues.check_period(ticker.venue, message.period_seconds)
    check_range(message.start_time, message.end_time)
    if message.HasField("limit") and message.limit == 0:
        raise InvalidRequest("The limit is 0; leave it out to get every candle.")
    clean = ing.SubmitHistoricalRequest()
    clean.CopyFrom(message)
    clean.DiscardUnknownFields()
    if not clean.client_id:
        clean.ClearField("client_id")
    return clean


def check_stored(query: cw.StoredQuery) -> None:
    """Check a query of stored candles, which can be read even if their venue is not served now."""
    check_id("request_id", query.request_id)
    try:
        Ticker.parse(query.ticker)
    except InvalidRequest as error:
        raise InvalidRequest(f"The ticker is malformed: {error}.") from error
    if query.period_seconds == 0:
        raise InvalidRequest("The period_seconds is 0; give the length of a candle in seconds.")
    check_range(query.start_time, query.end_time)
    if query.HasField("as_of"):
        check_time("as_of", query.as_of)
    if query.HasField("limit") and query.limit == 0:
        raise InvalidRequest("The limit is 0; leave it out to get every candle.")


def data_request(message: ing.DataRequest, venues: VenueBook) -> ing.DataRequest:
    """A realtime or snapshot request in the form in which it is stored: without the fields that only the broker
    sets.
    """
    check_id("request_id", message.request_id)
    if message.client_id:
        check_id("client_id", message.client_id)
    if message.type == ing.DataRequest.HISTORICAL_OHLC:
        raise InvalidRequest("Candles of the past are asked for by a SubmitHistoricalRequest (type 0x10).")
    if message.type not in (ing.DataRequest.REALTIME_TICKS, ing.DataRequest.TICKER_SNAPSHOT):
        raise InvalidRequest(f"The request type {message.type} is not known.")
    check_ticker(message.ticker, venues)
    for period in message.realtime.ohlc_period_seconds:
        if not 1 <= period <= WEEK_SECONDS:
            raise InvalidRequest(f"Bars of {period} seconds are not made; a bar lasts from 1 second to one week.")
    clean = ing.DataRequest()
    clean.CopyFrom(message)
    clean.DiscardUnknownFields()
    for name in ("job_id", "historical"):
        clean.ClearField(name)
    if not clean.client_id:
        clean.ClearField("client_id")
    return clean


def legacy(
    message: ing.OHLCRequest, client_id: str, venues: VenueBook, *, max_rows: int
) -> ing.SubmitHistoricalRequest:
    """The historical request that answers an OHLCRequest."""
    request = ing.SubmitHistoricalRequest(
        request_id=message.request_id,
        ticker=message.ticker,
        start_time=message.start_time,
        end_time=message.end_time,
        period_seconds=message.period_seconds,
        client_id=client_id,
    )
    if message.HasField("limit"):
        request.limit = message.limit
    checked = historical(request, venues)
    rows = count_opens(message.start_time, message.end_time, message.period_seconds)
    if min(rows, message.limit or rows) > max_rows:
        raise InvalidRequest(
            f"This would be {rows} candles; an OHLCRequest returns at most {max_rows}. "
            "Use a SubmitHistoricalRequest and read the table."
        )
    return checked
