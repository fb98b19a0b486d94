"""Every other exchange of ccxt, through its unified calls: history and snapshots, without live trades.

Nothing is known of its pages, so that a page proves little: see `Fill.UNKNOWN` in `ingestor.history.paging`.
"""

from ingestor.venues.description import CandleSource, Fill, VenueDescription
from ingestor.venues.limits import Limits

#: `max_candles` where ccxt does not know the exchange's own limit.
OTHER = VenueDescription(
    name="",
    ccxt_id="",
    candles=CandleSource(max_candles=100, fill=Fill.UNKNOWN),
    limits=Limits(),
    unverified=("everything: each of these exchanges is read as ccxt reads it",),
)
