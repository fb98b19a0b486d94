"""Which of the waiting patterns must be fed the rows of a micro-batch.

Ten thousand patterns on a hundred tickers are a hundred streams. What their conditions have in common is computed once
for all streams of a kind; then each pattern's own numbers decide (see `candlewright_cep.matching.glance`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from candlewright_cep.limits import DEFAULT
from candlewright_cep.matching.glance import Glance, Look, Rest
from candlewright_cep.matching.intervals import Span
from candlewright_cep.streaming.rows.release import SEQUENCE
from candlewright_cep.vector import Bools, Index, ranges
from candlewright_cep.work import Work
from triggers.records.moved import Moved
from triggers.running.recent import Recent
from triggers.running.registry import Registry
from triggers.running.streams import Shard

__all__ = ["Rests"]

#: With fewer tickers of triggers, every row is fed, which costs less than deciding which of them need it. A pattern in
#: which only open attempts can rest counts once for all tickers of its stream, because most of its rows must be fed.
_FEW_ENTRIES = 8
#: Patterns over filtered rows rest for as many different filters of an input at a time.
_MOST_FILTERS = 32
_NAME = "recent-"
#: A ticker, and the number of its stream.
_Entry = tuple[str, int]


class Rests:
    """Feed the streams that `stirred` returns, then call `settle`. `save` gives the rows that streams may have missed;
    how far each has come is in its own state.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._recent: dict[str, Recent] = {}
        # By input, the kinds that need the same rows to be kept.
        self._kinds: dict[int, dict[str, list[_Kind]]] = {}
        # Tickers of the same streams that do not rest.
        self._others: dict[int, list[tuple[int, str]]] = {}
        self._version = -1
        self._saved: dict[str, bytes] = {}

    def stirred(self, label: int, moved: Moved, *, is_all: bool) -> Mapping[int, list[str]]:
        """The streams that may miss rows, by number, with the tickers that they must be fed. `is_all`: feed every
        ticker that has rows."""
        if self._version != self._registry.version:
            self._sort()
        groups = self._kinds.get(label, {})
        found: dict[int, list[str]] = {
            number: [] for kinds in groups.values() for kind in kinds for number in kind.streams
        }
        for key, kinds in groups.items():
            recent = self._recent[key]
            columns = frozenset[int]().union(*(kind.glance.columns for kind in kinds))
            batch = _Batch.of(recent.of(moved), recent, columns)
            for kind in kinds:
                for number, ticker in kind.stirred(batch, is_all=is_all):
                    found[number].append(ticker)
        for number, ticker in self._others.get(label, ()):
            if ticker in moved.tickers:
                found[number].append(ticker)
        return found

    def settle(self, label: int, moved: Moved, fed: Mapping[int, Collection[str]]) -> None:
        """Take note that the streams of `stirred` were fed."""
        for key, kinds in self._kinds.get(label, {}).items():
            self._saved.pop(key, None)
            if self._version == self._registry.version:
                for kind in kinds:
                    kind.settle(fed)
                self._need(key, kinds)
            self._recent[key].add(moved)

    def _need(self, key: str, kinds: Sequence["_Kind"]) -> None:
        """Note the first row of each ticker that must be kept for open attempts."""
        needs: dict[str, int] = {}
        for kind in kinds:
            for ticker, first in kind.needs():
                needs[ticker] = min(first, needs.get(ticker, first))
        self._recent[key].held.needs = needs

    def _sort(self) -> None:
        """Group the streams by input, by the rows that they need, and by kind."""
        self._version = self._registry.version
        by_label: dict[int, dict[str, dict[str, list[_Entry]]]] = {}
        for number, shard in self._registry.shards.items():
            if (label := shard.rests_on) is None:
                continue
            groups = by_label.setdefault(label, {})
            for ticker in shard.owners:
                kinds = groups.setdefault(f"{label}{shard.recent_key(ticker)}", {})
                kinds.setdefault(shard.key, []).append((ticker, number))
        for key in self._recent.keys() - {key for groups in by_label.values() for key in groups}:
            del self._recent[key]
            self._saved.pop(key, None)
        self._kinds, self._others = {}, {}
        for label, groups in by_label.items():
            chosen = self._kinds[label] = {}
            for key, entries in groups.items():
                if key in self._recent or self._may_rest(label, key, entries):
                    recent, own_key = self._recent.setdefault(key, Recent()), key.removeprefix(str(label))
                    chosen[key] = [_Kind(own_key, recent, self._registry, entries=own) for own in entries.values()]
                    self._need(key, chosen[key])
            resting = {number for kinds in chosen.values() for kind in kinds for number in kind.streams}
            others = (
                entry
                for key, entries in groups.items()
                if key not in chosen
                for own in entries.values()
                for entry in own
            )
            self._others[label] = [(number, ticker) for ticker, number in others if number in resting]

    def _may_rest(self, label: int, key: str, entries: Mapping[str, Sequence[_Entry]]) -> bool:
        if key != str(label) and sum(known.startswith(f"{label}-") for known in self._recent) >= _MOST_FILTERS:
            return False
        shards = self._registry.shards
        count = sum(
            len(own) if _rests_without_attempt(shards[own[0][1]]) else len({number for _, number in own})
            for own in entries.values()
        )
        return count >= _FEW_ENTRIES

    # ---- state
    def save(self) -> dict[str, bytes]:
        for key, recent in self._recent.items():
            if key not in self._saved:
                self._saved[key] = recent.save()
        found: dict[str, bytes] = {}
        for key, recent in sorted(self._recent.items()):
            found[f"{_NAME}{key}"] = self._saved[key]
            found |= {f"{_NAME}{key}.{number}": written for number, written in recent.held.save().items()}
        return found

    def take(self, parts: dict[str, bytes]) -> None:
        """Remove from `parts` of a state what `save` returned, and restore it. Raises ValueError for other bytes."""
        held: dict[str, dict[int, bytes]] = {}
        for name in [name for name in parts if name.startswith(_NAME)]:
            key, _, number = name.removeprefix(_NAME).partition(".")
            if number:
                held.setdefault(key, {})[int(number)] = parts.pop(name)
            else:
                self._saved[key] = parts.pop(name)
        for own, written in self._saved.items():
            self._recent[own] = Recent.load(written, held.get(own, {}))


