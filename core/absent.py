"""Modules that a process does without, although they are installed."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["leave_out", "left_out"]


class _Absent(MetaPathFinder, Loader):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self._names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        raise ModuleNotFoundError(f"{spec.name} is left out of this process", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        raise AssertionError("no such module is made")


def leave_out(*names: str) -> None:
    """From now on `import` of these fails as if they were not installed.

    pyarrow loads pandas for its own type checks wherever it is installed: 40 MB and half a second in a process that
    never uses it.
    """
    sys.meta_path.insert(0, _Absent(frozenset(names)))


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """`leave_out` until the end of the block."""
    absent = _Absent(frozenset(names))
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)
