"""The venues' files of the sandbox: found, distinguished by their paths, and named as the ingestor's."""

from collections import Counter

from ingestor.venues import described
from sandbox.venues.shaped import shapes


def test_every_venue_that_the_ingestor_describes_can_be_served() -> None:
    # Binance's form is that of the sandbox itself.
    assert {shape.name for shape in shapes()} == set(described()) - {"BINANCE"}


def test_no_path_belongs_to_two_venues() -> None:
    paths = Counter(path for shape in shapes() for path in shape.routes)
    assert len(paths) > 15
    assert [path for path, count in paths.items() if count > 1] == []
