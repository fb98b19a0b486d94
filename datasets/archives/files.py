"""Reads files of unknown origin: with size limits, and as text first, so that an error can name its line."""

import hashlib
import io
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from candlewright.wire.errors import CandlewrightError
from datasets.folder import opened_file, state_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Limits of a file's unpacked size, and of the candles of one import, which are compared and committed together.
MAX_BYTES = 1 << 30
MAX_ROWS = 1_000_000
_NUMBER = r"^ *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})? *$"
_NOT_UTF8 = re.compile(r"Row #(\d+): .*invalid UTF8")
_WRONG_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_SHOWN = 60
_MOST_LINE_BYTES = 64 << 10
_DELIMITERS = (",", ";", "\t", "|")
_CHUNK_BYTES = 16 << 20
#: A million candles have about 150 MiB.
_MOST_TEXT_BYTES = 256 << 20
#: Of a zip file: that of Kraken's whole archive has less than 1 MiB.
_MOST_DIRECTORY_BYTES = 4 << 20
_ZIP = b"PK\x03\x04"
_KINDS = {
    b"\x1f\x8b": "it is compressed with gzip: unpack it",
    b"BZh": "it is compressed with bzip2: unpack it",
    b"\xfd7zXZ": "it is compressed with xz: unpack it",
    b"\x28\xb5\x2f\xfd": "it is compressed with zstd: unpack it",
    b"7z\xbc\xaf": "it is a 7z archive: unpack it",
    b"PAR1": "it is a Parquet file: write it as CSV",
    b"ARROW1": "it is a feather file: --format freqtrade reads those of freqtrade",
    b"\xff\xfe": "it is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "it is UTF-16 text: save it as UTF-8",
}


class BadFile(CandlewrightError):
    """A file that cannot be imported; `place` is a line or a row of it, or empty."""

    def __init__(self, file: Path, reason: str, place: str = "") -> None:
        self.file, self.reason, self.place = file, reason, place
        super().__init__(f"{file}{f', {place}' if place else ''}: {reason}")


@dataclass(frozen=True, slots=True)
class Lines:
    """The columns of a file as text. `first`: the number in the file of the first of these lines."""

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
        """The column as numbers. Raises BadFile if a value is not a finite number."""
        column = self.table[name]
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            found = column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
        else:
            self.refuse(~_matches(column, _NUMBER), f"{name} is not a number: {{}}", name)
            found = pc.utf8_trim_whitespace(column).cast(pa.float64()).to_numpy()
        self.refuse(~np.isfinite(found), f"{name} is not a finite number: {{}}", name)
        return np.asarray(found, dtype=np.float64)

    def integers(self, name: str) -> "NDArray[np.int64]":
        """The column as integers. Raises BadFile if a value is not an unsigned integer of at most 18 digits."""
        self.refuse(~_matches(self.table[name], r"^ *[0-9]{1,18} *$"), f"{name} is not a whole number: {{}}", name)
        found = pc.utf8_trim_whitespace(self.table[name]).cast(pa.int64()).to_numpy()
        return np.asarray(found, dtype=np.int64)


def _matches(column: pa.ChunkedArray, pattern: str) -> "NDArray[np.bool_]":
    found: NDArray[np.bool_] = pc.match_substring_regex(column, pattern).fill_null(False).to_numpy()
    return found


@contextmanager
def kept(file: Path) -> Iterator[io.BufferedReader]:
    """A file that stays the one that was opened. Raises BadFile if it changes before the end of the block."""
    with ExitStack() as stack:
        try:
            source = stack.enter_context(opened_file(file))
        except OSError as error:
            raise BadFile(file, error.strerror or str(error)) from error
        before = state_of(source)
        yield source
        if state_of(source) != before:
            raise BadFile(file, "it was changed or replaced while it was read: import it again")


