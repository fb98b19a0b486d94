"""A bad record or a bad environment: what a part that reads a stream must distinguish.

A bad environment (a bus that is away, a full disk, a locked catalog) passes, and the same work is tried again for as
long as it takes. A bad record never passes: its reader must name it, move it out of the way (`bus.dead_letters`), and
go on.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from candlewright.wire.errors import BadFrame, CandlewrightError

__all__ = ["culprits", "is_poison", "reason_of", "refused"]

#: Culprits that are looked for one by one; all other records of the call are put aside with the last of them.
MAX_CULPRITS = 16
Item = TypeVar("Item")


def is_poison(error: BaseException) -> bool:
    """Whether pure work on records failed because of what they say, so that another attempt fails alike."""
    if isinstance(error, BadFrame):
        return True
    return isinstance(error, Exception) and not isinstance(error, OSError | MemoryError | CandlewrightError)


def reason_of(error: BaseException) -> str:
    return error.text if isinstance(error, BadFrame) else f"{type(error).__name__}: {error}"


def culprits(items: Sequence[Item], digest: Callable[[Sequence[Item]], object]) -> list[tuple[Item, str]]:
    """Those of `items` without which `digest` takes the others, each with its reason; empty when it takes them all.

    `digest` must do the same whenever it is called, and leave no trace. Each culprit is the last item of the shortest
    beginning that fails, which takes about log2(len(items)) calls to find.
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
    """`culprits` where each item fails or not by itself: what fails is halved until it is one."""
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
    except Exception as error:  # Whatever a record brings about: that is what is asked here.
        if not is_poison(error):
            raise
        return reason_of(error)
    return ""
