"""Opens files of unknown origin: regular files only, and without following links below a data set's folder."""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

#: What identifies a file and its content: the system sets the time of a change, so that no one can restore it.
State = tuple[int, int, int, int]


def entries(folder: Path) -> Iterator[tuple[str, str]]:
    """Everything below `folder` but the folders, by path relative to it, with what is wrong with it: empty for a
    regular file.
    """
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            with os.scandir(folder / inside) as found:
                here = sorted(found, key=lambda each: each.name)
        except OSError as error:
            yield inside or ".", f"cannot be read: {error.strerror}"
            continue
        for each in here:
            path = f"{inside}/{each.name}".lstrip("/")
            if each.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                is_file = each.is_file(follow_symlinks=False)
                yield path, "" if is_file else "is a link or a device, not a file"


@contextmanager
def opened(folder: Path, path: str) -> Iterator[BinaryIO]:
    """A regular file below `folder`. Raises OSError, also for a link anywhere in `path`."""
    *folders, name = PurePosixPath(path).parts
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for each in folders:
            inner = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        # A pipe would otherwise wait for its writer.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    with _regular(file) as source:
        yield source


@contextmanager
def opened_file(file: Path) -> Iterator[io.BufferedReader]:
    """A regular file, also behind a link. Raises OSError."""
    with _regular(os.open(file, os.O_RDONLY | os.O_NONBLOCK)) as source:
        yield source


@contextmanager
def _regular(file: int) -> Iterator[io.BufferedReader]:
    with os.fdopen(file, "rb") as source:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        yield source


def state_of(file: BinaryIO) -> State:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