@contextmanager
def unpacked(
    file: Path, source: io.BufferedReader, max_bytes: int, *, names: Sequence[str] = ()
) -> Iterator[io.BufferedReader]:
    """The content of a file, or of a zip file's only member, or of its member with one of `names`, as a stream that
    raises BadFile after `max_bytes`. Nothing is unpacked to disk. Raises BadFile.
    """
    with ExitStack() as stack:
        with _damage(file):
            source.seek(0)
            is_zip = source.read(4) == _ZIP or file.suffix.lower() == ".zip"
            source.seek(0)
            content: IO[bytes] = source
            if is_zip:
                packed = stack.enter_context(_directory(file, source))
                content = stack.enter_context(packed.open(_member(file, packed, max_bytes, names)))
            elif (size := os.fstat(source.fileno()).st_size) > max_bytes:
                raise BadFile(file, f"it has {size >> 20:,} MiB, over {max_bytes >> 20:,}: import it in parts")
        stream: io.BufferedReader = io.BufferedReader(_Bounded(file, content, max_bytes), 1 << 20)
        _refuse_kind(file, stream.peek())
        yield stream


def _refuse_kind(file: Path, begin: bytes) -> None:
    if not begin.strip():
        raise BadFile(file, "it is empty")
    for mark, reason in _KINDS.items():
        if begin.startswith(mark):
            raise BadFile(file, reason)


def _directory(file: Path, source: io.BufferedReader) -> zipfile.ZipFile:
    """Raises BadFile if the zip file's directory is too long, before memory is spent on its members."""
    limited = _Limited(file, source)
    packed = zipfile.ZipFile(limited)
    limited.left = None
    return packed


class _Limited:
    """What zipfile reads of `source`: at most `left` bytes, if that is not None."""

    def __init__(self, file: Path, source: io.BufferedReader) -> None:
        self._file = file
        self._source = source
        self.left: int | None = _MOST_DIRECTORY_BYTES
        self.seek, self.tell, self.seekable = source.seek, source.tell, source.seekable

    def read(self, size: int = -1) -> bytes:
        if self.left is not None:
            if size > self.left:
                raise BadFile(self._file, "its directory is too long: unpack it and name the files you want")
            self.left -= max(size, 0)
        return self._source.read(size)


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """Translate to BadFile what the zip module raises for a damaged file, an unknown compression or a password, and
    errors of the disk.
    """
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError, IndexError) as error:
        raise BadFile(file, f"it is not a valid zip file: {error}") from error
    except OSError as error:
        raise BadFile(file, error.strerror or str(error)) from error


class _Bounded(io.RawIOBase):
    def __init__(self, file: Path, source: IO[bytes], max_bytes: int) -> None:
        self._file, self._source, self._left, self._max_bytes = file, source, max_bytes, max_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        with _damage(self._file):
            found = self._source.read(len(view))
        self._left -= len(found)
        if self._left < 0:
            raise BadFile(self._file, f"it has more than {self._max_bytes >> 20:,} MiB; import it in parts")
        view[: len(found)] = found
        return len(found)


def _member(file: Path, packed: zipfile.ZipFile, max_bytes: int, names: Sequence[str]) -> zipfile.ZipInfo:
    members = [each for each in packed.infolist() if not each.is_dir()]
    if names:
        lowered = {name.lower() for name in names}
        named = [each for each in members if re.split(r"[/\\]", each.filename)[-1].lower() in lowered]
        if len(named) != 1:
            found = (
                f"{len(named)} of its {len(members):,} files are" if named else f"none of its {len(members):,} files is"
            )
            raise BadFile(file, f"{found} {' or '.join(names)}")
        members = named
    if len(members) != 1:
        listed = ", ".join(each.filename[:_SHOWN] for each in members[:3])
        raise BadFile(file, f"it holds {len(members)} files ({listed} …): unpack it and name the files you want")
    member = members[0]
    if member.flag_bits & 1:
        raise BadFile(file, "it is encrypted")
    # zipfile unpacks other methods without a limit.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadFile(file, f"its compression, method {member.compress_type}, is not supported: unpack it")
    if member.file_size > max_bytes:
        raise BadFile(file, f"it unpacks to {member.file_size >> 20:,} MiB, over {max_bytes >> 20:,}")
    return member


