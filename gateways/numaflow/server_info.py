"""The file next to a source's socket from which Numaflow learns which SDK serves it."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Literally these letters, after the JSON: readers wait for them.
TRAILER = "U+005C__END__"
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(.*)")


@dataclass(frozen=True, slots=True)
class ServerInfo:
    protocol: str
    language: str
    minimum_numaflow_version: str
    version: str
    metadata: Mapping[str, str] = field(default_factory=dict)


#: NackFn is called from this version on; "-z" excludes the release candidates from the minimum.
OURS = ServerInfo("uds", "python", "1.4.0-z", "0.11.0")


def write(path: Path, info: ServerInfo) -> None:
    """Atomic for readers. Raises OSError."""
    fields = {
        "protocol": info.protocol,
        "language": info.language,
        "minimum_numaflow_version": info.minimum_numaflow_version,
        "version": info.version,
        "metadata": dict(info.metadata),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readers take the server type from the name before "-server-info": an unfinished file must not have such a name.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(fields) + TRAILER)
    temporary.replace(path)


def parse(text: str) -> ServerInfo | None:
    """None while the trailer is missing. Raises ValueError for an invalid server info file."""
    if not text.endswith(TRAILER):
        return None
    fields = json.loads(text.removesuffix(TRAILER))
    if not isinstance(fields, dict):
        raise ValueError("the server info is not a JSON object")

    def text_of(name: str) -> str:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{name} of the server info is not a string")
        return value or ""

    metadata = fields.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("metadata of the server info is not an object")
    return ServerInfo(
        text_of("protocol"),
        text_of("language"),
        text_of("minimum_numaflow_version"),
        text_of("version"),
        {str(key): str(value) for key, value in metadata.items()},
    )


def version_of(text: str) -> tuple[int, int, int] | None:
    """The release that `text` names; None if it does not name one."""
    match = _VERSION.fullmatch(text.strip())
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None
