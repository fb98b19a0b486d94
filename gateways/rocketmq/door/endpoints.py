"""The addresses in a route: clients talk only to these."""

from ipaddress import IPv4Address, IPv6Address, ip_address

from gateways.rocketmq.door.status import INVALID_ARGUMENT, Refused
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition


def endpoints_of(asked: definition.Endpoints, advertise: str) -> definition.Endpoints:
    """The advertised address, else the one the client used, which it can reach. Raises Refused."""
    if not asked.addresses or not all(address.host for address in asked.addresses):
        raise Refused(INVALID_ARGUMENT, "the endpoints are missing: the address that the client was given")
    if not advertise:
        return asked
    host, port = host_and_port(advertise)
    return definition.Endpoints(scheme=_scheme(host), addresses=[definition.Address(host=host, port=port)])


def host_and_port(text: str) -> tuple[str, int]:
    """Parses `host:port`, with an IPv6 host in brackets. Raises ValueError."""
    host, _, port = text.rpartition(":")
    number = int(port)
    if not host or not 0 <= number < 65_536:
        raise ValueError(f"{text!r} is not a valid host:port")
    return host.strip("[]"), number


def reachable(text: str) -> tuple[str, int]:
    """Parses a `host:port` for clients. Raises ValueError for one that names no machine, such as 0.0.0.0:80."""
    host, port = host_and_port(text)
    if not port or _is_unspecified(host):
        raise ValueError(f"{text!r} is not an address that clients can reach")
    return host, port


def _is_unspecified(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _scheme(host: str) -> definition.AddressScheme:
    try:
        found: IPv4Address | IPv6Address = ip_address(host)
    except ValueError:
        return definition.DOMAIN_NAME
    return definition.IPv4 if found.version == 4 else definition.IPv6
