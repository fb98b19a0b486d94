"""From the parts that the requests socket received to an event, and from a message to the parts to send."""

from collections.abc import Sequence

import zmq
from google.protobuf.message import Message

from candlewright.wire.errors import BadFrame
from candlewright.wire.frames import CLIENT_TO_RELAY, decode, encode
from relay.events import FrameRefused, MessageReceived, Peer

#: Identity, delimiter, version, body; one more shows that there are too many.
_KEPT_PARTS = 5
_NOWAIT = int(zmq.NOBLOCK)


def receive(router: "zmq.Socket[bytes]") -> tuple[list[bytes], int, str]:
    """The first parts of the next message, the number of all, and the address it came from; further parts are read and
    forgotten.

    Raises zmq.Again when there is no message.
    """
    frame = router.recv(_NOWAIT, copy=False)
    parts, count = _with_the_rest(router, frame.bytes)
    return parts, count, address_of(frame)


def address_of(frame: zmq.Frame) -> str:
    """Of the connection; empty where libzmq does not know it."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return ""


def receive_with_key(router: "zmq.Socket[bytes]") -> tuple[list[bytes], int, str, bool]:
    """The same, with the public key of the connection, and whether it named itself (its routing id)."""
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
    """`parts` begin with the connection's identity; behind an empty delimiter they are those of a REQ client.

    `name`: of the connection's key. `refusal`: why nothing is taken from it.
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
