"""Settings of the HTTP API and the console."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from candlewright.settings import ConsoleAddress


class ConsoleSettings(ConsoleAddress):
    """`bind`: on an address other than loopback every call needs a token; `hosts`, `origins`: additional names under
    which browsers may reach it, such as a proxy's; `requests_per_second`: of one client, with bursts of ten times as
    many; `max_streams`: live connections in all; `sql_*`: limits of one query.
    """

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    requests_per_second: float = Field(100.0, gt=0)
    max_streams: int = Field(4_000, ge=1)
    max_body_bytes: int = Field(1 << 20, ge=1 << 10)
    sql_rows: int = Field(100_000, ge=1)
    sql_seconds: float = Field(30.0, gt=0)
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
