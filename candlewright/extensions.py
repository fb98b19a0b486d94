"""Extensions that `candlewright-platform` adds if it is installed, found by its entry points: the client imports none
of it."""

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from candlewright.wire.errors import CandlewrightError

GROUP = "candlewright.platform"
PLATFORM = "candlewright-platform"


class PlatformMissing(CandlewrightError):
    """Something needs the platform's own packages."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs {PLATFORM}, which is not installed here: `uv tool install {PLATFORM}`")


@cache
def extension(name: str) -> Any:
    """The platform's extension `name`, or None if it is not installed."""
    return next((found.load() for found in entry_points(group=GROUP, name=name)), None)
