"""An import as the command requests it from the driver, through the table `imports` of the bus."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

_ID = re.compile(r"[0-9a-f]{32}")
#: Rows of the table are kept this long, and so are files that no driver has read.
KEEP_SECONDS = 86_400.0

State = Literal["asked", "running", "done", "failed"]


@dataclass(kw_only=True, frozen=True, slots=True)
class Import:
    """Of the candles, `new` were written, `same` were stored before, `different` are stored with other values, and of
    `absent` the exchange has said that it has none: these two kinds are not written. `filled_gaps`: gaps of live
    trades that it repaired. `error`: why it failed, or what it waits for.
    """

    import_id: str
    state: State = "asked"
    rows: int = 0
    compared: int = 0
    new: int = 0
    same: int = 0
    different: int = 0
    absent: int = 0
    filled_gaps: int = 0
    error: str = ""

    @classmethod
    def from_bytes(cls, value: bytes) -> "Import":
        """Raises ValueError or TypeError for invalid bytes."""
        found = cls(**orjson.loads(value))
        if not _ID.fullmatch(found.import_id):
            raise ValueError(f"{found.import_id!r} is not the id of an import")
        return found

    def to_bytes(self) -> bytes:
        return orjson.dumps(self)

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed")


def folder_of(data_dir: Path) -> Path:
    return data_dir / "imports"


def rows_of(data_dir: Path, import_id: str) -> Path:
    """The candles of an import, as Parquet."""
    return folder_of(data_dir) / f"{import_id}.parquet"


def differences_of(data_dir: Path, import_id: str) -> Path:
    """The rows that were not written, once an import is done."""
    return folder_of(data_dir) / f"{import_id}.differences.parquet"
