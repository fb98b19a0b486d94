"""Files of unknown origin: bounded, whole, and read as text first, so that an error can name its line."""

import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Sequence
from csv import reader
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from candlewright.wire.errors import CandlewrightError

#: Of a file, unpacked; and candles of one import, which are compared and committed together.
MAX_BYTES = 1 << 30
MAX_ROWS = 1_000_000
_NUMBER = r"^ *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})? *$"
_WRONG_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_SHOWN = 60


class BadFile(CandlewrightError):
    """A file that cannot be imported; `place` is a line or a row of it, or empty."""

    def __init__(self, file: Path, reason: str, place: str = "") -> None:
        self.file, self.reason, self.place = file, reason, place
        super().__init__(f"{file}{f', {place}' if place else ''}: {reason}")


@dataclass(frozen=True, slots=True)
class Lines:
    """The columns of a file as text. `first`: the number of the first of them in the file."""

    file: Path
    table: pa.Table
    first: int = 1
    unit: str = "line"

    def refuse(self, is_bad: "NDArray[np.bool_]", reason: str, value_of: str = "") -> None:
        """Raises BadFile for the first row where `is_bad`; `{}` in `reason` is its value in the column `value_of`."""
        places = np.flatnonzero(is_bad)
        if len(places):
            index = int(places[0])
            value = repr(str(self.table[value_of][index])[:_SHOWN]) if value_of else ""
            raise BadFile(self.file, reason.format(value), self.place(index))

    def place(self, index: int) -> str:
        return f"{self.unit} {self.first + index:,}"

    def numbers(self, name: str) -> "NDArray[np.float64]":
        """Raises BadFile for what is not a finite number."""
        column = self.table[name]
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            found = column.cast(pa.float64()).fill_null(np.nan).to_numpy()
        else:
            self.refuse(~_matches(column, _NUMBER), f"{name} is not a number: {{}}", name)
            found = pc.utf8_trim_whitespace(column).cast(pa.float64()).to_numpy()
        self.refuse(~np.isfinite(found), f"{name} is not a finite number: {{}}", name)
        return np.asarray(found, dtype=np.float64)

    def integers(self, name: str) -> "NDArray[np.int64]":
        """Raises BadFile for what is not a whole number of at most 18 digits."""
        self.refuse(~_matches(self.table[name], r"^ *[0-9]{1,18} *$"), f"{name} is not a whole number: {{}}", name)
        found = pc.utf8_trim_whitespace(self.table[name]).cast(pa.int64()).to_numpy()
        return np.asarray(found, dtype=np.int64)


def _matches(column: pa.ChunkedArray, pattern: str) -> "NDArray[np.bool_]":
    found: NDArray[np.bool_] = pc.match_substring_regex(column, pattern).fill_null(False).to_numpy()
    return found


def content_of(file: Path) -> bytes:
    """Of a file, or of the only one in a zip file. Raises BadFile."""
    try:
        with file.open("rb") as opened:
            is_zip = opened.read(4) == b"PK\x03\x04" or file.suffix.lower() == ".zip"
            if not is_zip:
                opened.seek(0)
                content = opened.read(MAX_BYTES + 1)
                return _bounded(file, content)
        return _unpacked(file)
    except OSError as error:
        raise BadFile(file, error.strerror or str(error)) from error


def _bounded(file: Path, content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise BadFile(file, f"it has more than {MAX_BYTES >> 20:,} MiB; import it in parts")
    return content


def _unpacked(file: Path) -> bytes:
    try:
        with zipfile.ZipFile(file) as packed:
            members = [each for each in packed.infolist() if not each.is_dir()]
            if len(members) != 1:
                names = ", ".join(each.filename for each in members[:3])
                raise BadFile(file, f"it holds {len(members)} files ({names} …): unpack it and name those you want")
            member = members[0]
            if member.flag_bits & 1:
                raise BadFile(file, "it is encrypted")
            if member.file_size > MAX_BYTES:
                raise BadFile(file, f"it unpacks to {member.file_size >> 20:,} MiB, over {MAX_BYTES >> 20:,}")
            with packed.open(member) as opened:
                return _bounded(file, opened.read(MAX_BYTES + 1))
    # The zip module's own words for damage: also an unknown compression (NotImplementedError) and a wrong password.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BadFile(file, f"it is not a whole zip file: {error}") from error


def read_lines(file: Path, content: bytes, names: Sequence[str] | None = None) -> Lines:
    """`names`: the columns of a file that should have no header; if it has one anyway, the header is skipped. Without
    `names`, the first line names the columns. Raises BadFile.
    """
    if not content.strip():
        raise BadFile(file, "it is empty")
    has_header = names is None or not content.lstrip(b"\xef\xbb\xbf \"'")[:1].isdigit()
    known = names or _header(file, content)
    try:
        table = csv.read_csv(
            io.BytesIO(content),
            csv.ReadOptions(use_threads=False, column_names=known, skip_rows=int(has_header)),
            csv.ParseOptions(newlines_in_values=False, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=dict.fromkeys(known, pa.string()), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        if (found := _WRONG_WIDTH.search(str(error))) is not None:
            place = f"line {int(found[1]):,}"
            raise BadFile(file, f"it has {found[3]} columns instead of {found[2]}", place) from error
        raise BadFile(file, f"it cannot be read as CSV: {str(error).splitlines()[0][:200]}") from error
    if not table.num_rows:
        raise BadFile(file, "it has no rows")
    return Lines(file, table, 1 + int(has_header))


def _header(file: Path, content: bytes) -> list[str]:
    line = content.partition(b"\n")[0].decode("utf-8-sig", "replace")
    names = [name.strip() for name in next(reader([line]), [])]
    if len(set(names)) < len(names):
        raise BadFile(file, "its first line names a column twice", "line 1")
    return names


def checked_sum(file: Path) -> bool:
    """Whether there is a FILE.CHECKSUM, which is then verified. Raises BadFile where it differs."""
    beside = file.with_name(f"{file.name}.CHECKSUM")
    try:
        expected = beside.read_text(errors="replace").split(maxsplit=1)[0].lower()
    except FileNotFoundError:
        return False
    except (OSError, IndexError) as error:
        raise BadFile(beside, "it cannot be read") from error
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != expected:
        raise BadFile(file, f"its SHA-256 is {found}, but {beside.name} says {expected[:_SHOWN]}: download it again")
    return True
