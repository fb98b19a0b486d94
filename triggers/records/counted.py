"""Which trades of each ticker have been read, so that repetitions are recognised.

A step brings trades of few tickers, so the state is saved in parts of some tickers each, of which it changes few.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars.seen import SeenIds
from triggers.packing import squeezed, unsqueezed

__all__ = ["CountedTrades"]

_PARTS = 64
_NAME = "counted/"
#: Non-numeric ids are remembered individually, up to this many per ticker.
_TEXT_IDS = 20_000


@dataclass(slots=True)
class CountedTrades:
    """`numbers`: for each ticker the largest number of its topic that was read."""

    numbers: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, SeenIds] = field(default_factory=dict)
    _text_ids: dict[str, dict[str, None]] = field(default_factory=dict)
    #: The tickers of each part, and the parts as last saved; one that has changed since is missing.
    _tickers: dict[str, dict[str, None]] = field(default_factory=dict)
    _saved: dict[str, bytes] = field(default_factory=dict)

    def read(self, ticker: str, number: int) -> None:
        """A trade with this number was read, and all before it. Call it before the ids of the same trades are added."""
        self.numbers[ticker] = max(self.numbers.get(ticker, 0), number)
        self._change(ticker)

    def forget_numbers(self) -> None:
        self.numbers.clear()
        self._saved.clear()

    def extend(self, ticker: str, first: int, last: int) -> bool:
        """As `SeenIds.extend`."""
        seen = self._seen.get(ticker)
        return seen is not None and seen.extend(first, last)

    def add(self, ticker: str, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these numeric ids are new."""
        if (seen := self._seen.get(ticker)) is None:
            seen = self._seen[ticker] = SeenIds()
        return seen.add(ids)[0]

    def add_texts(self, ticker: str, ids: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        """Which of these ids are new."""
        known = self._text_ids.setdefault(ticker, {})
        new = np.zeros(len(ids), np.bool_)
        for place, text in enumerate(id_.decode() for id_ in ids.tolist()):
            if text not in known:
                known[text] = None
                new[place] = True
        for text in list(known)[: max(0, len(known) - _TEXT_IDS)]:
            del known[text]
        return new

    def _change(self, ticker: str) -> None:
        part = f"{_NAME}{zlib.crc32(ticker.encode()) % _PARTS}"
        self._tickers.setdefault(part, {})[ticker] = None
        self._saved.pop(part, None)

    # ---- state
    def save(self) -> dict[str, bytes]:
        """Named parts. An unchanged part is the same object as in the previous call."""
        for part, tickers in self._tickers.items():
            if part not in self._saved:
                self._saved[part] = squeezed(json.dumps({ticker: self._written(ticker) for ticker in tickers}).encode())
        return {part: self._saved[part] for part in self._tickers}

    def _written(self, ticker: str) -> list[Any]:
        seen, texts = self._seen.get(ticker), self._text_ids.get(ticker)
        return [
            self.numbers.get(ticker),
            None if seen is None else [seen.limit, seen.floor, seen.first.tolist(), seen.last.tolist()],
            None if texts is None else list(texts),
        ]

    def restore(self, parts: dict[str, bytes]) -> None:
        """Remove from `parts` of a state what `save` returned, and restore it. Raises ValueError for other bytes."""
        for name in [name for name in parts if name.startswith(_NAME)]:
            self._restore(json.loads(unsqueezed(parts.pop(name))).items())

    def restore_old(self, state: Mapping[str, Any]) -> None:
        """Restore a state of an older version, which saved all tickers together."""
        numbers, seen, texts = state.get("counted", {}), state.get("seen", {}), state.get("text_ids", {})
        self._restore(
            (ticker, [numbers.get(ticker), seen.get(ticker), texts.get(ticker)])
            for ticker in [*numbers, *(seen.keys() - numbers.keys()), *(texts.keys() - numbers.keys() - seen.keys())]
        )

    def _restore(self, tickers: Iterable[tuple[str, list[Any]]]) -> None:
        for ticker, (number, seen, texts) in tickers:
            if number is not None:
                self.numbers[ticker] = number
            if seen is not None:
                limit, floor, first, last = seen
                self._seen[ticker] = SeenIds(limit, floor, np.array(first, np.int64), np.array(last, np.int64))
            if texts is not None:
                self._text_ids[ticker] = dict.fromkeys(texts)
            self._change(ticker)
