"""Connections and their slots, and which slot gets which piece.

Invariant after every event: no free slot and no waiting piece fit each other.
"""

from itertools import count

from broker.board import Board
from broker.commands import Refuse
from broker.events import Connection, Kind, SlotOffered, VenueLearned
from broker.slots.free import Peer, QueueKey
from broker.slots.venue_book import MAX_VENUES, VenueBook
from broker.work import Job, Piece, Request

_HISTORICAL = Kind.HISTORICAL


class Dispatching:
    def __init__(self, board: Board, venues: VenueBook) -> None:
        self._board = board
        self._venues = venues
        self._matching = board.matching
        self._slots = board.slots
        #: Reading it from the settings takes twice as long.
        self._max_slots = board.settings.max_slots
        self._turn = count()

    def hear(self, connection: Connection, at: float) -> Peer | None:
        """Note that a connection is alive, as any frame shows; None if there are too many connections."""
        peer = self._slots.peers.get(connection)
        if peer is None:
            most = self._board.settings.max_connections
            if len(self._slots.peers) >= most:
                self._board.say(Refuse(connection, "TOO_MANY_CONNECTIONS", f"this broker takes {most} connections"))
                return None
            peer = self._slots.peers[connection] = Peer(at)
        peer.last_heard = at
        if peer.is_suspect:
            peer.is_suspect = False
            for key in peer.keys:
                self._matching.unpark(key, connection)
                self._match(key)
        return peer

    def on_slot(self, event: SlotOffered) -> None:
        connection, venues, at = event.connection, event.venues, event.at
        peer = self.hear(connection, at)
        if peer is None:
            return
        board = self._board
        slots = self._slots
        if slots.total >= self._max_slots:
            text = f"{self._max_slots} slots wait already"
            board.say(Refuse(connection, "TOO_MANY_SLOTS", text))
            return
        for venue in venues:
            if not self._venues.offered(venue, at):
                board.say(Refuse(connection, "TOO_MANY_VENUES", f"{MAX_VENUES} venues are known already"))
                return
        offer = slots.offer_of(peer, venues, event.kinds)
        keys = offer.keys
        if len(keys) > 1:
            turn = next(self._turn) % len(keys)
            keys = keys[turn:] + keys[:turn]
        matching = self._matching
        for key in keys:
            matching.unpark(key, connection)
            if self._may_match(key):
                # By the invariant, no other free slot fits any waiting piece, so this slot need not join their queue.
                piece = matching.next_for(key, connection, board.wall_ns)
                if piece is not None:
                    self._dispatch(connection, piece)
                    return
        slots.add(connection, peer, offer)

    def on_venue(self, event: VenueLearned) -> None:
        if self._venues.learn(event):
            self._match((event.venue, Kind.HISTORICAL))

    def offer(self, request: Request) -> None:
        """Note that `request` has a piece to hand out."""
        self._matching.offer(request)
        self._match(request.key)

    def requeue(self, piece: Piece) -> None:
        """Queue `piece` again, if it is still wanted."""
        if piece.is_live and piece.job is None:
            piece.request.ready.append(piece)
            self.offer(piece.request)

    def retry_waiting(self) -> None:
        """Retry pieces that wait for room on the bus, and background pieces that wait for slots."""
        room = self._board.room
        waiting = room.waiting
        if waiting is None:
            for key in dict.fromkeys((*self._matching.restore_overtaken(), *self._matching.background())):
                self._match(key)
            return
        if not waiting.is_live or (room.is_kept and waiting.request.key not in self._slots.served()):
            room.waiting = None
        elif room.is_kept and (slot := self._matching.pair_of(waiting)) is not None:
            self._dispatch(slot.connection, waiting)
        if not room.is_kept:
            for key in dict.fromkeys((*self._matching.restore_overtaken(), *self._matching.keys())):
                self._match(key)

    def lose_connection(self, connection: Connection) -> None:
        self._board.note("connection_lost", slots=self._slots.drop(connection))

    def _may_match(self, key: QueueKey) -> bool:
        """Whether pieces of this key may be dispatched. A range is cut only once its venue's page size is known; other
        pieces overtake one that waits for room, for a limited time.
        """
        if key[1] is not _HISTORICAL:
            return True
        room = self._board.room
        return (room.waiting is None or not room.is_kept) and self._venues.facts(key[0]).is_known

    def _match(self, key: QueueKey) -> None:
        if self._may_match(key):
            while (pair := self._matching.next_pair(key, self._board.wall_ns)) is not None:
                self._dispatch(pair[0].connection, pair[1])

    def _dispatch(self, connection: Connection, piece: Piece) -> None:
        board = self._board
        request = piece.request
        job_id = board.new_job_id()
        job = Job(job_id, piece, connection, lease_until=board.at + board.lease_seconds)
        job.dispatched_ns = board.wall_ns
        board.add_job(job)
        board.show_later(request)
        board.out.append(request.dispatch(connection, job_id, piece))
