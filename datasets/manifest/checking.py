"""Checks a data set against its signed manifest, without a platform: files, rows, holes and candles.

Manifest and files may come from a stranger: nothing that they hold ends the check, or takes unlimited memory.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import SECOND, count_opens
from candlewright.wire.ranges import joined
from candlewright.wire.times import format_nanoseconds
from datasets.folder import State, entries, opened, state_of
from datasets.manifest.contents import NotRows, from_trades, hash_of, partitions_of, times_of
from datasets.manifest.document import MOST_BYTES, File, Manifest, ManifestFault, Partition, decoded
from datasets.manifest.merkle import root_of
from datasets.manifest.signing import is_signed
from datasets.memory import at_most
from datasets.stored import missing_ranges

#: Faults that are listed. The check ends with the last of them.
MOST_FAULTS = 1_000
_MOST_MEMORY = 4 << 30


@dataclass(slots=True)
class Verdict:
    """`faults`: a sentence for each deviation from what was signed; empty if the data set is proven."""

    manifest: Manifest
    faults: list[str] = field(default_factory=list)


def check(manifest: Path, folder: Path, key: str | None = None) -> Verdict:
    """Check the data set in `folder`. `key`: the public key that must have signed it (hexadecimal); None accepts any,
    and then proves everything but the signer.

    Raises ManifestFault if the manifest itself cannot be trusted.
    """
    with at_most(_MOST_MEMORY):
        try:
            signed = _signed(manifest, key)
        except MemoryError as error:
            raise ManifestFault(f"{manifest} needs over {_MOST_MEMORY >> 20:,} MiB of memory") from error
        if not folder.is_dir():
            raise CandlewrightError(f"folder {folder} does not exist: name the data set's folder with --data")
        found = list(islice(_Check(signed, folder, manifest).faults(), MOST_FAULTS + 1))
    if len(found) > MOST_FAULTS:
        found[MOST_FAULTS:] = [f"there are more than {MOST_FAULTS:,} faults: the rest was not looked for"]
    return Verdict(signed, found)


def _signed(manifest: Path, key: str | None) -> Manifest:
    signed = _read(manifest)
    body = signed.body
    if not is_signed(body.encoded(), signed.key, signed.signature):
        raise ManifestFault(f"{manifest}: the signature does not belong to this text and key {signed.key}")
    if key is not None and key != signed.key:
        raise ManifestFault(f"{manifest} is signed by {signed.key}, not by {key}")
    if root_of(body.files) != body.root:
        raise ManifestFault(f"{manifest}: the root does not match the entries")
    _check_paths(body.files)
    return signed


def _read(manifest: Path) -> Manifest:
    try:
        with manifest.open("rb") as source:
            content = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise CandlewrightError(f"{manifest} cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise ManifestFault(f"{manifest} has more than {MOST_BYTES} bytes")
    try:
        return decoded(content)
    except ManifestFault as error:
        raise ManifestFault(f"{manifest}: {error}") from None


def _check_paths(files: list[File]) -> None:
    for file in files:
        parts = PurePosixPath(file.path).parts
        if not parts or file.path.startswith("/") or ".." in parts or "\\" in file.path or "\0" in file.path:
            raise ManifestFault(f"the manifest names a file outside the folder: {file.path!r}")
        if str(PurePosixPath(file.path)) != file.path:
            raise ManifestFault(f"the manifest names a file in an unusual way: {file.path!r}")
    if len({file.path for file in files}) < len(files):
        raise ManifestFault("the manifest names a file twice")
    of_trades = [file.ticker for file in files if file.is_trades]
    if len(set(of_trades)) < len(of_trades):
        raise ManifestFault("the manifest names the trades of a ticker twice")


class _Check:
    def __init__(self, signed: Manifest, folder: Path, manifest: Path) -> None:
        self._files = sorted(signed.body.files, key=lambda each: not each.is_trades)
        self._folder, self._manifest = folder, manifest
        #: Files of trades that are as signed, by ticker.
        self._proven: dict[str, tuple[File, State]] = {}

    def faults(self) -> Iterator[str]:
        missing = {file.path for file in self._files}
        for path, fault in entries(self._folder):
            if path in missing:
                missing.remove(path)
                if not fault:
                    continue
            elif self._is_manifest(path):
                continue
            yield f"{_shown(path)} {fault or 'was added'}"
        yield from (f"{path} is missing" for path in sorted(missing))
        for file in self._files:
            if file.path not in missing:
                yield from (f"{file.path}: {fault}" for fault in self._of_file(file))

    def _is_manifest(self, path: str) -> bool:
        try:
            return (self._folder / path).samefile(self._manifest)
        except (OSError, ValueError):
            return False

    def _of_file(self, file: File) -> Iterator[str]:
        try:
            with opened(self._folder, file.path) as source:
                before = state_of(source)
                faults = []
                for fault in self._of_content(file, source):
                    faults.append(fault)
                    yield fault
                if state_of(source) != before:
                    yield "it was changed while it was checked"
                elif file.is_trades and not faults:
                    self._proven[file.ticker] = file, before
        except OSError as error:
            yield f"it cannot be read: {error.strerror or error}"
        except MemoryError:
            yield f"it needs over {_MOST_MEMORY >> 20:,} MiB of memory to be read"

    def _of_content(self, file: File, source: BinaryIO) -> Iterator[str]:
        if os.fstat(source.fileno()).st_size != file.bytes or hash_of(source) != file.sha256:
            yield f"its bytes differ from those that were signed{_where(file, source)}"
            return
        # The bytes are as signed; from here on, the signer's statements about them are checked.
        try:
            faults = list(_rows_faults(file, source))
            yield from faults
            if not faults and file.from_trades is not None:
                yield from self._derivation(file, source)
        except MemoryError:
            raise
        except (OSError, ValueError, KeyError, NotRows, pa.ArrowException) as error:
            yield f"it cannot be read as Parquet ({' '.join(str(error).split())[:200]})"

    def _derivation(self, file: File, source: BinaryIO) -> Iterator[str]:
        trades, state = self._proven.get(file.ticker, (None, None))
        if trades is None:
            yield "its trades are missing or not as signed, so it cannot be compared with them"
            return
        with opened(self._folder, trades.path) as beside:
            if state_of(beside) != state:
                yield "its trades were changed while they were checked"
                return
            candles = (table for _, table in partitions_of(source, of_trades=False))
            found = from_trades(candles, beside, file.period_seconds)
            if state_of(beside) != state:
                yield "its trades were changed while they were checked"
        if found != file.from_trades:
            wrong = sorted(set(found.opens) ^ set(file.from_trades.opens if file.from_trades else ()))
            at = f", first at {format_nanoseconds(wrong[0])}" if wrong else ""
            yield f"comparing its candles with its trades gives another result than the manifest{at}"


def _shown(path: str) -> str:
    """A path of the file system, whose bytes need not be text."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _where(file: File, source: BinaryIO) -> str:
    """The partitions that differ, if the file can still be read."""
    try:
        found = {each.name: each for each, _ in partitions_of(source, of_trades=file.is_trades)}
    except (OSError, ValueError, KeyError, IndexError, MemoryError, NotRows, pa.ArrowException):
        return ""
    signed = {each.name: each for each in file.partitions}
    changed = sorted(name for name in found.keys() | signed.keys() if found.get(name) != signed.get(name))
    if not changed:
        return "; its rows are the same, in another encoding or order of partitions"
    return f": rows of {', '.join(changed[:5])}{' …' if len(changed) > 5 else ''} differ"


