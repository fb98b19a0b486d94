"""Recorded replies, as files under one directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson


class Recordings:
    """The recorded replies under a data directory (kraken/, okx/, coinbase/); read on first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kept: dict[str, Any] = {}

    def reply(self, name: str) -> Any:
        """A file with one JSON reply. Raises OSError if it does not exist."""
        if name not in self._kept:
            self._kept[name] = orjson.loads((self._directory / name).read_bytes())
        return self._kept[name]

    def captured(self, name: str, url_end: str) -> Any:
        """The first reply of a capture file (lines `URL -> time: JSON`) whose URL has this ending.

        Raises KeyError if there is none, OSError if the file does not exist.
        """
        key = f"{name} {url_end}"
        if key not in self._kept:
            for line in (self._directory / name).read_text().splitlines():
                url, arrow, rest = line.partition(" -> ")
                if arrow and url.endswith(url_end):
                    self._kept[key] = orjson.loads(rest.partition(": ")[2])
                    break
        return self._kept[key]
