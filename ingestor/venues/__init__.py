"""Everything known about each exchange: one file per venue, whose `VENUE` describes it; `default` covers all other
exchanges of ccxt.

Adding a file here adds a venue; nothing else lists them.
"""

from ingestor.venues.described import described, venue_of
from ingestor.venues.description import VenueDescription

__all__ = ["VenueDescription", "described", "venue_of"]
