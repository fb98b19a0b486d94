"""A Merkle tree hash (RFC 6962, section 2.1): that an entry is part of it can be proven with a few other hashes."""

import hashlib
import json
from collections.abc import Sequence

from datasets.manifest.document import File

_LEAF, _NODE = b"\x00", b"\x01"


def root_of(files: Sequence[File]) -> str:
    """The root hash over the files, each followed by its partitions."""
    return _root([_leaf(entry) for file in files for entry in _entries(file)]).hex()


def _entries(file: File) -> list[list[object]]:
    own: list[object] = [file.path, file.bytes, file.sha256]
    return [own, *([file.path, each.name, each.rows, each.sha256] for each in file.partitions)]


def _leaf(entry: Sequence[object]) -> bytes:
    return hashlib.sha256(_LEAF + json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()).digest()


def _root(hashes: list[bytes]) -> bytes:
    """RFC 6962 splits at the largest power of two below the length, which equals pairing neighbours level by level and
    carrying an odd last one over.
    """
    if not hashes:
        return hashlib.sha256().digest()
    while len(hashes) > 1:
        pairs = [
            hashlib.sha256(_NODE + left + right).digest()
            for left, right in zip(hashes[::2], hashes[1::2], strict=False)
        ]
        hashes = pairs + hashes[len(pairs) * 2 :]
    return hashes[0]
