"""Turns the parts that the requests socket received into an event, and a message into the parts to send."""

from collections.abc import Sequence

import zmq
from google.protobuf.message import Message

from candlewright.wire.errors import BadFrame
from candlewright.wire.frames import CLIENT_TO_RELAY, decode, encode
from relay.asked import Peer
from relay.events import FrameRefused, MessageReceived

#: Identity, delimiter, version, body; one more reveals a message with too many.
_KEPT_PARTS = 5
_NOWAIT = int(zmq.NOBLOCK)


def receive(router: "zmq.Socket[bytes]") -> tuple[list[bytes], int, str]:
    """The first parts of the next message, the number of all its parts, and the sender's address; further parts are
    discarded.

    Raises zmq.Again if there is no message.
    """
    frame = router.recv(_NOWAIT, copy=False)
    parts, count = _with_the_rest(router, frame.bytes)
    return parts, count, address_of(frame)


def address_of(frame: zmq.Frame) -> str:
    """The connection's address; empty if libzmq does not know it."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return ""


def receive_with_key(router: "zmq.Socket[bytes]") -> tuple[list[bytes], int, str, bool]:
    """As `receive`, with the connection's public key, and whether it chose its own routing id."""
    frame = router.recv(_NOWAIT, copy=False)
    parts, count = _with_the_rest(router, frame.bytes)
    try:
        return parts, count, str(frame.get("User-Id")), bool(frame.get("Identity"))
    except zmq.ZMQError:
        return parts, count, "", False


def _with_the_rest(router: "zmq.Socket[bytes]", first: bytes) -> tuple[list[bytes], int]:
    parts = [first]
    count = 1
    while router.getsockopt(zmq.RCVMORE):
        part = router.recv(_NOWAIT)
        count += 1
        if len(parts) < _KEPT_PARTS:
            parts.append(part)
    return parts, count


def event_of(
    parts: Sequence[bytes], count: int, at_ns: int, *, name: str = "", refusal: str = "", address: str = ""
) -> MessageReceived | FrameRefused:
    """The event of a message. `parts` begin with the connection's identity; an empty delimiter after it marks a REQ
    client.

    `name`: the name of the connection's key. `refusal`: why nothing is accepted from it.
    """
    identity, *frames = parts
    is_req = len(frames) > 1 and not frames[0]
    peer = Peer(identity, is_req, name, address)
    if is_req:
        del frames[0]
    if refusal:
        return FrameRefused(peer, "NOT_ALLOWED", refusal)
    try:
        if count > len(parts):
            raise BadFrame("MALFORMED", f"a message has 2 frames, version and body; this one has {count - 1 - is_req}")
        return MessageReceived(peer, decode(frames, CLIENT_TO_RELAY), at_ns)
    except BadFrame as error:
        return FrameRefused(peer, error.code, error.text, error.request_id)


def frames_of(peer: Peer, message: Message) -> list[bytes]:
    head = [peer.identity, b""] if peer.is_req else [peer.identity]
    return [*head, *encode(message)]
