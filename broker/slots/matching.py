"""Brings free slots and waiting pieces together: the longest-waiting slot, the fairest turn."""

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
        #: Pieces that none of the free slots may have, by who is banned from them.
        self._parked: dict[QueueKey, dict[frozenset[Connection], list[Piece]]] = {}
        #: Requests whose next piece does not fit now, in the order in which they were found.
        self._overtaken: dict[QueueKey, dict[Request, None]] = {}

    def offer(self, request: Request) -> None:
        """`request` has a piece to hand out."""
        queue = self._queues.get(request.key)
        if queue is None:
            queue = self._queues[request.key] = FairQueue[Request]()
        queue.add(request)

    def withdraw(self, request: Request) -> None:
        self._queues[request.key].remove(request)

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
        if piece not in ready or not self.slots.has(key) or not self._fits(piece):
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
        queue = self._queues.get(key)
        if queue is None:
            return None
        while (request := queue.head()) is not None:
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
        overtaken[self._queues[key].drop_head()] = None
        return True

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

    def keys(self) -> list[QueueKey]:
        """Of what waits."""
        return [key for key, queue in self._queues.items() if queue]

    def queued(self) -> int:
        """Requests with a piece to hand out."""
        waiting = sum(map(len, list(self._queues.values())))
        return waiting + sum(map(len, list(self._overtaken.values())))

    def parked(self) -> int:
        """Pieces that wait for another ingestor than those that are free."""
        return sum(len(pieces) for groups in list(self._parked.values()) for pieces in groups.values())
