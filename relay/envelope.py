"""From the parts that the requests socket received to an event, and from a message to the parts to send."""

from collections.abc import Sequence

import zmq
from google.protobuf.message import Message

from core.errors import BadFrame
from protobuf.frames import CLIENT_TO_RELAY, decode, encode
from relay.events import FrameRefused, MessageReceived, Peer

#: Identity, delimiter, version, body; one more shows that there are too many.
_KEPT_PARTS = 5
_NOWAIT = int(zmq.NOBLOCK)


def receive(router: "zmq.Socket[bytes]") -> tuple[list[bytes], int]:
    """The first parts of the next message and the number of all; further parts are read and forgotten.

    Raises zmq.Again when there is no message.
    """
    parts = [router.recv(_NOWAIT)]
    count = 1
    while router.getsockopt(zmq.RCVMORE):
        part = router.recv(_NOWAIT)
        count += 1
        if len(parts) < _KEPT_PARTS:
            parts.append(part)
    return parts, count


def open_envelope(parts: Sequence[bytes], count: int, at_ns: int) -> MessageReceived | FrameRefused:
    """`parts` begin with the connection's identity; behind an empty delimiter they are those of a REQ client."""
    identity, *frames = parts
    is_req = len(frames) > 1 and not frames[0]
    peer = Peer(identity, is_req)
    if is_req:
        del frames[0]
    try:
        if count > len(parts):
            raise BadFrame("MALFORMED", f"a message has 2 frames, version and body; this one has {count - 1 - is_req}")
        return MessageReceived(peer, decode(frames, CLIENT_TO_RELAY), at_ns)
    except BadFrame as error:
        return FrameRefused(peer, error.code, error.text, error.request_id)


def seal(peer: Peer, message: Message) -> list[bytes]:
    head = [peer.identity, b""] if peer.is_req else [peer.identity]
    return [*head, *encode(message)]
