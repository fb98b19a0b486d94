"""Finds the venues' files, and the description of a venue by its name in tickers."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType

from candlewright.wire.ticker import ccxt_id
from ingestor.venues.default import OTHER
from ingestor.venues.description import VenueDescription


def files() -> Iterator[ModuleType]:
    """The modules that describe a venue."""
    room = importlib.import_module(__name__.rpartition(".")[0])
    for found in pkgutil.iter_modules(room.__path__):
        if not found.name.startswith("__"):
            module = importlib.import_module(f"{room.__name__}.{found.name}")
            if isinstance(getattr(module, "VENUE", None), VenueDescription):
                yield module


@cache
def described() -> Mapping[str, VenueDescription]:
    """Every venue that has a file, by name."""
    return {module.VENUE.name: module.VENUE for module in files()}


def venue_of(name: str) -> VenueDescription:
    """The description of the venue `name`, which may be an older name; the default description if it has no file."""
    own = described().get(name)
    if own is not None:
        return own
    same = described().get(ccxt_id(name).upper())
    if same is not None:
        return replace(same, name=name)
    return replace(OTHER, name=name, ccxt_id=ccxt_id(name))
