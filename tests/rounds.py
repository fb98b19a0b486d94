"""How many random cases a test takes: some of them in the suite, a quarter of those with `--quick`, all of them with
`--long`.

Tests read this when they are imported, which is after `take_all` or `take_few`.
"""

_takes_all = False
_takes_few = False


def take_all() -> None:
    global _takes_all
    _takes_all = True


def take_few() -> None:
    global _takes_few
    _takes_few = True


def rounds(count: int) -> int:
    """The number of cases that Hypothesis chooses, different ones each time."""
    if _takes_all:
        return count
    return max(count // 16, min(count, 3)) if _takes_few else max(count // 4, min(count, 10))


def seeds(count: int) -> range:
    return range(count if _takes_all else -(-count // (12 if _takes_few else 3)))
