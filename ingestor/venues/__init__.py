"""What is known of each exchange: one file a venue, whose `VENUE` describes it; `default` for all the others of ccxt.

A new file here is a new venue: nothing else lists them.
"""

from ingestor.venues.described import described, venue_of
from ingestor.venues.description import VenueDescription

__all__ = ["VenueDescription", "described", "venue_of"]
