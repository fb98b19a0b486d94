"""`candlewright export --manifest` and `candlewright verify --manifest`: data sets signed and verified."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from candlewright.cli.output import Output, json_line, print_rows, say, visible
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.periods import format_period
from candlewright.wire.times import format_nanoseconds
from candlewright_platform.supervisor.origin import known_origin
from core.settings import Settings
from datasets.manifest import DataSet, check, write
from datasets.manifest.document import File, Manifest, ManifestFault
from datasets.stored import Series

_COLUMNS = (
    "ticker",
    "period",
    "rows",
    "holes",
    "unknown",
    "from_trades",
    "first",
    "last",
    "incomplete",
    "gaps",
    "file",
)


def export(
    settings: Settings,
    series: Sequence[Series],
    *,
    start: int | None,
    end: int | None,
    folder: Path,
    manifest: Path,
    output: Output,
    with_trades: bool,
) -> None:
    wanted = DataSet(series, start, end, with_trades, known_origin(settings.data_dir) or "")
    try:
        signed = write(settings, wanted, folder, manifest=manifest)
    except OSError as error:
        raise CandlewrightError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    print_rows([_row(each) for each in signed.body.files], output, columns=_COLUMNS, empty="")
    say(f"{manifest}: {_files(signed)}, root {signed.body.root}")
    say(f"signed by {signed.key}: those who check the files need this key from you, not from the same place")


def verify(manifest: Path, data: Path | None, key: str | None, *, output: Output) -> bool:
    """Whether all data equal what was signed; each fault is a line on stderr."""
    wanted = None if key is None else _key(key)
    try:
        found = check(manifest, data if data is not None else manifest.absolute().parent, wanted)
    except ManifestFault as error:
        _answer(output, manifest, None, [str(error)], wanted)
        return False
    _answer(output, manifest, found.manifest, found.faults, wanted)
    files = found.manifest.body.files
    if data is None and files and all(f"{file.path} is missing" in found.faults for file in files):
        say(f"none of them is in {manifest.absolute().parent}: name their folder with --data")
    return not found.faults


def _answer(output: Output, manifest: Path, signed: Manifest | None, faults: Sequence[str], key: str | None) -> None:
    for fault in faults:
        say(fault)
    if output is Output.json:
        about: dict[str, Any] = {"manifest": str(manifest), "proven": not faults, "faults": list(faults)}
        if signed is not None:
            about |= {"key": signed.key, "root": signed.body.root, "files": len(signed.body.files)}
        print(json_line(about))
        return
    if signed is None or faults:
        return
    print_rows([_row(each) for each in signed.body.files], output, columns=_COLUMNS, empty="")
    made = format_nanoseconds(signed.body.made_at // 10**9 * 10**9)
    maker = visible(f"candlewright {signed.body.version}, {signed.body.origin or 'unknown origin'}")
    print(f"{_files(signed)} {'is' if len(signed.body.files) == 1 else 'are'} as signed on {made} ({maker})")
    print(f"signed by {signed.key}")
    if key is None:
        say("--key was not given: this proves that nothing changed since, not who signed")


def _files(signed: Manifest) -> str:
    count = len(signed.body.files)
    return f"{count} file{'s' if count != 1 else ''}"


def _key(text: str) -> str:
    """Hexadecimal digits, or a file that holds them. Raises typer.BadParameter."""
    value = text.strip()
    if Path(value).is_file():
        value = Path(value).read_text(encoding="utf-8", errors="replace").strip()
    value = value.lower()
    if len(value) != 64 or any(digit not in "0123456789abcdef" for digit in value):
        raise typer.BadParameter("a public key has 64 hexadecimal digits", param_hint="--key")
    return value


def _row(file: File) -> dict[str, object]:
    missing = Counter({"venue": 0, "not_stored": 0})
    for hole in file.holes:
        missing[hole.reason] += hole.candles
    beside = file.from_trades
    return {
        "file": file.path,
        "ticker": file.ticker,
        "period": format_period(file.period_seconds) if file.period_seconds else "trades",
        "rows": file.rows,
        "first": format_nanoseconds(file.first),
        "last": format_nanoseconds(file.last),
        "holes": missing["venue"],
        "unknown": missing["not_stored"],
        "incomplete": file.incomplete,
        "gaps": len(file.gaps),
        "from_trades": f"{beside.compared - beside.differing} of {beside.compared}" if beside is not None else "",
        "sha256": file.sha256,
    }
