"""Brings free slots and waiting pieces together: the longest-waiting slot, the fairest turn.

Background pieces go after all others, and leave one slot free: only where none of them runs may one take the last slot.
"""

from collections import Counter
from collections.abc import Callable

from broker.events import Connection
from broker.slots.fair_queue import FairQueue
from broker.slots.free import QueueKey, Slot, SlotBook
from broker.work import Piece, Request

#: Requests whose next piece has no room, and which others overtake; the search ends after that many.
MAX_OVERTAKEN = 100


class Matching:
    """`fits`: whether a piece may be dispatched now, for which there is a slot."""

    def __init__(self, fits: Callable[[Piece], bool] = lambda piece: True) -> None:
        self._fits = fits
        self.slots = SlotBook()
        self._queues: dict[QueueKey, FairQueue[Request]] = {}
        self._background: dict[QueueKey, FairQueue[Request]] = {}
        #: Background pieces that run.
        self.in_background: Counter[QueueKey] = Counter()
        #: Pieces that none of the free slots may have, by who is banned from them.
        self._parked: dict[QueueKey, dict[frozenset[Connection], list[Piece]]] = {}
        #: Requests whose next piece does not fit now, in the order in which they were found.
        self._overtaken: dict[QueueKey, dict[Request, None]] = {}

    def offer(self, request: Request) -> None:
        """`request` has a piece to hand out."""
        queues = self._queues_of(request)
        queue = queues.get(request.key)
        if queue is None:
            queue = queues[request.key] = FairQueue[Request]()
        queue.add(request)

    def withdraw(self, request: Request) -> None:
        self._queues_of(request)[request.key].remove(request)

    def _queues_of(self, request: Request) -> dict[QueueKey, FairQueue[Request]]:
        return self._background if request.is_background else self._queues

    def _next_queue(self, key: QueueKey, free: int) -> FairQueue[Request] | None:
        """Where the next piece for one of `free` slots comes from; never an empty one."""
        queue = self._queues.get(key)
        if queue:
            return queue
        queue = self._background.get(key)
        return queue if queue and (free > 1 or not self.in_background[key]) else None

    def end(self, request: Request) -> None:
        """`request` is over."""
        self._overtaken.get(request.key, {}).pop(request, None)
        if request.is_queued:
            self.withdraw(request)

    def restore_overtaken(self) -> list[QueueKey]:
        """Give those that did not fit another chance; the queues that they are in."""
        keys = [key for key, requests in self._overtaken.items() if requests]
        for key in keys:
            for request in self._overtaken.pop(key):
                self.offer(request)
        return keys

    def next_pair(self, key: QueueKey, wall_ns: int) -> tuple[Slot, Piece] | None:
        """Take out a slot and a piece of `key` that fit each other, or None when none do."""
        while (free := self.slots.free(key)) and (queue := self._next_queue(key, free)) is not None:
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
        """Take `piece`, which waits, out of its turn, and a slot for it; None when it does not fit, or no slot does."""
        key, ready = piece.request.key, piece.request.ready
        if piece not in ready or not self.slots.free(key) or not self._fits(piece):
            return None
        ready.remove(piece)
        slot = self.slots.take(key, piece.banned, piece.avoided)
        if slot is None:
            self._park(key, piece)
        return slot

    def next_for(self, key: QueueKey, connection: Connection, wall_ns: int) -> Piece | None:
        """Take out the piece that a new slot of `connection` gets, or None when none fits.

        Only right while no slot that waits fits any piece that waits.
        """
        free = 1 + self.slots.free(key)
        while (queue := self._next_queue(key, free)) is not None:
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
        """The head's next piece does not fit: put the request aside for others; False when too many are there."""
        piece.request.ready.insert(0, piece)
        overtaken = self._overtaken.setdefault(key, {})
        if len(overtaken) >= MAX_OVERTAKEN:
            return False
        overtaken[self._queues_of(piece.request)[key].drop_head()] = None
        return True

    def _park(self, key: QueueKey, piece: Piece) -> None:
        self._parked.setdefault(key, {}).setdefault(piece.banned, []).append(piece)

    def background(self) -> list[QueueKey]:
        """Of background pieces that wait."""
        return [key for key, queue in self._background.items() if queue]

    def unpark(self, key: QueueKey, connection: Connection) -> None:
        """Give the pieces that `connection` may have another chance: it has a slot to offer."""
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
        """Of what waits."""
        return [key for queues in (self._queues, self._background) for key, queue in queues.items() if queue]

    def queued(self) -> int:
        """Requests with a piece to hand out."""
        waiting = sum(map(len, [*self._queues.values(), *self._background.values()]))
        return waiting + sum(map(len, list(self._overtaken.values())))

    def parked(self) -> int:
        """Pieces that wait for another ingestor than those that are free."""
        return sum(len(pieces) for groups in list(self._parked.values()) for pieces in groups.values())
