"""The platform's signing key: Ed25519, created in the data directory on first use."""

import contextlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from candlewright.wire.errors import ConfigurationError

#: 32 bytes in hexadecimal.
KEY_FILE = "signing.key"


def public_key(data_dir: Path) -> str:
    """The platform's public key in hexadecimal."""
    return _hex(_private(data_dir).public_key())


def sign(data_dir: Path, content: bytes) -> tuple[str, str]:
    """Sign `content`; returns the public key and the signature, in hexadecimal."""
    private = _private(data_dir)
    return _hex(private.public_key()), private.sign(content).hex()


def is_signed(content: bytes, key: str, signature: str) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _hex(key: Ed25519PublicKey) -> str:
    return key.public_bytes_raw().hex()


def _private(data_dir: Path) -> Ed25519PrivateKey:
    file = data_dir / KEY_FILE
    try:
        if not file.exists():
            _make(file)
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text().strip()))
    except ValueError as error:
        raise ConfigurationError(f"{file} does not hold a signing key: restore it, or move it away") from error
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read or written: {error.strerror}") from error


def _make(file: Path) -> None:
    """Create the key file atomically; if two processes create it at once, one key remains."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as sink:
            sink.write(Ed25519PrivateKey.generate().private_bytes_raw().hex() + "\n")
            sink.flush()
            os.fsync(sink.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
