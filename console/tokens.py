"""Tokens by which people and programs are let in, each with a role. Only their hashes are kept.

`NAME.token` in the folder of keys holds the role and the SHA-256 of a token. Tokens are random and long, so a plain
hash is enough. A token that is made or removed needs no restart.
"""

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from candlewright.wire.errors import ConfigurationError, InvalidRequest
from candlewright.wire.keys import check_name

__all__ = ["KnownTokens", "Role", "Token", "TokenFolder"]

_PREFIX = "cw_"
_SUFFIX = ".token"
_FRESH_SECONDS = 1.0


class Role(StrEnum):
    """A viewer reads and tries things out; an operator also changes what the platform does."""

    VIEWER = "viewer"
    OPERATOR = "operator"

    def may(self, needed: "Role") -> bool:
        return self is Role.OPERATOR or needed is Role.VIEWER


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of one: never the token itself."""

    name: str
    role: Role
    digest: str


class TokenFolder:
    """All methods raise ConfigurationError when the folder cannot be read or written."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "keys"

    def new(self, name: str, role: Role) -> str:
        """The token, which is nowhere else. Raises InvalidRequest for a name that is not allowed, or taken."""
        check_name(name, ())
        text = _PREFIX + secrets.token_urlsafe(32)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._file(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InvalidRequest(f"There is a token named {name!r} already.") from None
        except OSError as error:
            raise self._failed(error) from error
        with os.fdopen(file, "w", encoding="ascii") as sink:
            sink.write(f"{role} {_digest(text)}\n")
            sink.flush()
            os.fsync(sink.fileno())
        return text

    def remove(self, name: str) -> bool:
        """Whether there was one."""
        try:
            self._file(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failed(error) from error
        return True

    def all(self) -> list[Token]:
        """By name. A file that holds none is passed over."""
        try:
            files = sorted(self.path.glob(f"*{_SUFFIX}"))
        except OSError as error:
            raise self._failed(error) from error
        return [token for file in files if (token := _read(file)) is not None]

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"

    def _failed(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"{self.path} cannot be read or written: {error.strerror}")


class KnownTokens:
    """What the folder has, looked at once a second at most."""

    def __init__(self, folder: TokenFolder) -> None:
        self._folder = folder
        self._by_digest: Mapping[str, Token] = {}
        self._looked_at = -_FRESH_SECONDS

    def find(self, text: str) -> Token | None:
        """None for a token that is unknown, or was removed."""
        now = time.monotonic()
        if now - self._looked_at >= _FRESH_SECONDS:
            self._looked_at = now
            try:
                self._by_digest = {token.digest: token for token in self._folder.all()}
            except ConfigurationError:
                # Without the folder no client is let in.
                self._by_digest = {}
        digest = _digest(text)
        found = self._by_digest.get(digest)
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(file: Path) -> Token | None:
    try:
        role, digest = file.read_text(encoding="ascii").split()
        return Token(file.name.removesuffix(_SUFFIX), Role(role), digest)
    except (OSError, ValueError):
        return None
