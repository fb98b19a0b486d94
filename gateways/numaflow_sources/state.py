"""What a source's reader remembers, and what it decides from that: pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from candlewright.wire.errors import CandlewrightError
from gateways.numaflow.server_info import ServerInfo, version_of
from protobuf import source_superset_pb2 as source

Result = source.ReadResponse.Result

#: Records and bytes that are published together, and held in memory at a time.
PIECE_RECORDS = 500
PIECE_BYTES = 16 << 20
#: Size limit of one batch, estimated by the largest record seen.
BATCH_BYTES = 64 << 20
#: Pieces whose offsets are remembered. A batch is acknowledged at its end, and after PIECES_UNACKNOWLEDGED
#: pieces at the latest, so that a repeated record is always recognised.
PIECES_KEPT = 64
PIECES_UNACKNOWLEDGED = PIECES_KEPT // 2
#: The first releases whose streams have handshakes; earlier ones have a ReadFn with a single request.
_FIRST_RELEASES = {"go": (0, 9, 0), "java": (0, 9, 0), "python": (0, 9, 0), "rust": (0, 1, 0)}
#: The first releases that read a list of offsets in one request. Earlier ones silently keep only the last.
_FIRST_WITH_LISTS = {**_FIRST_RELEASES, "rust": (0, 2, 0)}
#: The number of a publish combines the number of the start with that of the piece.
_PIECE_BITS = 32


class SourceRefused(CandlewrightError):
    """The source breaks the protocol: nothing is acknowledged until that is fixed."""


class SourceHalted(CandlewrightError):
    """A payload does not fit, and the settings say to stop."""


class OffsetKey(NamedTuple):
    partition_id: int
    offset: bytes


def key_of(offset: source.Offset) -> OffsetKey:
    return OffsetKey(offset.partition_id, offset.offset)


def acknowledges_lists(info: ServerInfo) -> bool:
    """Whether a request may carry several offsets: released SDKs read lists, the published dialect single offsets.

    Raises SourceRefused if the source cannot be read.
    """
    if info.protocol not in ("", "uds"):
        raise SourceRefused(f"the source listens on {info.protocol}; only unix sockets (uds) are supported")
    first, version = _FIRST_RELEASES.get(info.language), version_of(info.version)
    if first is None or version is None:
        return False
    if version < first:
        wanted = ".".join(map(str, first))
        raise SourceRefused(
            f"the source uses the {info.language} SDK {info.version}, whose streams have no handshake: "
            f"{wanted} or later is needed"
        )
    return version >= _FIRST_WITH_LISTS[info.language]


def checked(answer: source.ReadResponse) -> Result:
    """The record of an answer that does not end the batch; raises SourceRefused if a part of it is missing."""
    if not answer.HasField("result"):
        raise SourceRefused("the source sent a message with neither a result nor the end of the batch")
    result = answer.result
    if not result.offset.offset:
        raise SourceRefused("the source sent a record without an offset")
    if not result.HasField("event_time"):
        raise SourceRefused(f"the source sent a record without an event time: offset {result.offset.offset!r}")
    return result


@dataclass(slots=True)
class ReaderState:
    """`epoch`: the number of this start; it grows with each start."""

    epoch: int
    max_records: int
    _piece: int = 0
    _kept: deque[frozenset[OffsetKey]] = field(default_factory=lambda: deque(maxlen=PIECES_KEPT))
    _largest: int = 1

    def restore(self, pieces: Iterable[tuple[int, Sequence[Result]]]) -> None:
        """`pieces`: number and records of each piece that earlier starts published, oldest first."""
        for number, results in pieces:
            self.published(results)
            # Numbering continues, so that new pieces overwrite the oldest ones in the journal.
            self._piece = number & (1 << _PIECE_BITS) - 1

    def published(self, results: Iterable[Result]) -> None:
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
