"""The folder of keys: the platform's own pair, and the public key of each client that is let in.

`platform.key` holds the pair (mode 0600); `NAME.pub` a client's public key. What the folder holds is what counts: a key
that is made or removed needs no restart.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zmq

from candlewright.wire.errors import ConfigurationError, InvalidRequest
from candlewright.wire.keys import ClientKey, check_name, is_key

_PLATFORM = "platform.key"
_SUFFIX = ".pub"
#: The clock of a file system is coarse: a folder that changed this lately may change again unseen.
_FRESH_NS = 2_000_000_000
_LOOK_SECONDS = 0.2


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
        """The platform's own pair, made when there is none."""
        with self._locked():
            return self._platform()

    def new(self, name: str, file: Path) -> ClientKey:
        """Make a key, let it in, and write the client's part to `file` (mode 0600), which must not exist.

        Raises InvalidRequest with a sentence for a name that is not allowed.
        """
        with self._locked():
            check_name(name, self._named())
            public, secret = (part.decode() for part in zmq.curve_keypair())
            key = ClientKey(name, public, secret, self._platform().public)
            _write(file, key.text(), 0o600)
            try:
                # No reader finds half of it meanwhile.
                half = self.path / f".{name}"
                half.unlink(missing_ok=True)
                _write(half, public + "\n", 0o644)
                half.replace(self.path / (name + _SUFFIX))
            except (OSError, ConfigurationError):
                file.unlink(missing_ok=True)
                raise
        return key

    def remove(self, name: str) -> None:
        """Raises InvalidRequest when there is no such key."""
        with self._locked():
            if name not in self._named():
                raise InvalidRequest(f"There is no key named {name!r}.")
            try:
                (self.path / (name + _SUFFIX)).unlink()
            except OSError as error:
                raise _failed(self.path, error) from error

    def names(self) -> Mapping[str, str]:
        """Name of each client by its public key. A file that holds none is passed over."""
        found = {}
        for name in sorted(self._named()):
            try:
                public = (self.path / (name + _SUFFIX)).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                continue
            if is_key(public):
                found[public] = name
        return found

    def _named(self) -> set[str]:
        try:
            files = [file.name for file in self.path.iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise _failed(self.path, error) from error
        return {name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX) and name[0] != "."}

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
        """One at a time, over processes: two names that are prefixes of each other cannot both come in."""
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
    """What the folder says, for threads that ask often. `revocations` grows when a key is gone or became another."""

    def __init__(self, folder: KeyFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._names: Mapping[str, str] = folder.names()
        self.all_names: Sequence[str] = tuple(self._names.values())
        self._changed_ns = 0
        self._looked_at = 0.0
        self._barred: set[str] = set()
        self.revocations = 0

    def name_of(self, public: str, is_fresh: bool = False) -> str:
        """Empty for a key that is not let in. With `is_fresh` the folder is looked at now, not within 0.2 s."""
        self.refresh(is_fresh)
        return "" if public in self._barred else self._names.get(public, "")

    def bar(self, public: str) -> bool:
        """Let a key in no more for as long as this process runs. False where that is so already."""
        with self._lock:
            if public in self._barred:
                return False
            self._barred.add(public)
            self.revocations += 1
            return True

    def refresh(self, is_fresh: bool = True) -> None:
        """With a folder that cannot be read no client can connect."""
        with self._lock:
            now = time.monotonic()
            if not is_fresh and now - self._looked_at < _LOOK_SECONDS:
                return
            self._looked_at = now
            try:
                changed_ns = self._folder.path.stat().st_mtime_ns
                if changed_ns == self._changed_ns and time.time_ns() - changed_ns > _FRESH_NS:
                    return
                names = self._folder.names()
                self._changed_ns = changed_ns
            except (OSError, ConfigurationError):
                names, self._changed_ns = {}, 0
            if any(names.get(public) != name for public, name in self._names.items()):
                self.revocations += 1
            self._names = names
            self.all_names = tuple(names.values())


def _write(path: Path, text: str, mode: int) -> None:
    """A new file, whole or not at all."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise ConfigurationError(f"{path} is there already; choose another file") from error
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
