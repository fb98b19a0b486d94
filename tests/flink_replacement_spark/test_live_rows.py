from collections.abc import Iterable, Iterator, Sequence

import pytest

from bus import StoredRecord
from flink_replacement_spark import live_rows
from flink_replacement_spark.live_partition import LivePartition

VALUES = [bytes([length]) * length for length in (3, 9, 1, 1, 8, 20, 2, 5)]


class _Noted(LivePartition):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.parts: list[list[bytes]] = []
        self.marks: list[bytes] = []

    def add(self, batches: Iterable[bytes], marks: Iterable[bytes] = ()) -> None:
        self.parts.append(list(batches))
        self.marks += marks


@pytest.mark.parametrize("reads", [[8], [1] * 8, [3, 3, 2]])
def test_trades_are_cut_into_parts_by_their_sizes_however_they_were_read(
    reads: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [StoredRecord("ticks", 0, offset, 1_000, b"", value, {}) for offset, value in enumerate(VALUES)]

    def records_of(url: str, ranges: object, tag: int) -> Iterator[list[StoredRecord]]:
        left = iter(stored)
        yield from ([next(left) for _ in range(count)] for count in (reads if tag == 0 else [2]))

    monkeypatch.setattr(live_rows, "records_of", records_of)
    monkeypatch.setattr(live_rows, "_PART_BYTES", 10)
    live = _Noted()
    live_rows._output(live, "", [])
    assert live.parts == [VALUES[:2], VALUES[2:5], VALUES[5:6], VALUES[6:]]
    assert live.marks == VALUES[:2]