def _rows_faults(file: File, source: BinaryIO) -> Iterator[str]:
    partitions, bounds = list[Partition](), list[int]()
    opens, sources, complete = list[NDArray[np.int64]](), Counter[str](), 0
    for partition, table in partitions_of(source, of_trades=file.is_trades):
        times = times_of(table)
        # What follows relies on these.
        if (fault := _row_fault(file, table, times, bounds[-1:])) is not None:
            yield f"{partition.name} has {fault}"
            return
        partitions.append(partition)
        bounds += int(times[0]), int(times[-1])
        if not file.is_trades:
            opens.append(times)
            counts = pc.value_counts(table["source"]).to_pylist()
            sources.update({str(each["values"]): each["counts"] for each in counts})
            complete += pc.sum(pc.fill_null(table["complete"], False)).as_py()
    if partitions != file.partitions:
        yield "its partitions differ from those in the manifest"
    rows = sum(each.rows for each in partitions)
    if (rows, *bounds[:1], *bounds[-1:]) != (file.rows, file.first, file.last):
        yield "its number of rows, or its first or last time, differs from the manifest"
    elif not file.is_trades:
        yield from _hole_faults(file, np.concatenate(opens))
        if (dict(sources), rows - complete) != (file.sources, file.incomplete):
            yield "its sources or incomplete candles differ from the manifest"


def _row_fault(file: File, table: pa.Table, times: NDArray[np.int64], before: list[int]) -> str | None:
    """What is wrong with the rows of a partition. `before`: the time of the row before them, if there is one."""
    if pc.any(pc.not_equal(table["ticker"], file.ticker)).as_py():
        return "rows of another ticker"
    steps = np.diff(np.concatenate([np.asarray(before, np.int64), times]))
    if bool((steps < 0).any() if file.is_trades else (steps <= 0).any()):
        return "rows that are not in time order"
    if file.is_trades:
        prices, sizes = (table[name].to_numpy() for name in ("price", "size"))
        is_sound = np.isfinite(prices) & np.isfinite(sizes) & (prices >= 0) & (sizes >= 0)
        return None if is_sound.all() else "a price or size that is negative or not a number"
    if pc.any(pc.not_equal(table["period_seconds"], file.period_seconds)).as_py():
        return "candles of another period"
    is_off = steps % (file.period_seconds * SECOND) != 0
    return "candles that are not whole periods apart" if is_off.any() else None


def _hole_faults(file: File, opens: NDArray[np.int64]) -> Iterator[str]:
    missing = set(missing_ranges(opens, file.period_seconds))
    named = set(joined((hole.start, hole.end) for hole in file.holes))
    for start, end in sorted(missing - named):
        candles = count_opens(start, end, file.period_seconds)
        yield f"the manifest lacks a hole of {candles} candles from {format_nanoseconds(start)}"
    for start, _ in sorted(named - missing):
        yield f"the manifest names a hole from {format_nanoseconds(start)} that does not exist"
    if any(hole.candles != count_opens(hole.start, hole.end, file.period_seconds) for hole in file.holes):
        yield "the manifest gives a wrong number of candles for a hole"
