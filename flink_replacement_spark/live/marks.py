"""Marks that wait until the trades published before them have been counted.

A mark names the number of `TICKS:{ticker}` after which it applies. Marks and trades are in two topics and are read
separately, so a mark may arrive long before its trades. The marks of a ticker apply in order.
"""

import base64
from collections import deque

from protobuf import records_pb2 as records

__all__ = ["WaitingMarks", "number_of"]


def number_of(mark: records.TickMark) -> int:
    """The number of the last trade that must be counted before the mark; 0 if it waits for none."""
    return mark.clock.sequence if _is_clock(mark) else mark.after_sequence


class WaitingMarks:
    """Queues by ticker, with non-decreasing numbers."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[int, records.TickMark]]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def add(self, mark: records.TickMark) -> None:
        queue = self._queues.setdefault(mark.ticker, deque())
        number = number_of(mark)
        if queue and mark.HasField("wanted"):
            # The broker's mark may arrive after an ingestor's mark that names a later trade.
            number = max(number, queue[-1][0])
        if queue and queue[-1][0] > number:
            # The bus lost its newest trades and reuses their numbers, so trades that earlier marks wait for never
            # arrive.
            lowered = [(min(waiting, number), earlier) for waiting, earlier in queue]
            queue.clear()
            queue.extend(lowered)
        if queue and _is_clock(mark) and _is_clock(queue[-1][1]):
            # Only the newest time counts, and a pipeline that is hours behind must not keep thousands of marks.
            queue.pop()
        queue.append((number, mark))

    def tickers(self) -> list[str]:
        """The tickers with waiting marks."""
        return list(self._queues)

    def next_number(self, ticker: str) -> int | None:
        """The number of the trade after which the ticker's next mark is due; None without a mark."""
        queue = self._queues.get(ticker)
        return queue[0][0] if queue else None

    def pop_due(self, ticker: str, counted: int) -> records.TickMark | None:
        """The ticker's next mark once the trades up to number `counted` are counted, or will never come."""
        queue = self._queues.get(ticker)
        if not queue or queue[0][0] > counted:
            return None
        mark = queue.popleft()[1]
        if not queue:
            del self._queues[ticker]
        return mark

    # ---- state
    def save(self) -> list[tuple[int, str]]:
        """All waiting marks as JSON values."""
        return [
            (number, base64.b64encode(mark.SerializeToString()).decode())
            for queue in self._queues.values()
            for number, mark in queue
        ]

    @classmethod
    def load(cls, entries: list[tuple[int, str]]) -> "WaitingMarks":
        waiting = cls()
        for number, text in entries:
            mark = records.TickMark.FromString(base64.b64decode(text))
            waiting._queues.setdefault(mark.ticker, deque()).append((number, mark))
        return waiting


def _is_clock(mark: records.TickMark) -> bool:
    return mark.HasField("clock")
