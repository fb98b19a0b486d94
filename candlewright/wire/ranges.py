"""Sets of half-open ranges (start, end) of integers."""

from collections.abc import Iterable, Sequence

Ranges = Sequence[tuple[int, int]]


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted, with overlapping and adjacent ranges merged."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def common(ranges: Ranges, others: Ranges) -> list[tuple[int, int]]:
    """The intersection of `ranges` and `others`, sorted."""
    return joined((max(a, c), min(b, d)) for a, b in ranges for c, d in others if max(a, c) < min(b, d))


def without(ranges: Ranges, others: Ranges) -> list[tuple[int, int]]:
    """The parts of `ranges` that are not in `others`, in the order of `ranges`."""
    cuts = joined(others)
    found = []
    for start, end in ranges:
        for first, last in cuts:
            if last <= start or first >= end:
                continue
            if start < first:
                found.append((start, first))
            start = max(start, last)
        if start < end:
            found.append((start, end))
    return found
