"""Settings of the HTTP API and the console."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from candlewright.settings import ConsoleAddress


class ConsoleSettings(ConsoleAddress):
    """Limits of the HTTP API, and the names under which browsers reach it."""

    model_config = ConfigDict(extra="forbid")

    #: Whether `up` starts the console.
    enabled: bool = True
    #: Additional host names under which it may be reached, such as a proxy's.
    hosts: tuple[str, ...] = ()
    #: Additional origins whose pages may call it.
    origins: tuple[str, ...] = ()
    #: Calls of one client, with bursts of ten times as many.
    requests_per_second: float = Field(100.0, gt=0)
    #: Live connections in all.
    max_streams: int = Field(4_000, ge=1)
    #: Largest body of a call.
    max_body_bytes: int = Field(1 << 20, ge=1 << 10)
    #: Most rows of one query's answer.
    sql_rows: int = Field(100_000, ge=1)
    #: Longest time of one query.
    sql_seconds: float = Field(30.0, gt=0)
    #: Most memory of one query.
    sql_memory_bytes: int = Field(512 << 20, ge=64 << 20)

    @field_validator("hosts")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in value if not name or set(name) & set("/:* ")]:
            raise ValueError(f"{wrong[0]!r} is not a host name: write it without scheme and port")
        return tuple(name.lower() for name in value)

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            parts = urlsplit(each)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
                raise ValueError(f"{each!r} is not an origin: write it as https://name or http://name:port")
        return tuple(each.lower() for each in value)

    @property
    def is_open(self) -> bool:
        """Whether only this machine can connect, so that no token is needed."""
        host = self.bind.rpartition(":")[0].strip("[]")
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False
