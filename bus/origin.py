"""The origin of a bus's data: real exchanges or the sandbox. Every platform on it must agree."""

from bus.api import KeyedTables
from bus.topics import TABLE_PLATFORM
from core.origin import Origin, check_same

_KEY = "origin"
_WAY_OUT = 'use another bus.url, or set origin = "sandbox" where exchange.VENUE.url names a sandbox'


def settle_origin(bus: KeyedTables, origin: Origin) -> None:
    """Write `origin` to a bus without one; raises ConfigurationError if the bus has the other one."""
    check_same("the bus", bus.put_new(TABLE_PLATFORM, _KEY, origin.encode()).decode(), origin, way_out=_WAY_OUT)


def announce_origin(bus: KeyedTables, origin: Origin) -> None:
    """For the owner of an embedded bus, where the data directory decides."""
    bus.put(TABLE_PLATFORM, {_KEY: origin.encode()})
