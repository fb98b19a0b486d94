"""How far a stream has come in the rows kept for all streams, and which rows it must be fed to catch up."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from candlewright_cep import TriggerStream
from candlewright_cep.matching.glance import Glance
from candlewright_cep.streaming.rows.release import SEQUENCE
from triggers.packing import squeezed, unsqueezed
from triggers.records.moved import Moved
from triggers.running.recent import Recent

__all__ = ["Standings"]


@dataclass(slots=True)
class _Standing:
    """`place`: the number of the ticker's next row. `unlike`: the number of rows the stream must still be fed before
    the rows that it looks back at equal the kept ones. `key`: of the `recent` rows; empty for those of the whole
    input. While `recent` is set, the stream may miss rows."""

    place: int
    unlike: int
    key: str = ""
    recent: Recent | None = None


@dataclass(slots=True)
class Standings:
    """The standing of each ticker of a stream whose pattern has this glance."""

    glance: Glance
    _of: dict[str, _Standing] = field(default_factory=dict)
    _before: dict[str, _Standing] = field(default_factory=dict)
    _saved: bytes = b""

    def begin(self, key: str, recent: Recent, tickers: Iterable[str]) -> None:
        """From now on rows of these tickers may be missed. A new ticker has missed none so far."""
        for ticker in tickers:
            if ticker not in self._of:
                self._of[ticker] = _Standing(recent.counts.get(ticker, 0), self.glance.lookback, key)
                self._saved = b""
            self._of[ticker].recent = recent

    @property
    def keys(self) -> Mapping[str, str]:
        """By ticker, which rows are kept for it."""
        return {ticker: one.key for ticker, one in self._of.items()}

    @property
    def none(self) -> pa.Table | None:
        """A table with the columns of the input but no rows; None if no row can be missed."""
        found = (one.recent.none for one in self._of.values() if one.recent is not None)
        return next((rows for rows in found if rows is not None), None)

    def end(self) -> None:
        """The stream has caught up; from now on it is fed every row."""
        self._of, self._saved = {}, b""

    def remove(self, ticker: str) -> None:
        self._of.pop(ticker, None)
        self._saved = b""

    def is_alike(self, ticker: str) -> bool:
        """Whether the rows that the stream looks back at equal the kept ones."""
        return ticker in self._of and not self._of[ticker].unlike

    def place_of(self, ticker: str) -> int:
        """The number of the ticker's next row."""
        return self._of[ticker].place

    def remember(self) -> None:
        """Store the standings that `copied` returns with `is_before`."""
        self._before = {ticker: replace(one) for ticker, one in self._of.items()}

    def copied(self, *, is_before: bool) -> "Standings":
        of = self._before if is_before else self._of
        return Standings(self.glance, {ticker: replace(one) for ticker, one in of.items()})

    def catch_up(
        self, stream: TriggerStream, moved: Moved, rows: pa.Table, *, firsts: Mapping[str, int], is_whole: bool
    ) -> pa.Table:
        """The missed rows that still matter, followed by `rows`, the part of `moved` that is fed.

        `firsts`: the tickers to feed, each with the arrival number of the first row that the stream may see;
        `is_whole`: no other row of theirs is hidden from the stream.
        """
        lookback = self.glance.lookback
        self._saved = b""
        skipped: dict[Recent, dict[str, tuple[int, int]]] = {}
        missed: dict[Recent, dict[str, tuple[int, int]]] = {}
        for ticker, exists_from in firsts.items():
            standing = self._of.get(ticker)
            if standing is None or standing.recent is None:
                continue
            recent, own = standing.recent, standing.recent.of(moved)
            first, end = standing.place, recent.counts.get(ticker, 0)
            if stream.rests(ticker).place not in self.glance.holds:
                first = recent.first_needed(ticker, first, self.glance.reach)
            if first > standing.place:
                skipped.setdefault(recent, {})[ticker] = first - lookback, first
            if first < end:
                missed.setdefault(recent, {})[ticker] = first, end
            start, new = own.by_ticker.places.get(ticker, (0, 0))
            arrived = own.rows.column(SEQUENCE).slice(start, new).to_numpy()
            standing.place = end + new
            standing.unlike = max(0, standing.unlike - new)
            if not is_whole or bool((arrived < exists_from).any()):
                standing.unlike = lookback
        for recent, spans in skipped.items():
            stream.skip(list(spans), recent.rows(spans, rows))
        if not missed:
            return rows
        parts = [recent.rows(spans, rows) for recent, spans in missed.items()]
        return Moved.of(pa.concat_tables([*parts, rows]).combine_chunks(), set(), moved.clock).rows

    # ---- state
    def save(self) -> bytes:
        """The same object until something changes; empty for a stream that is fed every row."""
        if self._of and not self._saved:
            self._saved = squeezed(
                json.dumps({name: [one.place, one.unlike, one.key] for name, one in self._of.items()}).encode()
            )
        return self._saved

    def restore(self, written: bytes) -> None:
        # States of older versions have no keys.
        standings: dict[str, Sequence[Any]] = json.loads(unsqueezed(written))
        self._of = {ticker: _Standing(*one) for ticker, one in standings.items()}
