"""The parts' output: in bounded files, with errors reported to the operator."""

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path

MAX_BYTES = 8 << 20
KEPT_FILES = 2
#: A line longer than this is cut: a part that never ends its line must not fill memory.
MAX_LINE_BYTES = 64 << 10


class PartLog:
    """`<folder>/<part>.log`, moved to `.log.1` and so on when it is full; the oldest is deleted. `tell` gets a readable
    line for each one that a part logged as an error or worse.
    """

    def __init__(self, folder: Path, part: str, tell: Callable[[str], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{part}.log"
        self._file = self._path.open("ab", buffering=0)
        self._size = self._file.tell()
        self._rest = b""
        self._tell = tell
        self.last_lines: deque[str] = deque(maxlen=15)

    def feed(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE_BYTES:
            lines.append(self._rest[:MAX_LINE_BYTES] + b" [cut]")
            self._rest = b""
        for line in lines:
            self._line(line)

    def close(self) -> None:
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        self._file.close()

    def _line(self, line: bytes) -> None:
        if self._size + len(line) > MAX_BYTES:
            self._rotate()
        try:
            self._file.write(line + b"\n")
            self._size += len(line) + 1
        except OSError as error:
            # A full disk must not stop the parts; the operator still sees what matters.
            self._tell(f"cannot write {self._path}: {error.strerror}")
        text = line.decode("utf-8", "replace")
        self.last_lines.append(text)
        if (problem := problem_in(text)) is not None:
            self._tell(problem)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT_FILES, 0, -1):
            older = self._path.with_suffix(f".log.{number}")
            newer = self._path.with_suffix(f".log.{number - 1}") if number > 1 else self._path
            if newer.exists():
                newer.replace(older)
        self._file = self._path.open("ab", buffering=0)
        self._size = 0


def problem_in(line: str) -> str | None:
    """`event key=value …` of a structured line logged as error or critical; None for any other line."""
    if '"level"' not in line or ("error" not in line and "critical" not in line):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("level") not in ("error", "critical"):
        return None
    hidden = {"event", "level", "timestamp", "part", "exception"}
    pairs = " ".join(f"{key}={value}" for key, value in entry.items() if key not in hidden)
    cause = str(entry.get("exception", "")).strip().rpartition("\n")[2]
    return " ".join(filter(None, (str(entry.get("event", "")), pairs, cause)))
