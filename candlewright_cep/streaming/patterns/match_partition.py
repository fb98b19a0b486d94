"""One partition of a MATCH_RECOGNIZE on a stream: its search, its rows, and its state as text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from candlewright_cep.matching.path_values import PathValues
from candlewright_cep.matching.search import PartitionSearch, SearchPlan
from candlewright_cep.streaming.patterns import match_state
from candlewright_cep.streaming.rows.packing import as_json
from candlewright_cep.streaming.rows.partitioning import Key
from candlewright_cep.streaming.rows.retained import Piece

_WRITER = json.JSONEncoder(default=as_json, separators=(",", ":"))


@dataclass(slots=True)
class Pending:
    """A final match whose measures still wait for rows."""

    start: int
    labels: list[int]
    number: int
    timed_out: bool
    partial: bool


@dataclass(kw_only=True, slots=True)
class Partition:
    """One partition: its search, its retained rows (`count` in `pieces`, numbered from `first_row`), and how far they
    have been tested and saved. `number` is its own among all partitions that the pattern has ever had.
    """

    search: PartitionSearch
    number: int
    pieces: list[Piece] = field(default_factory=list)
    count: int = 0
    first_row: int = 0
    tested: int = 0
    logged: int = 0
    masks: list[int] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    tickers: set[str] = field(default_factory=set)
    path: PathValues | None = None
    #: No further row will come (see `streaming.patterns.left_behind`); the partition is dropped after the batch that
    #: finds this.
    is_over: bool = False
    #: After `search_again`, where in the pattern the open attempt was (-1: there was none), until it is repeated.
    place: int = -1
    #: The state as text, until it changes.
    written: str = ""
    #: Its key and its tickers as JSON, and the number of these tickers.
    names: tuple[str, str, int] = ("", "", 0)

    def time_of(self, row: int, column: int | None = None) -> int:
        """The time of a retained row, or the time in one of its columns."""
        place = row - self.first_row
        for piece in self.pieces:
            if place < piece.count:
                rows = piece.chunk.rows
                times = rows.time if column is None else rows.relation.column(column).expand().values
                return int(times[piece.place + place])
            place -= piece.count
        raise IndexError(row)

    @property
    def end(self) -> int:
        return self.first_row + self.count

    @property
    def computed(self) -> int:
        """The row up to which the values that conditions read are available. After a restart there are none, even for
        rows that were tested.
        """
        return self.tested if self.path is None else self.path.end

    def between(self, first: int, end: int) -> list[Piece]:
        """Where these rows are."""
        if first == self.first_row and end == self.end:
            return self.pieces
        found: list[Piece] = []
        row = self.first_row
        for piece in self.pieces:
            low, high = max(first - row, 0), min(end - row, piece.count)
            if low < high:
                found.append(Piece(piece.chunk, piece.place + low, high - low))
            row += piece.count
        return found

    def resume(self, masks: list[int], times: Sequence[int]) -> None:
        """After a restart: take what is known about the tested rows that the search still needs."""
        self.masks = masks
        self.search.extend(masks, times)

    def search_again(self) -> None:
        """After a restart: test the rows again, and repeat the open attempt with them."""
        attempt, next_start = self.search.attempt, self.search.oldest_needed
        if attempt is None:
            # One that was not kept has come to an unknown place.
            self.place = 0 if next_start < self.tested else -1
        else:
            self.place = attempt.place
        self.search.skip_to(self.search.base)
        self.search.next_start = next_start
        self.tested, self.masks, self.logged = self.search.base, [], 0


#: The state of one partition as JSON. Most have no open attempt, and formatting is faster than `json.dumps`.
_STATE = '{"key":%s,"number":%d,"search":%s,"rows":%d,"first_row":%d,"tested":%d,"tickers":%s,"place":%d,"pending":%s}'


def written(key: Key, part: Partition) -> str:
    """The state of one partition as JSON, without its rows."""
    own, tickers, count = part.names
    if not own or count != len(part.tickers):
        own, tickers = _WRITER.encode(list(key)), _WRITER.encode(sorted(part.tickers))
        part.names = own, tickers, len(part.tickers)
    search = match_state.without_attempt(part.search) or _WRITER.encode(match_state.snapshot(part.search))
    pending = [[m.start, m.labels, m.number, m.timed_out, m.partial] for m in part.pending]
    waiting = _WRITER.encode(pending) if pending else "[]"
    return _STATE % (own, part.number, search, part.count, part.first_row, part.tested, tickers, part.place, waiting)


def read(state: Mapping[str, Any], plan: SearchPlan, number: int) -> tuple[Key, Partition]:
    """Read the output of `written`; the partition's rows must be added afterwards. `number`: for a state without."""
    search = state["search"]
    part = Partition(search=match_state.restore(search, plan), number=state.get("number", number))
    if "masks" in search:
        # A state of an older version, whose rows do not have them.
        part.resume(list(search["masks"]), search["times"])
    part.count = state["rows"]
    part.first_row, part.tested = state["first_row"], state["tested"]
    part.tickers, part.place = set(state["tickers"]), state.get("place", -1)
    part.pending = [Pending(*match) for match in state["pending"]]
    return tuple(state["key"]), part
