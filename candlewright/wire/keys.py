"""Names of clients, and the file that holds a client's key. Keys are CURVE keys as Z85 text of 40 characters."""

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from candlewright.wire.errors import ConfigurationError, InvalidRequest

KEY_CHARACTERS = 40
MAX_NAME_BYTES = 64
#: Prefixes of ids that the platform generates.
RESERVED = ("relay.ohlc", "subscription:")
_FORBIDDEN = "#:/"
_NO_Z85 = frozenset("\"'\\,;_`|~ \t\r\n")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A client's credentials: its name, its key pair, and the platform's public key."""

    name: str
    public: str
    secret: str
    platform: str

    def __repr__(self) -> str:
        return f"ClientKey(name={self.name!r})"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "ClientKey":
        """Raises ConfigurationError unless the file was made by `candlewright keys new`."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"the key {os.fspath(path)} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ConfigurationError(f"{os.fspath(path)} is not a key file of `candlewright keys new`") from error
        fields = [values.get(name) for name in ("name", "public", "secret", "platform")]
        name, public, secret, platform = (field if isinstance(field, str) else "" for field in fields)
        if not name or not all(map(is_key, (public, secret, platform))):
            raise ConfigurationError(f"{os.fspath(path)} is not a key file of `candlewright keys new`")
        return cls(name, public, secret, platform)

    def text(self) -> str:
        """The file's content. No key has a quote or a backslash in it."""
        lines = [f"{field} = '{getattr(self, field)}'" for field in ("public", "secret", "platform")]
        name = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return "\n".join(["# A candlewright client's key: keep it secret.", f'name = "{name}"', *lines, ""])


def is_key(text: str) -> bool:
    return len(text) == KEY_CHARACTERS and text.isascii() and text.isprintable() and not _NO_Z85 & set(text)


def check_name(name: str, others: Iterable[str]) -> None:
    """Raises InvalidRequest with a sentence. Ids belong to the client whose name they begin with, so no name may begin
    with another.
    """
    if not name:
        raise InvalidRequest("The name of a key is empty.")
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        raise InvalidRequest(f"The name of a key has at most {MAX_NAME_BYTES} bytes.")
    if not name.isprintable() or name != name.strip() or any(character in name for character in _FORBIDDEN):
        raise InvalidRequest(
            f"The name {name!r} is not allowed: printable characters without '#', ':' and '/', no space at its ends."
        )
    if name.startswith("."):
        raise InvalidRequest(f"The name {name!r} begins with a dot.")
    for reserved in RESERVED:
        if name.startswith(reserved) or reserved.startswith(name):
            raise InvalidRequest(f"The name {name!r} is not allowed: the platform's own ids begin with {reserved!r}.")
    for other in sorted(others):
        if name == other:
            raise InvalidRequest(f"There is a key named {name!r} already.")
        if other.startswith(name):
            raise InvalidRequest(f"The name {name!r} is a prefix of {other!r}, whose topics it would receive.")
        if name.startswith(other):
            raise InvalidRequest(f"The name {name!r} begins with {other!r}, which would receive its topics.")