def read_lines(
    file: Path,
    source: io.BufferedReader,
    names: Sequence[str] | None = None,
    *,
    wanted: Callable[[Sequence[str]], Sequence[str]] = list,
) -> Lines:
    """The wanted columns of a file of candles. `names`: the columns of a file that should have no header; if it has one
    anyway, the header is skipped. Without `names`, the first line names the columns, separated by commas, semicolons,
    tabs or bars. `wanted` gets all names and returns those of the columns to keep. Raises BadFile.
    """
    line = _first_line(file, source.peek())
    has_header = names is None or begins_with_header(line)
    delimiter = "," if names else _delimiter(line)
    known = names or _header(file, line, delimiter)
    parts: list[pa.Table] = []
    rows = size = 0
    for part in chunks_of(file, source, known, has_header=has_header, wanted=wanted(known), delimiter=delimiter):
        rows += part.table.num_rows
        size += part.table.nbytes
        if rows > MAX_ROWS:
            raise BadFile(file, f"it has over {MAX_ROWS:,} candles: import it in parts")
        if size > _MOST_TEXT_BYTES:
            raise BadFile(file, f"its candles have over {_MOST_TEXT_BYTES >> 20:,} MiB of text: import it in parts")
        parts.append(part.table)
    if not rows:
        raise BadFile(file, "it has no rows")
    return Lines(file, pa.concat_tables(parts), 1 + int(has_header))


def _first_line(file: Path, content: bytes) -> bytes:
    line, _, _ = content.partition(b"\n")
    if len(line) > _MOST_LINE_BYTES:
        raise BadFile(file, f"the line has over {_MOST_LINE_BYTES:,} bytes", "line 1")
    return line


def begins_with_header(content: bytes) -> bool:
    """Whether no field of the first line begins like a number."""
    cells = content.partition(b"\n")[0].removeprefix(b"\xef\xbb\xbf").split(b",")
    return not any(cell.strip(b" \"'+-.")[:1].isdigit() for cell in cells)


def chunks_of(
    file: Path,
    source: io.BufferedReader,
    names: Sequence[str],
    *,
    has_header: bool,
    wanted: Sequence[str] = (),
    delimiter: str = ",",
) -> Iterator[Lines]:
    """The lines of a file in chunks; `names`: its columns; `wanted`: those to keep, if not all. Raises BadFile."""
    first = 1 + int(has_header)
    try:
        batches = csv.open_csv(
            source,
            csv.ReadOptions(use_threads=False, column_names=names, skip_rows=int(has_header), block_size=_CHUNK_BYTES),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=False, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, include_columns=wanted
            ),
        )
        for batch in batches:
            if batch.num_rows:
                yield Lines(file, pa.Table.from_batches([batch]), first)
                first += batch.num_rows
    except pa.ArrowInvalid as error:
        raise _unreadable(file, error, first) from error


def _unreadable(file: Path, error: pa.ArrowInvalid, first: int) -> BadFile:
    text = str(error)
    if (found := _WRONG_WIDTH.search(text)) is not None:
        return BadFile(file, f"it has {found[3]} columns instead of {found[2]}", f"line {int(found[1]):,}")
    if (found := _NOT_UTF8.search(text)) is not None:
        return BadFile(file, "it is not UTF-8 text", f"line {int(found[1]):,}")
    if "straddling" in text:
        return BadFile(file, f"a line has over {_CHUNK_BYTES >> 20} MiB", f"after line {first - 1:,}")
    return BadFile(file, f"it cannot be read as CSV: {text.splitlines()[0][:200]}")


def _delimiter(header: bytes) -> str:
    return max(_DELIMITERS, key=lambda each: header.count(each.encode()))


def _header(file: Path, line: bytes, delimiter: str) -> list[str]:
    try:
        text = line.decode("utf-8-sig", "replace")
        names = [name.strip() for name in next(reader([text], delimiter=delimiter), [])]
    except CsvError as error:
        raise BadFile(file, f"its header cannot be read as CSV: {error}", "line 1") from error
    if len(set(names)) < len(names):
        raise BadFile(file, "its first line names a column twice", "line 1")
    return names


def checked_sum(file: Path, source: io.BufferedReader) -> bool:
    """Verify the content by FILE.CHECKSUM; returns False if that does not exist. Raises BadFile if it differs."""
    beside = file.with_name(f"{file.name}.CHECKSUM")
    try:
        with opened_file(beside) as opened:
            expected = opened.read(_MOST_LINE_BYTES).decode(errors="replace").split(maxsplit=1)[0].lower()
    except FileNotFoundError:
        return False
    except (OSError, IndexError) as error:
        raise BadFile(beside, "it cannot be read") from error
    source.seek(0)
    found = hashlib.file_digest(source, "sha256").hexdigest()
    if found != expected:
        raise BadFile(file, f"its SHA-256 is {found}, but {beside.name} says {expected[:_SHOWN]}: download it again")
    return True
