"""Waits for the catalog, the object store and the Spark master when they do not answer, which a restart cannot fix."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from core.log import get_logger
from core.reach import away, locked
from core.settings import Settings

__all__ = ["Awaited"]

log = get_logger()

PAUSE_SECONDS = 2.0
Result = TypeVar("Result")


class Awaited:
    """The services that do not answer, as the status page shows them."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        self._settings = settings
        self._stopping = stopping
        #: A sentence for each; empty if all answer.
        self.names = ""
        self._since = 0.0

    @property
    def seconds(self) -> float:
        """How long one of the services has not answered."""
        return time.monotonic() - self._since if self.names else 0.0

    @property
    def problem(self) -> str:
        return f"waits for {self.names} (for {self.seconds:.0f} s)" if self.names else ""

    def look(self) -> None:
        self._set("; ".join(away(self._settings)))

    def clear(self) -> None:
        self._set("")

    def run(self, work: Callable[[], Result]) -> Result | None:
        """The result of `work`, which is repeated while a service does not answer; None once stopped.

        Raises the error of `work` if every service answers.
        """
        while not self._stopping.is_set():
            try:
                result = work()
            except Exception as error:
                # Each library has its own errors for a server that is down. A lock may be gone again by now.
                self._set("; ".join(away(self._settings)) or locked(self._settings, error))
                if not self.names:
                    raise
                log.warning("waiting", what=self.names, seconds=round(self.seconds, 1), error=str(error))
                self._stopping.wait(PAUSE_SECONDS)
            else:
                self.clear()
                return result
        return None

    def _set(self, names: str) -> None:
        if names and not self.names:
            self._since = time.monotonic()
        self.names = names
