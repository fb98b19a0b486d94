"""The positions of each client's finals on the bus, for replay to late subscribers; 8 bytes per final."""

import threading
from array import array
from collections import deque
from collections.abc import Mapping

from bus.api import Position
from relay import metrics

_OFFSET_BITS = 48
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class FinalIndex:
    """Shared by the thread that reads finals and the one that replays them.

    When it is full, the oldest entries are dropped; their subscribers can still ask for the state of the request.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._places: dict[str, array[int]] = {}
        self._order: deque[str] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._order)

    def add(self, client_id: str, partition: int, offset: int) -> None:
        place = partition << _OFFSET_BITS | offset
        with self._lock:
            places = self._places.setdefault(client_id, array("Q"))
            places.append(place)
            self._order.append(client_id)
            if len(self._order) > self._max_entries:
                self._forget_oldest()
                metrics.FORGOTTEN_FINALS.inc()

    def newest(self, client_id: str, count: int) -> list[Position]:
        """The positions of up to `count` newest finals, ordered by partition and offset."""
        with self._lock:
            places = sorted(self._places.get(client_id, array("Q"))[-count:])
        return [Position(place >> _OFFSET_BITS, place & _OFFSET_MASK) for place in places]

    def forget_before(self, first: Mapping[int, int]) -> None:
        """Forget trimmed finals; `first` holds the first kept offset of each partition."""
        with self._lock:
            while self._order:
                oldest = self._places[self._order[0]][0]
                if oldest & _OFFSET_MASK >= first.get(oldest >> _OFFSET_BITS, 0):
                    return
                self._forget_oldest()

    def forget_all(self) -> None:
        with self._lock:
            self._places.clear()
            self._order.clear()

    def _forget_oldest(self) -> None:
        client_id = self._order.popleft()
        places = self._places[client_id]
        places.pop(0)
        if not places:
            del self._places[client_id]


def runs(positions: list[Position], max_gap: int, max_length: int) -> list[tuple[int, int, int]]:
    """Group ordered positions into (partition, first, last) ranges, each worth one read."""
    stretches: list[tuple[int, int, int]] = []
    for position in positions:
        if stretches:
            partition, first, last = stretches[-1]
            is_near = position.partition == partition and position.offset - last <= max_gap
            if is_near and position.offset - first < max_length:
                stretches[-1] = (partition, first, position.offset)
                continue
        stretches.append((position.partition, position.offset, position.offset))
    return stretches