def _rests_without_attempt(shard: Shard) -> bool:
    glance = shard.glance
    return glance is not None and bool(glance.starts or glance.ends)


@dataclass(frozen=True, slots=True)
class _Batch:
    """`places`: of its tickers in `look`; `least`: the lowest arrival number of each ticker's rows; `counts`: their
    number so far; `moved`: the tickers with rows or another watermark; `closed`: those that have ended."""

    look: Look | None
    places: Mapping[str, int]
    least: Index
    counts: Index
    moved: Set[str]
    closed: Set[str]

    @staticmethod
    def of(moved: Moved, recent: Recent, columns: Collection[int]) -> "_Batch":
        closed = moved.tickers & moved.clock.closed
        if not moved.by_ticker:
            return _Batch(None, {}, np.zeros(0, np.int64), np.zeros(0, np.int64), moved.tickers, closed)
        firsts = [start for start, _ in moved.by_ticker.places.values()]
        least = np.minimum.reduceat(moved.rows.column(SEQUENCE).to_numpy(), firsts)
        places = {ticker: place for place, ticker in enumerate(moved.by_ticker)}
        new = moved.by_ticker.places
        counts = np.array([recent.counts.get(ticker, 0) + new[ticker][1] for ticker in places], np.int64)
        return _Batch(recent.look(moved, columns), places, least, counts, moved.tickers, closed)


