"""Which ports the platform needs, and whether they are free."""

import errno
import random
import re
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from candlewright.settings import PREFIX
from candlewright.wire.errors import ConfigurationError
from core.settings import Settings

REDIS_PORT = 6379
#: How long one connection attempt may take.
PATIENCE_SECONDS = 2.0
_BELOW_EPHEMERAL = (15_000, 32_768)
_TRIES = 1_000
_random = random.SystemRandom()
_ADDRESS = re.compile(r"^(?:tcp://)?(?P<host>\*|\[[^\]]*\]|[^:/]*):(?P<port>\d+)$")


@dataclass(frozen=True, slots=True)
class Bind:
    """`setting` is the dotted name of what is bound to `address`."""

    setting: str
    address: str

    @property
    def variable(self) -> str:
        return PREFIX + self.setting.upper().replace(".", "__")


def binds_of(settings: Settings, parts: Iterable[str]) -> list[Bind]:
    """The ports of the named parts and of the supervisor itself."""
    of_part = {
        "broker": [Bind("broker.bind", settings.broker.bind)],
        "relay": [
            Bind("relay.requests_bind", settings.relay.requests_bind),
            Bind("relay.notifications_bind", settings.relay.notifications_bind),
        ],
        "flink_replacement_spark": [Bind("spark.connect_bind", settings.spark.connect_bind)],
        "console": [Bind("console.bind", settings.console.bind)],
    }
    found = [bind for part in parts for bind in of_part.get(part, [])]
    return [Bind("http.bind", settings.http.bind), *found]


def check(binds: Sequence[Bind], patience_seconds: float) -> None:
    """Raises ConfigurationError with the first port that stays taken, and its setting."""
    give_up = time.monotonic() + patience_seconds
    for bind in binds:
        while (reason := _why_not(bind.address)) is not None:
            if time.monotonic() >= give_up:
                raise ConfigurationError(
                    f"{bind.setting} = {bind.address}: {reason}; stop what listens there, or set {bind.variable}"
                )
            # The processes of a killed platform release their ports once the kernel has removed them.
            time.sleep(0.1)


def _why_not(address: str) -> str | None:
    match = _ADDRESS.match(address)
    if match is None or match["port"] == "0":
        return None
    host = match["host"].strip("[]")
    host = "" if host == "*" else host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(match["port"])))
        except OSError as error:
            return f"port {match['port']} is taken" if error.errno == errno.EADDRINUSE else str(error.strerror)
    return None


def answers(url: str) -> bool:
    """Whether something listens at `scheme://host:port`; true if the URL names no port to try."""
    parts = urlsplit(url)
    if parts.hostname is None:
        return True
    try:
        socket.create_connection((parts.hostname, parts.port or REDIS_PORT), PATIENCE_SECONDS).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago. It is below the range that the kernel uses for connections and
    port 0, so no connection takes it before the part that will listen there has started, which for Spark is many
    seconds later. Raises ConfigurationError if there is none.
    """
    for _ in range(_TRIES):
        port = _random.randrange(*_BELOW_EPHEMERAL)
        if (reason := _why_not(f"127.0.0.1:{port}")) is None:
            return port
    raise ConfigurationError(f"no port on loopback is free: {reason}")
