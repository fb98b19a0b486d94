"""The bus of the platform on a data directory, for commands that look into it."""

from collections.abc import Iterator
from contextlib import contextmanager

from bus.api import Bus
from bus.connect import connect
from candlewright.cli.status import running_elsewhere
from candlewright.wire.errors import CandlewrightError
from candlewright_platform.supervisor.parts import bus_url_of
from core.settings import Settings


@contextmanager
def open_bus(settings: Settings) -> Iterator[Bus]:
    """Raises CandlewrightError if no platform has run."""
    url = bus_url_of(settings)
    if not url:
        what_to_do = running_elsewhere(settings) or "start it with `candlewright up`"
        raise CandlewrightError(f"no platform runs on {settings.data_dir}: {what_to_do}")
    bus = connect(settings.bus.model_copy(update={"url": url}), retry_seconds=3.0)
    try:
        yield bus
    finally:
        bus.close()
