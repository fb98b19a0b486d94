"""One ticker's newest prices, stamped with the exchange's time and ours."""

import time
from typing import Any

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BadReply
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.venues.limits import Call

#: Field of Snapshot -> key of ccxt's ticker.
_FIELDS = {
    "last": "last",
    "bid": "bid",
    "ask": "ask",
    "bid_size": "bidVolume",
    "ask_size": "askVolume",
    "volume_24h": "baseVolume",
}


async def fetch_snapshot(
    client: VenueClient, *, ticker: str, symbol: str, request_id: str, progress: Progress
) -> cw.Snapshot:
    """The newest prices. If the exchange's ticker has no time, its clock is read first. Raises ExchangeError."""
    await client.market(symbol, progress)

    async def ask() -> Any:
        found = await client.attempt(Call.TICKER, lambda: client.exchange.fetch_ticker(symbol), progress)
        if not isinstance(found, dict) or all(found.get(key) is None for key in ("last", "bid", "ask")):
            raise BadReply(f"{client.venue} reported no price of {symbol}")
        return found

    found = await client.call(ask, progress)
    snapshot = cw.Snapshot(ticker=ticker, request_id=request_id, received_at=time.time_ns())
    for field, key in _FIELDS.items():
        value = found.get(key)
        if value is not None:
            setattr(snapshot, field, _price(value))
    milliseconds = found.get("timestamp")
    if milliseconds:
        snapshot.exchange_time = int(milliseconds) * 1_000_000
    else:
        snapshot.exchange_time = await client.clock(progress, newer_than=0.5)
    return snapshot


def _price(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise BadReply(f"{value!r} is not a price") from error
