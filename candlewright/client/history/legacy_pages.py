"""The legacy request for candles, whose rows come over the socket in pages."""

from candlewright.client.errors import PlatformRefused, RequestNotFound
from candlewright.client.records import Range
from candlewright.client.session.questions import (
    RESEND_MAX_SECONDS,
    RESEND_SECONDS,
    Questions,
    answer_of,
    fresh_id,
    refused,
)
from candlewright.client.session.session import Operation, Reply, Send, TimedOut, Wait
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing

#: How often the pages of a legacy answer are requested.
LOSSES = 5
#: How long stored candles may take to be read for a legacy request.
READ_SECONDS = 10.0


class LegacyPages(Questions):
    """Lost pages are requested again."""

    def ohlc(self, wanted: Range) -> Operation[list[cw.OHLCV]]:
        """The legacy request: all pages, in order, unique by open time."""
        request = ing.OHLCRequest(
            request_id=fresh_id("o", self._name),
            ticker=wanted.ticker,
            start_time=wanted.start,
            end_time=wanted.end,
            period_seconds=wanted.period_seconds,
            limit=wanted.limit,
        )
        candles: dict[int, cw.OHLCV] = {}
        page = yield from self._first_page(request)
        losses = 0
        while True:
            if page.status == ing.Response.NOT_FOUND:
                raise RequestNotFound(
                    request.request_id,
                    page.error_message or f"the venue has no candles of {wanted.ticker} in this range",
                )
            if page.status != ing.Response.OK:
                raise PlatformRefused("ERROR", page.error_message, request.request_id)
            for data in page.data:
                candle = cw.OHLCV.FromString(data)
                candles[candle.open_time] = candle
            if page.is_final and len(candles) >= page.total_records:
                return [candles[open_time] for open_time in sorted(candles)]
            following = None if page.is_final else (yield from self._next(answer_of(ing.Response)))
            if following is None:
                # Pages were lost: all are requested again.
                losses += 1
                if losses == LOSSES:
                    text = f"{len(candles)} of {page.total_records} candles came; the rest was lost {losses} times"
                    raise PlatformRefused("ERROR", text, request.request_id)
                following = yield from self._first_page(request)
            page = following

    def _first_page(self, request: ing.OHLCRequest) -> Operation[ing.Response]:
        """It arrives when the request has ended. Sending the request again registers this client with a relay that was
        restarted meanwhile; the request's state, requested as well, shows that the platform is alive.
        """
        last_heard = self._session.now
        pause = RESEND_SECONDS
        complaint: cw.Error | None = None
        while self._session.now - last_heard < self._timeout_seconds:
            yield Send(request)
            yield Send(cw.RequestStateQuery(request_id=request.request_id))
            until = self._session.now + pause
            pause = min(pause * 2, RESEND_MAX_SECONDS)
            while not isinstance(event := (yield Wait(until)), TimedOut):
                message = event.message if isinstance(event, Reply) else None
                if isinstance(message, ing.Response):
                    return message
                if isinstance(message, cw.RequestState):
                    last_heard, complaint = self._session.now, None
                    if message.state == "done":
                        # The rows are being read: sending the request again would read them twice.
                        until = max(until, self._session.now + READ_SECONDS)
                elif isinstance(message, cw.Error):
                    complaint = message
        raise refused(complaint) if complaint else self._unreachable(last_heard)
