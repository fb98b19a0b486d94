"""File names, and atomic writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from candlewright.wire.ticker import Ticker

#: Characters in asset names that have a special meaning for file systems or tools.
_UNSAFE = str.maketrans(dict.fromkeys('/\\:*?"<>| ', "_"))


def pair_of(ticker: str, separator: str) -> str:
    """`BTC/USDT.BINANCE` → `BTC{separator}USDT`, safe as a file name."""
    base, _, quote = Ticker.parse(ticker).symbol.partition("/")
    return f"{base.translate(_UNSAFE)}{separator}{quote.translate(_UNSAFE)}"


def venue_of(ticker: str) -> str:
    return Ticker.parse(ticker).venue


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path beside `file` to write to. At the end it replaces `file`; on an error it is deleted."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
