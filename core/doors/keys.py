"""The folder of keys: the platform's own pair, the public key of each client and ingestor, and hashes of tokens.

The folder is authoritative: adding or removing a key needs no restart. README.md has its layout.
"""

import fcntl
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import zmq

from candlewright.wire.errors import ConfigurationError, InvalidRequest
from candlewright.wire.keys import ClientKey, check_name, is_key

_PLATFORM = "platform.key"
_OWN = "own"
TOKEN_PREFIX = "cwt_"
_TOKEN_BYTES = 32
#: A file system's clock is coarse: a folder that changed this recently may change again unnoticed.
_FRESH_NS = 2_000_000_000
_LOOK_SECONDS = 0.2
_HEXADECIMAL = set("0123456789abcdef")


class Role(StrEnum):
    """The door that a key is for."""

    client = "client"
    ingestor = "ingestor"
    viewer = "viewer"
    operator = "operator"

    @property
    def suffix(self) -> str:
        """Of the file in the folder of keys."""
        return ".pub" if self is Role.client else f".{self}"

    @property
    def has_token(self) -> bool:
        """HTTP takes a token, ZeroMQ a key pair."""
        return self in (Role.viewer, Role.operator)

    @property
    def owns_ids(self) -> bool:
        """Ids that begin with the name are the holder's own."""
        return self is not Role.ingestor


@dataclass(frozen=True, slots=True)
class Entry:
    """`public`: the public key; empty for a token."""

    name: str
    role: Role
    public: str


@dataclass(frozen=True, slots=True)
class Pair:
    public: str
    secret: str

    def __repr__(self) -> str:
        return f"Pair(public={self.public!r})"


