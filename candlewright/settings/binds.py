"""Addresses to which sockets are bound, as written in settings."""

from typing import Annotated

from pydantic import AfterValidator

_MAX_PORT = 65_535


def _host_and_port(text: str) -> str:
    """A missing host is refused, because it would mean every interface of this machine."""
    host, _, port = text.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} is not an address: write host:port, such as 127.0.0.1:8080")
    return text


def _zeromq(text: str) -> str:
    if text.startswith(("ipc://", "inproc://")):
        return text
    address = text.removeprefix("tcp://") if text.startswith("tcp://") else ""
    try:
        # A star is ZeroMQ's name for any free port.
        _host_and_port(address[:-1] + "0" if address.endswith(":*") else address)
    except ValueError:
        raise ValueError(f"{text!r} is not an address: write tcp://host:port, such as tcp://127.0.0.1:5567") from None
    return text


#: `host:port`; port 0 takes any free one.
HostPort = Annotated[str, AfterValidator(_host_and_port)]
#: `tcp://host:port`, or ZeroMQ's ipc and inproc transports.
ZeroMQBind = Annotated[str, AfterValidator(_zeromq)]
