"""The client's two sockets, and the session's commands on them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import zmq

from candlewright.client.session.session import Command, Send, Subscribe
from candlewright.wire import frames
from candlewright.wire.keys import ClientKey

#: Replies read in one go before time and commands get their turn.
DRAIN_MAX = 1_000


def reachable(address: str) -> str:
    """The address to connect to for one that a server binds to."""
    for wildcard in ("0.0.0.0", "*", "[::]"):
        address = address.replace(f"//{wildcard}:", "//127.0.0.1:")
    return address


def open_pair(
    context: "zmq.Context[zmq.Socket[bytes]]", key: ClientKey | None
) -> "tuple[zmq.Socket[bytes], zmq.Socket[bytes]]":
    """A DEALER and a SUB, which reconnect automatically."""
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    subscriber: zmq.Socket[bytes] = context.socket(zmq.SUB)
    for socket in (dealer, subscriber):
        socket.setsockopt(zmq.LINGER, 0)
        if key is not None:
            socket.setsockopt(zmq.CURVE_SERVERKEY, key.platform.encode())
            socket.setsockopt(zmq.CURVE_PUBLICKEY, key.public.encode())
            socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret.encode())
        socket.setsockopt(zmq.MAXMSGSIZE, frames.MAX_FRAME_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
    # Full only when the platform has been down for long; dropped requests are resent.
    dealer.setsockopt(zmq.SNDHWM, 1_000)
    subscriber.setsockopt(zmq.RCVHWM, 100_000)
    return dealer, subscriber


def is_readable(socket: "zmq.Socket[bytes]") -> bool:
    events = socket.getsockopt(zmq.EVENTS)
    return isinstance(events, int) and bool(events & zmq.POLLIN)


def drain(socket: "zmq.Socket[bytes]") -> Iterator[Sequence[bytes]]:
    """The messages that have arrived, without waiting."""
    for _ in range(DRAIN_MAX):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


def carry_out(commands: Iterable[Command], requests: "zmq.Socket[bytes]", notifications: "zmq.Socket[bytes]") -> None:
    for command in commands:
        match command:
            case Send(message):
                with suppress(zmq.Again):
                    requests.send_multipart(frames.encode(message), zmq.NOBLOCK)
            case Subscribe(topic):
                notifications.setsockopt(zmq.SUBSCRIBE, topic.encode())
            case _:
                notifications.setsockopt(zmq.UNSUBSCRIBE, command.topic.encode())
