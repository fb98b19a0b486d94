"""BARS BY on a stream: one row is kept for each open bar, however many trades it contains."""

from collections.abc import Callable, Set
from dataclasses import dataclass

from candlewright_cep.planning.bars import Bars
from candlewright_cep.planning.relation import Relation
from candlewright_cep.streaming.rows.release import Clock, Rows, compact, joined
from candlewright_cep.streaming.rows.row_log import without
from candlewright_cep.streaming.stages.group_stage import oldest, since
from candlewright_cep.vector import Index


@dataclass(slots=True)
class BarStage:
    """A bar is emitted with the trade that ends it."""

    node: Bars
    _open: Rows | None = None

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        pieces, picked = self.node.pieces(rows.relation)
        given = rows.take(picked).replaced(pieces)
        together = given if self._open is None else joined([self._open, given])
        closed = self.node.closed(together.relation)
        self._open = compact(_of(together, closed.rest, closed.rest_last))
        found = _of(together, closed.bars, closed.last)
        return Rows(found.relation, found.relation.column(self.node.opened + 1).values, found.sequence, found.ticker)

    @property
    def partitions(self) -> int:
        return 0 if self._open is None else self._open.length

    def starts(self) -> Callable[[str, int], int]:
        """The earliest start of future bars of a ticker, given the ticker's watermark."""
        if self._open is None:
            return since({})
        return since(oldest(self._open.ticker, self._open.relation.column(self.node.opened).expand().values))

    def drop(self, tickers: Set[str]) -> None:
        self._open = without(self._open, tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        return "{}", self._open

    def restore(self, _state: dict[str, object], rows: Rows | None) -> None:
        self._open = rows


def _of(rows: Rows, relation: Relation, places: Index) -> Rows:
    return rows.take(places).replaced(relation)
