"""Access control: hosts, origins, tokens and rates. Pure: time and tokens are arguments."""

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
#: The most clients whose rate is remembered; the one idle for longest is forgotten first.
_KNOWN_CLIENTS = 10_000
#: The size of a burst, in seconds of the rate.
_BURST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a call that access control uses; empty for a missing header. A browser sends its session's token
    automatically, whichever page made the call.
    """

    host: str
    origin: str
    token: str
    peer: str
    #: Whether the token comes from the cookie.
    is_session: bool = False
    #: Whether the call may change something, or keeps its connection open.
    is_change: bool = False


@dataclass(frozen=True, slots=True)
class Who:
    """The caller. `name`: of the token; for a call without a token, its network address."""

    name: str
    role: Role
    has_token: bool = False

    def may(self, needed: Role) -> bool:
        """A viewer reads and tries things out; an operator also changes what the platform does."""
        return self.role is Role.operator or needed is Role.viewer


class Gate:
    """`find`: returns the holder of a token."""

    def __init__(self, settings: ConsoleSettings, find: Callable[[str], Holder | None]) -> None:
        self._settings = settings
        self._find = find

    def check_place(self, asked: Asked) -> None:
        """Raises Problem for a host name that is not this server's, and for pages of other sites.

        A page of another site can make a browser call any address. With DNS rebinding (a name of its own that resolves
        to this machine) it could also read the answers.
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
        """Raises Problem unless the call has a token or needs none."""
        if asked.token:
            holder = self._find(asked.token)
            if holder is not None:
                return Who(holder.name, holder.role, has_token=True)
            # A browser sends cookies to every port of a host, so this one may belong to another platform.
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
        # A literal address cannot be rebound, and this machine's addresses are not known here.
        return _is_address(name) or name == _name_of(self._settings.bind)

    def _is_own_origin(self, asked: Asked) -> bool:
        origin = asked.origin.lower()
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        same = parts.scheme in ("http", "https") and parts.netloc == asked.host.lower()
        return same or origin in self._settings.origins


class Rates:
    """A token bucket for each client: `per_second` calls, and a burst of ten seconds' worth."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = per_second * _BURST_SECONDS
        #: The remaining calls of each client, and the time of that count.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, client: str, now: float) -> float:
        """0 = the call is counted and may be served; otherwise the seconds until one may be."""
        left, at = self._left.pop(client, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_second)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _KNOWN_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._per_second


def _unauthorised(text: str) -> Problem:
    return Problem(401, "unauthorised", text, headers={"WWW-Authenticate": 'Bearer realm="candlewright"'})


def _name_of(host: str) -> str:
    """The host name without the port, in lower case."""
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
