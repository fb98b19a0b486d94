"""Prints docs/venues.md."""

import sys

from ingestor.venues.page import page

sys.stdout.write(page())
