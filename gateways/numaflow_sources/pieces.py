"""What is on the bus already, in which pieces, and how much to ask for. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateways.numaflow_sources.protocol import Result
from protobuf import source_superset_pb2 as source

#: Records and bytes that are published together, and held in memory at a time.
PIECE_RECORDS = 500
PIECE_BYTES = 16 << 20
#: Size limit of one batch, estimated by the largest record seen.
BATCH_BYTES = 64 << 20
#: Pieces whose offsets are remembered. A batch is acknowledged at its end, and after PIECES_UNACKNOWLEDGED
#: pieces at the latest, so that a repeated record is always recognised.
PIECES_KEPT = 64
PIECES_UNACKNOWLEDGED = PIECES_KEPT // 2
#: The number of a publish combines the number of the start with that of the piece.
_PIECE_BITS = 32


class OffsetKey(NamedTuple):
    partition_id: int
    offset: bytes


def key_of(offset: source.Offset) -> OffsetKey:
    return OffsetKey(offset.partition_id, offset.offset)


@dataclass(slots=True)
class PublishedPieces:
    """`epoch`: the number of this start; it grows with each start."""

    epoch: int
    max_records: int
    _piece: int = 0
    _kept: deque[frozenset[OffsetKey]] = field(default_factory=lambda: deque(maxlen=PIECES_KEPT))
    _largest: int = 1

    def restore(self, pieces: Iterable[tuple[int, Sequence[Result]]]) -> None:
        """`pieces`: number and records of each piece that earlier starts published, oldest first."""
        for number, results in pieces:
            self.add(results)
            # Numbering continues, so that new pieces overwrite the oldest ones in the journal.
            self._piece = number & (1 << _PIECE_BITS) - 1

    def add(self, results: Iterable[Result]) -> None:
        self._kept.append(frozenset(key_of(result.offset) for result in results))

    def fresh(self, results: Iterable[Result]) -> list[Result]:
        """The records that are not on the bus, each once."""
        found: dict[OffsetKey, Result] = {}
        for result in results:
            key = key_of(result.offset)
            if key not in found and not any(key in kept for kept in self._kept):
                found[key] = result
        return list(found.values())

    def next_number(self) -> int:
        """The number of the next publish: above those of all earlier starts, so that a replaced reader is refused."""
        self._piece += 1
        return self.epoch << _PIECE_BITS | self._piece

    def weighed(self, size_bytes: int) -> None:
        self._largest = max(self._largest, size_bytes)

    @property
    def batch_records(self) -> int:
        """How many records to ask for, so that a batch fits in memory."""
        return max(1, min(self.max_records, BATCH_BYTES // self._largest))
