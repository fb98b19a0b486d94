"""Matches free slots with waiting pieces: the longest-waiting slot gets the piece whose turn it is.

Background pieces come after all others and leave one slot free, unless none of them runs.
"""

from collections import Counter
from collections.abc import Callable

from broker.events import Connection
from broker.slots.fair_queue import FairQueue
from broker.slots.free import QueueKey, Slot, SlotBook
from broker.work import Piece, Request

#: The most requests without room for their next piece that others may overtake in one search.
MAX_OVERTAKEN = 100


class Matching:
    """`fits` returns whether a piece that has a slot may be dispatched now."""

    def __init__(self, fits: Callable[[Piece], bool] = lambda piece: True) -> None:
        self._fits = fits
        self.slots = SlotBook()
        self._queues: dict[QueueKey, FairQueue[Request]] = {}
        self._background: dict[QueueKey, FairQueue[Request]] = {}
        #: Running background pieces.
        self.in_background: Counter[QueueKey] = Counter()
        #: Pieces that no free slot may take, by the banned connections.
        self._parked: dict[QueueKey, dict[frozenset[Connection], list[Piece]]] = {}
        #: Requests whose next piece does not fit now, in the order found.
        self._overtaken: dict[QueueKey, dict[Request, None]] = {}

    def offer(self, request: Request) -> None:
        """Note that `request` has a piece to hand out."""
        queues = self._queues_of(request)
        queue = queues.get(request.key)
        if queue is None:
            queue = queues[request.key] = FairQueue[Request]()
        queue.add(request)

    def withdraw(self, request: Request) -> None:
        self._queues_of(request)[request.key].remove(request)

    def _queues_of(self, request: Request) -> dict[QueueKey, FairQueue[Request]]:
        return self._background if request.is_background else self._queues

    def _next_queue(self, key: QueueKey, new: int = 0) -> FairQueue[Request] | None:
        """The queue from which a free slot, or one of `new` further slots, gets its next piece; never an empty one."""
        queue = self._queues.get(key)
        if queue is not None and queue.size:
            return queue
        queue = self._background.get(key) if self._background else None
        return queue if queue and (self.slots.free(key) + new > 1 or not self.in_background[key]) else None

    def end(self, request: Request) -> None:
        """Remove `request`, which has ended."""
        if self._overtaken:
            self._overtaken.get(request.key, {}).pop(request, None)
        if request.is_queued:
            self.withdraw(request)

    def restore_overtaken(self) -> list[QueueKey]:
        """Requeue the requests that did not fit; returns their keys."""
        keys = [key for key, requests in self._overtaken.items() if requests]
        for key in keys:
            for request in self._overtaken.pop(key):
                self.offer(request)
        return keys

    def next_pair(self, key: QueueKey, wall_ns: int) -> tuple[Slot, Piece] | None:
        """Take a slot and a piece of `key` that fit each other; None if none do."""
        while self.slots.free(key) and (queue := self._next_queue(key)) is not None:
            request = queue.head()
            assert request is not None
            piece = request.take(wall_ns)
            if piece is None:
                queue.drop_head()
                continue
            if not self._fits(piece):
                if not self._overtake(key, piece):
                    return None
                continue
            slot = self.slots.take(key, piece.banned, piece.avoided)
            if slot is None:
                self._park(key, piece)
                continue
            queue.advance(keep=request.has_more(wall_ns))
            return slot, piece
        return None

    def pair_of(self, piece: Piece) -> Slot | None:
        """Take the waiting `piece` out of turn, and a slot for it; None if it does not fit, or no slot does."""
        key, ready = piece.request.key, piece.request.ready
        if piece not in ready or not self.slots.free(key) or not self._fits(piece):
            return None
        ready.remove(piece)
        slot = self.slots.take(key, piece.banned, piece.avoided)
        if slot is None:
            self._park(key, piece)
        return slot

    def next_for(self, key: QueueKey, connection: Connection, wall_ns: int) -> Piece | None:
        """Take the piece that a new slot of `connection` gets; None if none fits.

        Correct only while no waiting slot fits any waiting piece.
        """
        while (queue := self._next_queue(key, new=1)) is not None:
            request = queue.head()
            assert request is not None
            piece = request.take(wall_ns)
            if piece is None:
                queue.drop_head()
            elif connection in piece.banned:
                self._park(key, piece)
            elif not self._fits(piece):
                if not self._overtake(key, piece):
                    return None
            else:
                queue.advance(keep=request.has_more(wall_ns))
                return piece
        return None

    def _overtake(self, key: QueueKey, piece: Piece) -> bool:
        """Put the head aside because its next piece does not fit; False if too many are aside."""
        piece.request.ready.insert(0, piece)
        overtaken = self._overtaken.setdefault(key, {})
        if len(overtaken) >= MAX_OVERTAKEN:
            return False
        overtaken[self._queues_of(piece.request)[key].drop_head()] = None
        return True

    def _park(self, key: QueueKey, piece: Piece) -> None:
        self._parked.setdefault(key, {}).setdefault(piece.banned, []).append(piece)

    def background(self) -> list[QueueKey]:
        """The keys of waiting background pieces."""
        return [key for key, queue in self._background.items() if queue]

    def unpark(self, key: QueueKey, connection: Connection) -> None:
        """Requeue the parked pieces that `connection` may take, since it has a free slot."""
        groups = self._parked.get(key) if self._parked else None
        if not groups:
            return
        for banned in [banned for banned in groups if connection not in banned]:
            for piece in groups.pop(banned):
                if piece.is_live:
                    piece.request.ready.append(piece)
                    self.offer(piece.request)
        if not groups:
            del self._parked[key]

    def keys(self) -> list[QueueKey]:
        """The keys of everything that waits."""
        return [key for queues in (self._queues, self._background) for key, queue in queues.items() if queue]

    def queued(self) -> int:
        """Requests with a piece to hand out."""
        waiting = sum(map(len, [*self._queues.values(), *self._background.values()]))
        return waiting + sum(map(len, list(self._overtaken.values())))

    def parked(self) -> int:
        """Pieces that wait for an ingestor other than the free ones."""
        return sum(len(pieces) for groups in list(self._parked.values()) for pieces in groups.values())
