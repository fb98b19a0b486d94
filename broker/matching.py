"""Brings free slots and waiting pieces together: the longest-waiting slot, the fairest turn."""

from broker.events import Connection
from broker.fair_queue import FairQueue
from broker.requests import Piece, Request
from broker.slots import QueueKey, Slot, SlotBook


class Matching:
    def __init__(self) -> None:
        self.slots = SlotBook()
        self._queues: dict[QueueKey, FairQueue] = {}
        #: Pieces that none of the free slots may have, by who is banned from them.
        self._parked: dict[QueueKey, dict[frozenset[Connection], list[Piece]]] = {}

    def offer(self, request: Request) -> None:
        """`request` has a piece to hand out."""
        queue = self._queues.get(request.key)
        if queue is None:
            queue = self._queues[request.key] = FairQueue()
        queue.add(request)

    def withdraw(self, request: Request) -> None:
        self._queues[request.key].remove(request)

    def next_pair(self, key: QueueKey, wall_ns: int) -> tuple[Slot, Piece] | None:
        """Take out a slot and a piece of `key` that fit each other, or None when none do."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        while self.slots.has(key):
            request = queue.head()
            if request is None:
                return None
            piece = request.take(wall_ns)
            if piece is None:
                queue.drop_head()
                continue
            slot = self.slots.take(key, piece.banned, piece.avoided)
            if slot is None:
                self._park(key, piece)
                continue
            queue.advance(keep=request.has_more(wall_ns))
            return slot, piece
        return None

    def next_for(self, key: QueueKey, connection: Connection, wall_ns: int) -> Piece | None:
        """Take out the piece that a new slot of `connection` gets, or None when none fits.

        Only right while no slot that waits fits any piece that waits.
        """
        queue = self._queues.get(key)
        if queue is None:
            return None
        while (request := queue.head()) is not None:
            piece = request.take(wall_ns)
            if piece is None:
                queue.drop_head()
            elif connection in piece.banned:
                self._park(key, piece)
            else:
                queue.advance(keep=request.has_more(wall_ns))
                return piece
        return None

    def _park(self, key: QueueKey, piece: Piece) -> None:
        self._parked.setdefault(key, {}).setdefault(piece.banned, []).append(piece)

    def unpark(self, key: QueueKey, connection: Connection) -> None:
        """Give the pieces that `connection` may have another chance: it has a slot to offer."""
        groups = self._parked.get(key) if self._parked else None
        if not groups:
            return
        for banned in [banned for banned in groups if connection not in banned]:
            for piece in groups.pop(banned):
                if piece.is_live:
                    piece.request.ready.append(piece)
                    self._queues[key].add(piece.request)
        if not groups:
            del self._parked[key]

    def queued(self) -> int:
        """Requests with a piece to hand out."""
        return sum(map(len, list(self._queues.values())))

    def parked(self) -> int:
        """Pieces that wait for another ingestor than those that are free."""
        return sum(len(pieces) for groups in list(self._parked.values()) for pieces in groups.values())
