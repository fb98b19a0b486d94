"""How many random cases a test takes: some of them in the suite, all of them with `--long`.

Tests read this when they are imported, which is after `take_all`.
"""

_takes_all = False


def take_all() -> None:
    global _takes_all
    _takes_all = True


def rounds(count: int) -> int:
    """The number of cases that Hypothesis chooses, different ones each time."""
    return count if _takes_all else max(count // 4, min(count, 10))


def seeds(count: int) -> range:
    return range(count if _takes_all else -(-count // 3))
