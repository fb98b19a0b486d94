"""The free slots of all connected ingestors, the longest waiting first."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.events import Connection, Kind

QueueKey = tuple[str, Kind]
#: Keys without a slot are removed once there are this many.
_MANY_OFFERS = 256


@dataclass(slots=True)
class Peer:
    """A connection that has offered slots. A suspect let a lease expire, and gets nothing until it is heard again."""

    last_heard: float
    slots: int = 0
    is_suspect: bool = False
    keys: set[QueueKey] = field(default_factory=set)
    last_offer: "Offer | None" = None


@dataclass(slots=True)
class Slot:
    sequence: int
    connection: Connection
    offer: "Offer"


@dataclass(slots=True, eq=False)
class Offer:
    """All slots that take the same venues and kinds; they differ only in connection and age."""

    keys: tuple[QueueKey, ...]
    waiting: deque[Slot]


class SlotBook:
    def __init__(self) -> None:
        self.peers: dict[Connection, Peer] = {}
        self.total = 0
        self._offers: dict[tuple[tuple[str, ...], tuple[Kind, ...]], Offer] = {}
        self._by_key: dict[QueueKey, list[Offer]] = {}
        self._free: dict[QueueKey, int] = {}
        self._sequence = 0

    def offer_of(self, peer: Peer, venues: tuple[str, ...], kinds: tuple[Kind, ...]) -> Offer:
        """The offer of a slot of `peer`; `add` makes the slot wait."""
        offer = self._offers.get((venues, kinds))
        if offer is None:
            if len(self._offers) >= _MANY_OFFERS:
                self._forget_empty_offers()
            offer = Offer(tuple((venue, kind) for venue in venues for kind in kinds), deque())
            self._offers[venues, kinds] = offer
            for key in offer.keys:
                self._by_key.setdefault(key, []).append(offer)
                self._free.setdefault(key, 0)
        if peer.last_offer is not offer:
            peer.last_offer = offer
            peer.keys.update(offer.keys)
        return offer

    def add(self, connection: Connection, peer: Peer, offer: Offer) -> None:
        """Add a free slot after those that wait already."""
        peer.slots += 1
        for key in offer.keys:
            self._free[key] += 1
        self.total += 1
        self._sequence += 1
        offer.waiting.append(Slot(self._sequence, connection, offer))

    def free(self, key: QueueKey) -> int:
        """How many free slots take `key`, including those of suspects."""
        return self._free.get(key, 0)

    def take(self, key: QueueKey, banned: frozenset[Connection], avoided: frozenset[Connection]) -> Slot | None:
        """Remove and return the longest-waiting slot for `key`; one of `avoided` only if all slots are."""
        slot = self._find(key, banned | avoided if avoided else banned)
        if slot is None and avoided:
            slot = self._find(key, banned)
        if slot is not None:
            if slot.offer.waiting[0] is slot:
                slot.offer.waiting.popleft()
            else:
                slot.offer.waiting.remove(slot)
            self.peers[slot.connection].slots -= 1
            self.total -= 1
            for taken in slot.offer.keys:
                self._free[taken] -= 1
        return slot

    def _find(self, key: QueueKey, excluded: frozenset[Connection]) -> Slot | None:
        best: Slot | None = None
        for offer in self._by_key.get(key, ()):
            for slot in offer.waiting:
                if slot.connection not in excluded and not self.peers[slot.connection].is_suspect:
                    if best is None or slot.sequence < best.sequence:
                        best = slot
                    break
        return best

    def drop(self, connection: Connection) -> int:
        """Forget a connection and its free slots; returns how many there were."""
        peer = self.peers.pop(connection, None)
        if peer is None or not peer.slots:
            return 0
        for offer in self._offers.values():
            kept = deque(slot for slot in offer.waiting if slot.connection != connection)
            for key in offer.keys:
                self._free[key] -= len(offer.waiting) - len(kept)
            offer.waiting = kept
        self.total -= peer.slots
        self._forget_empty_offers()
        return peer.slots

    def _forget_empty_offers(self) -> None:
        for name in [name for name, offer in self._offers.items() if not offer.waiting]:
            offer = self._offers.pop(name)
            for key in offer.keys:
                remaining = [other for other in self._by_key[key] if other is not offer]
                if remaining:
                    self._by_key[key] = remaining
                else:
                    del self._by_key[key], self._free[key]

    def served(self) -> set[QueueKey]:
        """The keys for which live connections have slots, including busy ones."""
        return set[QueueKey]().union(*(peer.keys for peer in self.peers.values() if not peer.is_suspect))

    def waiting(self) -> Iterator[Slot]:
        for offer in self._offers.values():
            yield from offer.waiting

    def counts(self) -> dict[str, int]:
        """Free slots by venues and kinds, for the status page."""
        return {
            f"{','.join(venues)}:{'|'.join(kind.value for kind in kinds)}": len(offer.waiting)
            for (venues, kinds), offer in self._offers.items()
        }
