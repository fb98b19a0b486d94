"""Connections and their slots, and which piece goes to which of them.

Invariant after every event: no free slot and no waiting piece fit each other.
"""

from itertools import count

from broker.commands import Refuse
from broker.desk import Desk
from broker.events import Connection, Kind, SlotOffered, VenueLearned
from broker.slots.free import Peer, QueueKey
from broker.slots.venue_book import MAX_VENUES, VenueBook
from broker.work import Job, Piece, Request


class Dispatching:
    def __init__(self, desk: Desk, venues: VenueBook) -> None:
        self._desk = desk
        self._venues = venues
        self._matching = desk.matching
        self._slots = desk.slots
        self._turn = count()

    def hear(self, connection: Connection, at: float) -> Peer | None:
        """Any frame is a sign of life. None when there are too many connections for another one."""
        peer = self._slots.peers.get(connection)
        if peer is None:
            most = self._desk.settings.max_connections
            if len(self._slots.peers) >= most:
                self._desk.say(Refuse(connection, "TOO_MANY_CONNECTIONS", f"this broker takes {most} connections"))
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
        desk = self._desk
        slots = self._slots
        if slots.total >= desk.settings.max_slots:
            text = f"{desk.settings.max_slots} slots wait already"
            desk.say(Refuse(connection, "TOO_MANY_SLOTS", text))
            return
        for venue in venues:
            if not self._venues.offered(venue, at):
                desk.say(Refuse(connection, "TOO_MANY_VENUES", f"{MAX_VENUES} venues are known already"))
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
                # By the invariant no other free slot fits what waits, so that this one need not wait with them.
                piece = matching.next_for(key, connection, desk.wall_ns)
                if piece is not None:
                    self._dispatch(connection, piece)
                    return
        slots.add(connection, peer, offer)

    def on_venue(self, event: VenueLearned) -> None:
        if self._venues.learn(event):
            self._match((event.venue, Kind.HISTORICAL))

    def offer(self, request: Request) -> None:
        """`request` has a piece to hand out."""
        self._matching.offer(request)
        self._match(request.key)

    def requeue(self, piece: Piece) -> None:
        """`piece` is to be retried, if it is wanted still."""
        if piece.is_live and piece.job is None:
            piece.request.ready.append(piece)
            self.offer(piece.request)

    def retry_waiting(self) -> None:
        """There may be room on the bus for pieces that wait for it, and slots for background pieces."""
        room = self._desk.room
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
        self._desk.note("connection_lost", slots=self._slots.drop(connection))

    def _may_match(self, key: QueueKey) -> bool:
        """A range is cut only once its venue's page size is known. Others overtake a piece that waits for room, for a
        while.
        """
        if key[1] is not Kind.HISTORICAL:
            return True
        return not self._desk.room.is_kept and self._venues.facts(key[0]).is_known

    def _match(self, key: QueueKey) -> None:
        if self._may_match(key):
            while (pair := self._matching.next_pair(key, self._desk.wall_ns)) is not None:
                self._dispatch(pair[0].connection, pair[1])

    def _dispatch(self, connection: Connection, piece: Piece) -> None:
        desk = self._desk
        request = piece.request
        job_id = desk.new_job_id()
        job = Job(
            job_id=job_id,
            piece=piece,
            connection=connection,
            lease_until=desk.at + desk.lease_seconds,
            dispatched_ns=desk.wall_ns,
        )
        desk.add_job(job)
        desk.show_later(request)
        desk.out.append(request.dispatch(connection, job_id, piece))