class _Kind:
    """Streams whose texts differ in numbers alone. Has an entry for each trigger and ticker, sorted by ticker."""

    def __init__(self, key: str, recent: Recent, registry: Registry, *, entries: Sequence[_Entry]) -> None:
        """`key`: of the rows that `recent` keeps, see `Shard.recent_key`."""
        streams = {number: registry.shards[number] for _, number in entries}
        glance = next(iter(streams.values())).glance
        assert glance is not None
        self.glance: Glance = glance
        self.streams = streams
        recent.most = max(recent.most, glance.kept)
        entries = sorted(entries)
        self._entries = entries
        self._at = {(number, ticker): place for place, (ticker, number) in enumerate(entries)}
        names, firsts, counts = np.unique([ticker for ticker, _ in entries], return_index=True, return_counts=True)
        spans = zip(names.tolist(), firsts.tolist(), counts.tolist(), strict=True)
        self._codes: Index = np.repeat(np.arange(len(names)), counts)
        self._spans = {name: (first, count) for name, first, count in spans}
        of_streams: dict[int, list[str]] = {}
        for ticker, number in entries:
            of_streams.setdefault(number, []).append(ticker)
        for number, own in of_streams.items():
            streams[number].rest(key, recent, own)
        self._numbers = glance.numbers([streams[number].numbers[ticker] for ticker, number in entries])
        self._begins = np.array([streams[number].first_row(ticker) for ticker, number in entries], np.int64)
        self._recent = recent
        self._idle: Bools = np.zeros(len(entries), np.bool_)
        self._clean: Bools = np.zeros(len(entries), np.bool_)
        # The loop in which an open attempt is held (-1: in none), its next row, and its rows so far.
        self._held: Index = np.full(len(entries), -1, np.int64)
        self._next: Index = np.zeros(len(entries), np.int64)
        self._rows: Index = np.zeros(len(entries), np.int64)
        for place, (ticker, number) in enumerate(entries):
            self._note(place, ticker, streams[number])

    def _note(self, place: int, ticker: str, stream: Shard) -> None:
        rests = stream.rests(ticker)
        self._idle[place], self._clean[place] = rests.is_idle, rests.is_clean
        self._held[place] = rests.place if rests.place in self.glance.holds else -1
        self._next[place], self._rows[place] = stream.next_row(ticker), rests.rows

    def stirred(self, batch: _Batch, *, is_all: bool) -> Iterator[tuple[int, str]]:
        """The entries that must be fed: the stream's number and the ticker."""
        for place in self._of(self._recent.failed).tolist():
            yield self._entries[place][1], self._entries[place][0]
        for place in self._of(
            (batch.moved if self.glance.has_deadline else batch.closed) - batch.places.keys()
        ).tolist():
            # An open attempt ends with its ticker, and its deadline passes without rows.
            ticker, number = self._entries[place]
            is_clean = self._clean[place] and self.glance.ends is not None
            if not self._idle[place] and (ticker in batch.closed or not is_clean):
                yield number, ticker
        own = [ticker for ticker in batch.places if ticker in self._spans]
        places = self._of(own)
        if batch.look is None or not len(places):
            return
        counts = [self._spans[ticker][1] for ticker in own]
        tickers = np.repeat([batch.places[ticker] for ticker in own], counts)
        idle, clean = self._idle[places], self._clean[places]
        is_due = batch.least[tickers] < self._begins[places]
        is_due |= ~idle & np.repeat([ticker in batch.closed for ticker in own], counts)
        if is_all:
            is_due[:] = True
        else:
            numbers = [Span(*(part if len(part) == 1 else part[places] for part in span)) for span in self._numbers]
            rest = Rest(is_idle=idle, is_clean=clean, places=self._held[places])
            try:
                # One allowance for all values, because to begin one is a system call.
                with Work(DEFAULT, batch.look.length):
                    is_due |= self.glance.stirs(batch.look, tickers, numbers, rest=rest)
                is_due |= self._is_full(places, batch.counts[tickers]) | self._lacks_rows(batch)[tickers]
            except Exception:  # Raised in a stream, the same error suspends only the trigger at fault.
                is_due[:] = True
        for place in places[is_due].tolist():
            yield self._entries[place][1], self._entries[place][0]

    def settle(self, fed: Mapping[int, Collection[str]]) -> None:
        for number in fed.keys() & self.streams.keys():
            for ticker in fed[number]:
                if (place := self._at.get((number, ticker))) is not None:
                    self._note(place, ticker, self.streams[number])

    def needs(self) -> Iterator[tuple[str, int]]:
        """The tickers with attempts that are held, and the first row that one of them has missed."""
        held = np.flatnonzero(self._held >= 0)
        order = held[np.lexsort((self._next[held], self._codes[held]))]
        codes = self._codes[order]
        firsts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])[: len(codes)])
        for place in order[firsts].tolist():
            yield self._entries[place][0], int(self._next[place])

    def _is_full(self, places: Index, counts: Index) -> Bools:
        """Whether attempts that are held have so many rows that old ones must be given up."""
        rows = self._rows[places] + counts - self._next[places]
        found: Bools = (self._held[places] >= 0) & (rows > self.glance.most_rows)
        return found

    def _lacks_rows(self, batch: _Batch) -> Bools:
        """By ticker, whether rows before the new ones that decide are missing, because an older version kept fewer."""
        look = batch.look
        assert look is not None
        kept = look.news - look.starts
        before = batch.counts - (np.diff(np.append(look.starts, look.length)) - kept)
        found: Bools = kept < np.minimum(self.glance.kept, before)
        return found

    def _of(self, tickers: Collection[str]) -> Index:
        spans: Sequence[tuple[int, int]] = [self._spans[ticker] for ticker in tickers if ticker in self._spans]
        firsts, counts = np.array(spans, np.int64).reshape(len(spans), 2).T
        return ranges(firsts, counts)
