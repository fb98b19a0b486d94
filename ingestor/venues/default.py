"""Every other exchange of ccxt, through its unified calls: history and snapshots, without live trades.

Their paging is unknown, so a page proves little; see `Fill.UNKNOWN` in `ingestor.history.paging`.
"""

from ingestor.venues.description import CandleSource, Fill, VenueDescription
from ingestor.venues.limits import Limits

#: `max_candles` if ccxt does not know the exchange's own limit.
OTHER = VenueDescription(
    name="",
    ccxt_id="",
    candles=CandleSource(max_candles=100, fill=Fill.UNKNOWN),
    limits=Limits(),
    unverified=("everything: each of these exchanges is read as ccxt reads it",),
)
