"""Finds the venues' files; adding a file here adds a venue to `RecordedVenues`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import sandbox.venues
from sandbox.venues.shape import VenueShape


@cache
def shapes() -> tuple[VenueShape, ...]:
    modules = (importlib.import_module(f"sandbox.venues.{found.name}") for found in _files())
    return tuple(module.VENUE for module in modules if isinstance(getattr(module, "VENUE", None), VenueShape))


def _files() -> list[pkgutil.ModuleInfo]:
    return list(pkgutil.iter_modules(sandbox.venues.__path__))
