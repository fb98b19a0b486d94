"""Distinguishes bad records from a bad environment, for parts that read a stream. A bad environment (a bus that is
down, a full disk, a locked catalog) passes, and the same work is retried for as long as it takes.

 A bad record never passes: its reader must identify it, put it aside (`bus.dead_letters`), and continue.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from candlewright.wire.errors import BadFrame, CandlewrightError

__all__ = ["culprits", "is_poison", "reason_of", "refused"]

#: The most culprits that are searched for one by one; if there are more, all remaining records are put aside as well.
MAX_CULPRITS = 16
Item = TypeVar("Item")


def is_poison(error: BaseException) -> bool:
    """Whether pure work on records failed because of their content, so that another attempt would fail too."""
    if isinstance(error, BadFrame):
        return True
    return isinstance(error, Exception) and not isinstance(error, OSError | MemoryError | CandlewrightError)


def reason_of(error: BaseException) -> str:
    return error.text if isinstance(error, BadFrame) else f"{type(error).__name__}: {error}"


def culprits(items: Sequence[Item], digest: Callable[[Sequence[Item]], object]) -> list[tuple[Item, str]]:
    """Those of `items` without which `digest` accepts the others, each with its reason; empty if it accepts all.

    `digest` must be deterministic and free of side effects. Each culprit is the last item of the shortest prefix that
    fails, which takes about log2(len(items)) calls to find.
    """
    left = list(items)
    found: list[tuple[Item, str]] = []
    while (reason := _failure(left, digest)) and left:
        if len(found) == MAX_CULPRITS:
            return found + [(item, f"{reason} (after {MAX_CULPRITS} others)") for item in left]
        sound, bad = 0, len(left)
        while bad - sound > 1:
            middle = (sound + bad) // 2
            text = _failure(left[:middle], digest)
            if text:
                bad, reason = middle, text
            else:
                sound = middle
        found.append((left.pop(bad - 1), reason))
    return found


def refused(items: Sequence[Item], digest: Callable[[Sequence[Item]], object]) -> list[tuple[Item, str]]:
    """`culprits` if each item fails independently: a failing range is halved until it is one item."""
    reason = _failure(items, digest)
    if not reason or not items:
        return []
    if len(items) == 1:
        return [(items[0], reason)]
    middle = len(items) // 2
    return refused(items[:middle], digest) + refused(items[middle:], digest)


def _failure(items: Sequence[Item], digest: Callable[[Sequence[Item]], object]) -> str:
    try:
        digest(items)
    except Exception as error:  # Any error that a record causes counts here.
        if not is_poison(error):
            raise
        return reason_of(error)
    return ""