class KeyFolder:
    """All methods raise ConfigurationError when the folder cannot be read or written."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "keys"

    def platform(self) -> Pair:
        """The platform's own pair, created if missing."""
        with self._locked():
            return self._platform()

    def new(self, name: str, file: Path, role: Role = Role.client) -> ClientKey:
        """Make a key, permit it, and write the holder's file `file` (mode 0600), which must not exist.

        Raises InvalidRequest with a sentence for an invalid name, or for a role with tokens.
        """
        if role.has_token:
            raise InvalidRequest(f"The role {role} has a token and no key.")
        with self._locked():
            self._check_name(name, role)
            return self._new(name, file, role)

    def new_token(self, name: str, role: Role) -> str:
        """Make a token for HTTP; only its hash is kept. Raises InvalidRequest like `new`."""
        if not role.has_token:
            raise InvalidRequest(f"The role {role} has a key and no token.")
        token = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        with self._locked():
            self._check_name(name, role)
            self._put(name, role, hash_of(token))
        return token

    def own(self, name: str, role: Role) -> Path:
        """The file with a key of the platform's own parts, created if missing."""
        file = self.path / _OWN / f"{name}.key"
        with self._locked():
            known = self._entries()
            if file.exists() and any(entry.name == name and entry.role is role for entry in known):
                return file
            if any(entry.name == name for entry in known):
                raise ConfigurationError(
                    f"the key {name!r} exists, but {file} does not: remove the key, or name its file"
                )
            try:
                file.parent.mkdir(mode=0o700, exist_ok=True)
                file.unlink(missing_ok=True)
            except OSError as error:
                raise _failed(file, error) from error
            self._new(name, file, role)
        return file

    def remove(self, name: str) -> None:
        """Raises InvalidRequest if the key does not exist."""
        with self._locked():
            found = [entry for entry in self._entries() if entry.name == name]
            if not found:
                raise InvalidRequest(f"The key {name!r} does not exist.")
            try:
                for entry in found:
                    (self.path / (name + entry.role.suffix)).unlink()
            except OSError as error:
                raise _failed(self.path, error) from error

    def entries(self) -> list[Entry]:
        """By name. A file without a key or hash is skipped."""
        return [
            Entry(entry.name, entry.role, "" if entry.role.has_token else text)
            for entry in sorted(self._entries(), key=lambda entry: entry.name)
            if (text := self._text_of(entry))
        ]

    def names(self, role: Role = Role.client) -> Mapping[str, str]:
        """Name of each holder by its public key, or by the hash of its token."""
        found = {self._text_of(entry): entry.name for entry in self._entries() if entry.role is role}
        return {text: name for text, name in sorted(found.items(), key=lambda item: item[1]) if text}

    def _new(self, name: str, file: Path, role: Role) -> ClientKey:
        public, secret = (part.decode() for part in zmq.curve_keypair())
        key = ClientKey(name, public, secret, self._platform().public)
        _write(file, key.text(), 0o600)
        try:
            self._put(name, role, public)
        except ConfigurationError:
            file.unlink(missing_ok=True)
            raise
        return key

    def _put(self, name: str, role: Role, text: str) -> None:
        """Atomically: readers never see a partial file."""
        half = self.path / f".{name}"
        try:
            half.unlink(missing_ok=True)
            _write(half, text + "\n", 0o644)
            half.replace(self.path / (name + role.suffix))
        except OSError as error:
            raise _failed(self.path, error) from error

    def _check_name(self, name: str, role: Role) -> None:
        known = self._entries()
        if any(entry.name == name for entry in known):
            raise InvalidRequest(f"There is a key named {name!r} already.")
        check_name(name, [entry.name for entry in known if entry.role.owns_ids and role.owns_ids])

    def _entries(self) -> list[Entry]:
        """Without public keys."""
        try:
            files = [file.name for file in self.path.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(self.path, error) from error
        return [
            Entry(file.removesuffix(role.suffix), role, "")
            for file in files
            for role in Role
            if file.endswith(role.suffix) and file[0] != "."
        ]

    def _text_of(self, entry: Entry) -> str:
        """The public key or hash; empty where the file holds none."""
        try:
            text = (self.path / (entry.name + entry.role.suffix)).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""
        return text if (_is_hash(text) if entry.role.has_token else is_key(text)) else ""

    def _platform(self) -> Pair:
        path = self.path / _PLATFORM
        try:
            lines = path.read_text(encoding="ascii").split("\n")
        except FileNotFoundError:
            pair = Pair(*(part.decode() for part in zmq.curve_keypair()))
            _write(path, f"{pair.public}\n{pair.secret}\n", 0o600)
            return pair
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the platform's key {path} cannot be read") from error
        if len(lines) < 2 or not is_key(lines[0]) or not is_key(lines[1]):
            raise ConfigurationError(f"{path} is not a key of the platform")
        return Pair(lines[0], lines[1])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Serialised over processes: two names of which one is a prefix of the other cannot both be added."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise _failed(self.path, error) from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


class KnownKeys:
    """The keys of one role, for threads that ask often. `revocations` grows when a key is removed or replaced."""

    def __init__(self, folder: KeyFolder, role: Role = Role.client) -> None:
        self._folder = folder
        self._role = role
        self._lock = threading.Lock()
        self._names: Mapping[str, str] = folder.names(role)
        self.all_names: Sequence[str] = tuple(self._names.values())
        self._changed_ns = 0
        self._looked_at = 0.0
        self._barred: set[str] = set()
        self.revocations = 0

    def name_of(self, public: str, *, is_fresh: bool = False) -> str:
        """Empty for a key that is not permitted. With `is_fresh`, the folder is read now, not within 0.2 s."""
        self.refresh(is_fresh=is_fresh)
        return "" if public in self._barred else self._names.get(public, "")

    def bar(self, public: str) -> bool:
        """Reject a key while this process runs. False if it is already rejected."""
        with self._lock:
            if public in self._barred:
                return False
            self._barred.add(public)
            self.revocations += 1
            return True

    def refresh(self, *, is_fresh: bool = True) -> None:
        """If the folder cannot be read, no client can connect."""
        with self._lock:
            now = time.monotonic()
            if not is_fresh and now - self._looked_at < _LOOK_SECONDS:
                return
            self._looked_at = now
            try:
                changed_ns = self._folder.path.stat().st_mtime_ns
                if changed_ns == self._changed_ns and time.time_ns() - changed_ns > _FRESH_NS:
                    return
                names = self._folder.names(self._role)
                self._changed_ns = changed_ns
            except (OSError, ConfigurationError):
                names, self._changed_ns = {}, 0
            if any(names.get(public) != name for public, name in self._names.items()):
                self.revocations += 1
            self._names = names
            self.all_names = tuple(names.values())


def hash_of(token: str) -> str:
    """The stored hash of a token."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def _is_hash(text: str) -> bool:
    head, _, digits = text.partition(":")
    return head == "sha256" and len(digits) == 64 and set(digits) <= _HEXADECIMAL


def _write(path: Path, text: str, mode: int) -> None:
    """A new file, whole or not at all."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise ConfigurationError(f"{path} already exists; choose another file") from error
    except OSError as error:
        raise _failed(path, error) from error
    try:
        with os.fdopen(file, "w", encoding="utf-8") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _failed(path, error) from error


def _failed(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{path} cannot be read or written: {error.strerror}")
