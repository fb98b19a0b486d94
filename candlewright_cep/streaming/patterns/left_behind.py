"""Partitions that get no more rows because time has passed them, such as those of a day that is over.

Rows reach an operator in order of event time, ticker by ticker. A PARTITION BY column is *rising* if it is computed
from that time and never falls as it rises (the day, the start of the hour): once a row of a ticker has a greater value,
no later row of the ticker has a smaller one.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Any

from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression
from candlewright_cep.planning.plans import Filter, Match, Narrowed, Project, Renamed, Scan
from candlewright_cep.streaming.rows.partitioning import Key
from candlewright_cep.types import Kind

#: Functions of a time and constants.
_NEVER_FALL = ("CAST", "DATE_TRUNC", "DATE_CEIL")
_TIMES = (Kind.DATE, Kind.TIMESTAMP)


def rising_columns(node: Match, time_columns: Sequence[str]) -> tuple[int, ...]:
    """The positions in PARTITION BY whose values never fall. `time_columns`: the columns of the input that hold the
    event time, in whose order its rows come.
    """
    plan = node.recognize
    if not plan.order or plan.order[0].descending:
        return ()
    origin = _origin(plan.order[0].expression, node.inner, time_columns)
    if origin is None:
        return ()
    found = []
    for place, index in enumerate(plan.partition):
        column = Column(index, node.inner.fields[index].type)
        if _origin(column, node.inner, time_columns) == origin:
            found.append(place)
    return tuple(found)


def _origin(node: Expression, plan: Any, time_columns: Sequence[str]) -> tuple[int, int] | None:
    """The plan and the column, below filters and projections, with which this value rises; None if there is none."""
    while True:
        if isinstance(node, Apply):
            of_time = (
                node.function in _NEVER_FALL and node.type.kind in _TIMES and node.arguments[0].type.kind in _TIMES
            )
            if not of_time or not all(isinstance(part, Constant) for part in node.arguments[1:]):
                return None
            node = node.arguments[0]
        elif not isinstance(node, Column):
            return None
        elif isinstance(plan, Scan):
            is_time = plan.fields[node.index].name in time_columns
            return id(plan), -1 if is_time else node.index
        elif isinstance(plan, Filter | Renamed | Narrowed):
            plan = plan.inner
        elif isinstance(plan, Project):
            node, plan = plan.expressions[node.index], plan.inner
        else:
            return id(plan), node.index


class LeftBehind:
    """Tracks which partitions get no more rows. `rising`: positions in their keys; `is_joint`: the rows of all tickers
    come in one order.
    """

    def __init__(self, rising: tuple[int, ...], *, is_joint: bool) -> None:
        self.rising = rising
        self._is_joint = is_joint
        self._newest: dict[str, list[Any]] = {}
        self._open: dict[str, dict[Key, None]] = {}

    def begin(self, partitions: Iterable[tuple[Key, Set[str]]]) -> list[Key]:
        """Register the partitions that begin with one batch. Returns all partitions, also of earlier batches, that get
        no more rows after it.
        """
        moved: dict[str, None] = {}
        for key, tickers in partitions:
            ticker = self._of(tickers)
            moved[ticker] = None
            self._open.setdefault(ticker, {})[key] = None
            newest = self._newest.setdefault(ticker, [None] * len(self.rising))
            for number, place in enumerate(self.rising):
                value = key[place]
                if value is not None and (newest[number] is None or value > newest[number]):
                    newest[number] = value
        return [key for ticker in moved for key in self._open[ticker] if self._is_behind(key, self._newest[ticker])]

    def _is_behind(self, key: Key, reached: Sequence[Any]) -> bool:
        values = (key[place] for place in self.rising)
        return any(
            value is not None and newest is not None and value < newest
            for value, newest in zip(values, reached, strict=True)
        )

    def _of(self, tickers: Set[str]) -> str:
        return "" if self._is_joint else next(iter(tickers), "")

    def remove(self, key: Key, tickers: Set[str]) -> None:
        """Forget a partition that no longer exists."""
        opened = self._open.get(self._of(tickers))
        if opened is not None:
            opened.pop(key, None)

    def drop(self, tickers: Set[str]) -> None:
        """Forget tickers that start afresh."""
        for ticker in tickers:
            self._newest.pop(ticker, None)
            self._open.pop(ticker, None)

    def snapshot(self) -> dict[str, list[Any]]:
        return self._newest

    def restore(self, newest: dict[str, list[Any]], partitions: Iterable[tuple[Key, Set[str]]]) -> None:
        self._newest = {ticker: list(values) for ticker, values in newest.items()}
        self._open = {}
        for key, tickers in partitions:
            self._open.setdefault(self._of(tickers), {})[key] = None
