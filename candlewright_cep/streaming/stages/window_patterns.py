"""Row patterns in a WINDOW clause: a row is emitted once its frame is complete, with the match that begins at it."""

import numpy as np

from candlewright_cep.planning.over import Over, takes_frame
from candlewright_cep.planning.relation import arranged
from candlewright_cep.streaming.rows.release import Clock, Rows, compact, joined
from candlewright_cep.streaming.stages.ahead import AheadStage, Sight
from candlewright_cep.types import BIGINT
from candlewright_cep.vector import Index, Vector


class PatternStage(AheadStage):
    """Waiting rows are kept with a last column that says whether a match of an earlier row covers them, in which case
    no match begins there.
    """

    def __init__(self, node: Over, *, is_joint: bool, keeps_ties: bool) -> None:
        self.node = node
        self._is_joint = is_joint
        self._keeps_ties = keeps_ties
        self._functions = node.functions
        self._has_frame = True
        self._width = len(node.inner.fields)
        self._kept = None
        frame = node.window.frame
        if (frame.unit, frame.lower.kind) != ("ROWS", "CURRENT ROW") or frame.upper.kind.startswith("UNBOUNDED"):
            raise node.at.reject(
                "on a stream a row pattern in a window waits for the rows of its frame, so they must be counted",
                "write ROWS BETWEEN CURRENT ROW AND n FOLLOWING, or use MATCH_RECOGNIZE",
            )
        for function in node.functions:
            if not takes_frame(function):
                raise node.at.reject(
                    f"on a stream {function.name} needs a window without a row pattern",
                    "aggregates, FIRST_VALUE and LAST_VALUE see the rows of a match",
                )

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        new = rows.replaced(rows.relation.with_columns([Vector(BIGINT, np.zeros(rows.length, np.int64), None)]))
        together = joined([self._kept, new]) if self._kept is not None and self._kept.length else new
        window = self.node.window
        relation, bounds, order = arranged(together.relation, window.partition, window.order)
        reached = self._reached(together.ticker.take(order), clock)
        due = Sight(window, relation, bounds, has_frame=True, keeps_ties=self._keeps_ties).decided(0, reached)
        covered = relation.column(self._width).expand().values != 0
        found, ends = self.node.searched(relation.select(range(self._width)), covered | ~due)
        firsts = np.repeat(bounds.starts, bounds.ends - bounds.starts)
        reach = np.zeros(relation.length, np.int64)
        np.maximum.at(reach, firsts[due], ends[due])
        covered |= np.arange(relation.length) < reach[firsts]
        kept = _in_order(np.flatnonzero(~due), order)
        marked = Vector(BIGINT, covered[kept].astype(np.int64), None)
        waiting = together.take(order[kept])
        self._kept = compact(waiting.replaced(waiting.relation.select(range(self._width)).with_columns([marked])))
        shown = _in_order(np.flatnonzero(due), order)
        return together.take(order[shown]).replaced(found.take(shown))


def _in_order(rows: Index, order: Index) -> Index:
    """The rows in the order of their arrival."""
    return rows[np.argsort(order[rows], kind="stable")]
