"""`origin.json`: whether a data directory holds data of real exchanges or of the sandbox."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from candlewright.version import VERSION
from candlewright.wire.errors import ConfigurationError
from candlewright_platform.supervisor.parts import SANDBOX
from core.origin import Origin, check_same
from core.settings import Settings

FILE = "origin.json"
_WAY_OUT = "choose another directory with --data-dir"


def origin_of(settings: Settings, names: list[str]) -> Origin:
    """The origin of a start of these parts; raises ConfigurationError when the settings forbid the sandbox."""
    if SANDBOX not in names:
        return settings.origin or Origin.EXCHANGES
    if settings.origin is Origin.EXCHANGES:
        raise ConfigurationError('--sandbox is refused, because the settings say origin = "exchanges"')
    return Origin.SANDBOX


def settle(data_dir: Path, origin: Origin) -> None:
    """Write `origin` to a directory without one; raises ConfigurationError if the directory has the other one."""
    check(data_dir, origin)
    if not (data_dir / FILE).exists():
        try:
            _write(data_dir / FILE, origin)
        except OSError as error:
            raise ConfigurationError(f"{data_dir / FILE} cannot be written: {error.strerror}") from error


def check(data_dir: Path, origin: Origin) -> None:
    """Raises ConfigurationError if the directory has the other origin."""
    known = known_origin(data_dir)
    if known is not None:
        check_same(f"data directory {data_dir}", known, origin, way_out=_WAY_OUT)


def known_origin(data_dir: Path) -> str | None:
    """The directory's origin; None if it has none. Raises ConfigurationError if it cannot be read."""
    file = data_dir / FILE
    try:
        return str(json.loads(file.read_bytes())["origin"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{file} cannot be read ({error}): {_WAY_OUT}") from error


def _write(file: Path, origin: Origin) -> None:
    """Writes the file whole or not at all, even if power is lost."""
    content = {"origin": origin.value, "since": datetime.now(UTC).isoformat(timespec="seconds"), "version": VERSION}
    new = file.with_suffix(".new")
    with new.open("w") as written:
        written.write(json.dumps(content) + "\n")
        written.flush()
        os.fsync(written.fileno())
    new.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
