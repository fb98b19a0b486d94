"""Checks a data set against its signed manifest, without a platform: files, rows, holes and candles."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import count_opens
from candlewright.wire.ranges import joined
from datasets.manifest.contents import from_trades, hash_of, partitions_of, times_of
from datasets.manifest.document import MOST_BYTES, File, Manifest, ManifestFault, decoded
from datasets.manifest.merkle import root_of
from datasets.manifest.signing import is_signed
from datasets.stored import missing_ranges


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
    signed = _read(manifest)
    body = signed.body
    if not is_signed(body.encoded(), signed.key, signed.signature):
        raise ManifestFault(f"{manifest}: the signature does not belong to this text and key {signed.key}")
    if key is not None and key != signed.key:
        raise ManifestFault(f"{manifest} is signed by {signed.key}, not by {key}")
    if root_of(body.files) != body.root:
        raise ManifestFault(f"{manifest}: the root does not match the entries")
    _check_paths(body.files)
    verdict = Verdict(signed)
    if not folder.is_dir():
        raise CandlewrightError(f"folder {folder} does not exist: name the data set's folder with --data")
    verdict.faults += _presence(body.files, folder, manifest)
    trades = {each.ticker: each for each in body.files if each.is_trades}
    for file in body.files:
        if (folder / file.path).is_file():
            verdict.faults += (f"{file.path}: {fault}" for fault in _file_faults(file, folder, trades.get(file.ticker)))
    return verdict


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
        if not parts or file.path.startswith("/") or ".." in parts or "\\" in file.path:
            raise ManifestFault(f"the manifest names a file outside the folder: {file.path!r}")
    if len({file.path for file in files}) < len(files):
        raise ManifestFault("the manifest names a file twice")


def _presence(files: list[File], folder: Path, manifest: Path) -> Iterator[str]:
    named = {folder / file.path for file in files}
    for path in sorted(named):
        if path.is_symlink() or not path.is_file():
            yield f"{path.relative_to(folder).as_posix()} is missing"
    for path in sorted(folder.rglob("*")):
        if not path.is_dir() and path not in named and path.resolve() != manifest.resolve():
            yield f"{path.relative_to(folder).as_posix()} was added"


def _file_faults(file: File, folder: Path, trades: File | None) -> Iterator[str]:
    path = folder / file.path
    if path.stat().st_size != file.bytes or hash_of(path) != file.sha256:
        yield f"its bytes differ from those that were signed{_where(file, path)}"
        return
    # The bytes are as signed; from here on, the signer's statements about them are checked.
    try:
        parts = list(_rows_faults(file, path))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        yield f"it cannot be read as Parquet ({' '.join(str(error).split())[:200]})"
        return
    yield from parts
    if not file.is_trades and not parts:
        yield from _candle_faults(file, path)
        if file.from_trades is not None:
            yield from _derivation_faults(file, path, folder, trades)


def _where(file: File, path: Path) -> str:
    """The partitions that differ, if the file can still be read."""
    try:
        found = {each.name: each for each, _ in partitions_of(path, of_trades=file.is_trades)}
    except (OSError, ValueError, KeyError, IndexError, pa.ArrowException):
        return ""
    signed = {each.name: each for each in file.partitions}
    changed = sorted(name for name in found.keys() | signed.keys() if found.get(name) != signed.get(name))
    if not changed:
        return "; its rows are the same, in another encoding or order of partitions"
    return f": rows of {', '.join(changed[:5])}{' …' if len(changed) > 5 else ''} differ"


def _rows_faults(file: File, path: Path) -> Iterator[str]:
    before: int | None = None
    partitions, first = [], None
    for partition, table in partitions_of(path, of_trades=file.is_trades):
        partitions.append(partition)
        times = times_of(table)
        steps = np.diff(times if before is None else np.concatenate([[before], times]))
        if bool((steps < 0).any() if file.is_trades else (steps <= 0).any()):
            yield f"the rows of {partition.name} are not in order of time"
        if pc.any(pc.not_equal(table["ticker"], file.ticker)).as_py():
            yield f"{partition.name} has rows of another ticker"
        first, before = int(times[0]) if first is None else first, int(times[-1])
    if partitions != file.partitions:
        yield "its partitions differ from those in the manifest"
    if (sum(each.rows for each in partitions), first, before) != (file.rows, file.first, file.last):
        yield "its number of rows, or its first or last time, differs from the manifest"


def _candle_faults(file: File, path: Path) -> Iterator[str]:
    table = pq.read_table(path)
    if pc.any(pc.not_equal(table["period_seconds"], file.period_seconds)).as_py():
        yield "it has candles of another period"
        return
    missing = missing_ranges(times_of(table), file.period_seconds)
    named = joined((hole.start, hole.end) for hole in file.holes)
    for start, end in missing:
        if (start, end) not in named:
            candles = count_opens(start, end, file.period_seconds)
            yield f"the manifest lacks a hole of {candles} candles from {_time(start)}"
    for start, end in named:
        if (start, end) not in missing:
            yield f"the manifest names a hole from {_time(start)} that does not exist"
    if any(hole.candles != count_opens(hole.start, hole.end, file.period_seconds) for hole in file.holes):
        yield "the manifest gives a wrong number of candles for a hole"
    sources = dict(Counter(str(each) for each in table["source"].to_pylist()))
    incomplete = table.num_rows - (pc.sum(pc.fill_null(table["complete"], False)).as_py() or 0)
    if (sources, incomplete) != (file.sources, file.incomplete):
        yield "its sources or incomplete candles differ from the manifest"


def _derivation_faults(file: File, path: Path, folder: Path, trades: File | None) -> Iterator[str]:
    if trades is None or not (folder / trades.path).is_file():
        yield "its trades are missing, so it cannot be compared with them"
        return
    found = from_trades(pq.read_table(path), folder / trades.path, file.period_seconds)
    if found != file.from_trades:
        wrong = sorted(set(found.opens) ^ set(file.from_trades.opens if file.from_trades else ()))
        at = f", first at {_time(wrong[0])}" if wrong else ""
        yield f"comparing its candles with its trades gives another result than the manifest{at}"


def _time(nanoseconds: int) -> str:
    return f"{np.datetime64(nanoseconds // 1_000_000_000, 's')}Z"
