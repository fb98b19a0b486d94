"""The addresses to which an alert may be sent: those of the public internet, unless the destination allows private
ones.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from alerts.senders.sender import DeliveryFailed, Failure

__all__ = ["PublicResolver", "check_literal", "is_public"]

_REFUSED = "the address is private (allow_private = true allows it)"
_NAT64 = ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether a literal IP address belongs to the public internet."""
    try:
        found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        # Addresses that embed or reach an IPv4 address: mapped, 6to4, Teredo, NAT64.
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and found in _NAT64:
            inner = IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


def check_literal(host: str) -> None:
    """Check a host that is an IP address, which is never resolved. Raises DeliveryFailed."""
    try:
        ip_address(host)
    except ValueError:
        return
    if not is_public(host):
        raise DeliveryFailed(_REFUSED, Failure.PRIVATE)


class PublicResolver(AbstractResolver):
    """Resolves names only to public addresses, at the moment of connecting, so that a name cannot change after the
    check.
    """

    def __init__(self) -> None:
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        allowed = [each for each in found if is_public(each["host"])]
        if not allowed:
            raise DeliveryFailed(_REFUSED, Failure.PRIVATE)
        return allowed

    async def close(self) -> None:
        await self._inner.close()
