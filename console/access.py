"""Who may ask what: hosts, origins, tokens, and how often. Pure: time and tokens come in as arguments."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from console.problems import Problem
from core.doors import Holder, Role
from core.settings_console import ConsoleSettings

__all__ = ["Asked", "Gate", "Rates", "Who"]

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: Clients whose rate is remembered; the one that was longest silent is forgotten first.
_KNOWN_CLIENTS = 10_000
#: Calls at once, as seconds of the rate.
_BURST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call shows of itself. Empty where a header is absent. A browser sends the token of its session by itself,
    whichever page made it call.
    """

    host: str
    origin: str
    token: str
    peer: str
    #: The token is of the cookie.
    is_session: bool = False
    #: It may change something, or stays open.
    is_change: bool = False


@dataclass(frozen=True, slots=True)
class Who:
    """`name`: of the token; for a call without one, the address that it came from."""

    name: str
    role: Role
    has_token: bool = False

    def may(self, needed: Role) -> bool:
        """A viewer reads and tries things out; an operator also changes what the platform does."""
        return self.role is Role.operator or needed is Role.viewer


class Gate:
    """`find`: whose a token is."""

    def __init__(self, settings: ConsoleSettings, find: Callable[[str], Holder | None]) -> None:
        self._settings = settings
        self._find = find

    def check_place(self, asked: Asked) -> None:
        """Raises Problem for a name that is not this server's, and for pages of other sites.

        A page elsewhere can make a browser call any address, and by a name of its own that it points at this machine
        (DNS rebinding) read the answers too.
        """
        name = _name_of(asked.host)
        if not self._is_own(name):
            raise Problem(
                421,
                "unknown_host",
                f"this server is not {name or 'a call without a Host header'}; add the name to console.hosts",
            )
        if asked.origin and not self._is_own_origin(asked):
            raise Problem(
                403, "foreign_origin", f"pages of {asked.origin} may not call this server; see console.origins"
            )
        if asked.is_session and asked.is_change and not asked.origin:
            raise Problem(
                403, "foreign_origin", "a call with a session's cookie that changes something needs an Origin"
            )

    def identify(self, asked: Asked) -> Who:
        """Raises Problem unless the call has a token, or needs none."""
        if asked.token:
            holder = self._find(asked.token)
            if holder is not None:
                return Who(holder.name, holder.role, has_token=True)
            # A browser sends cookies to every port of a host: this one may be another platform's.
            if not (asked.is_session and self._settings.is_open):
                raise _unauthorised("this token is not known, or was removed")
        if not self._settings.is_open:
            raise _unauthorised("a token is needed here: candlewright keys new NAME --role viewer")
        return Who(asked.peer, Role.operator)

    def _is_own(self, name: str) -> bool:
        if name in _LOOPBACK_NAMES or name in self._settings.hosts:
            return True
        if self._settings.is_open:
            return False
        # An address cannot be rebound, and which addresses this machine has is not known here.
        return _is_address(name) or name == _name_of(self._settings.bind)

    def _is_own_origin(self, asked: Asked) -> bool:
        origin = asked.origin.lower()
        parts = urlsplit(origin)
        same = parts.scheme in ("http", "https") and parts.netloc == asked.host.lower()
        return same or origin in self._settings.origins


class Rates:
    """A bucket for each client: `per_second` calls, and ten seconds' worth at once."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = per_second * _BURST_SECONDS
        #: What is left of each, and when that was.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, client: str, now: float) -> float:
        """0 = the call is counted and may be served; else how long until one may."""
        left, at = self._left.pop(client, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_second)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _KNOWN_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._per_second


def _unauthorised(text: str) -> Problem:
    return Problem(401, "unauthorised", text, headers={"WWW-Authenticate": 'Bearer realm="candlewright"'})


def _name_of(host: str) -> str:
    """Without the port, in lower case."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
