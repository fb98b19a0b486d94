"""What a reader of a source remembers, and what it concludes from it: pure decisions."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.errors import CandlewrightError
from gateways.numaflow.server_info import ServerInfo, version_of
from protobuf import source_superset_pb2 as source

Result = source.ReadResponse.Result

#: Records and bytes that are published together, and held in memory at a time.
PIECE_RECORDS = 500
PIECE_BYTES = 16 << 20
#: What one batch may weigh, by the largest record seen.
BATCH_BYTES = 64 << 20
#: Pieces whose offsets are remembered. Acknowledged is what a batch has brought, but never later than after so many of
#: them, so that what comes again is always known.
PIECES_KEPT = 64
PIECES_UNACKNOWLEDGED = PIECES_KEPT // 2
#: The first releases whose streams have handshakes; before them ReadFn was a call with one request.
_FIRST_RELEASES = {"go": (0, 9, 0), "java": (0, 9, 0), "python": (0, 9, 0), "rust": (0, 1, 0)}
#: The first that read a list of offsets in one request. One that does not keeps the last of the list, and says nothing.
_FIRST_WITH_LISTS = {**_FIRST_RELEASES, "rust": (0, 2, 0)}
#: A number of a publish is a start's number and a piece's.
_PIECE_BITS = 32


class SourceRefused(CandlewrightError):
    """The source does not speak as it must: nothing of it is acknowledged until that is mended."""


class SourceHalted(CandlewrightError):
    """A payload does not fit, and the settings say to stop there."""


class OffsetKey(NamedTuple):
    partition_id: int
    offset: bytes


def key_of(offset: source.Offset) -> OffsetKey:
    return OffsetKey(offset.partition_id, offset.offset)


def acknowledges_lists(info: ServerInfo) -> bool:
    """Whether one request may carry many offsets: a released SDK reads lists, the published dialect single offsets.

    Raises SourceRefused for a source that cannot be read.
    """
    if info.protocol not in ("", "uds"):
        raise SourceRefused(f"the source listens by {info.protocol}, and only unix sockets (uds) are read")
    first, version = _FIRST_RELEASES.get(info.language), version_of(info.version)
    if first is None or version is None:
        return False
    if version < first:
        wanted = ".".join(map(str, first))
        raise SourceRefused(
            f"the source is built with the {info.language} SDK {info.version}, whose streams have no handshake: "
            f"{wanted} or later is needed"
        )
    return version >= _FIRST_WITH_LISTS[info.language]


def checked(answer: source.ReadResponse) -> Result:
    """The record of an answer that is no end; raises SourceRefused where one of its parts is missing."""
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
    """`epoch`: the number of this start; later starts have larger ones."""

    epoch: int
    max_records: int
    _piece: int = 0
    _kept: deque[frozenset[OffsetKey]] = field(default_factory=lambda: deque(maxlen=PIECES_KEPT))
    _largest: int = 1

    def restore(self, pieces: Iterable[tuple[int, Sequence[Result]]]) -> None:
        """`pieces`: number and records of what earlier starts published, the oldest first."""
        for number, results in pieces:
            self.published(results)
            # Numbers of pieces go on, so that the newest ones take the place of the oldest where they are written down.
            self._piece = number & (1 << _PIECE_BITS) - 1

    def published(self, results: Iterable[Result]) -> None:
        self._kept.append(frozenset(key_of(result.offset) for result in results))

    def fresh(self, results: Iterable[Result]) -> list[Result]:
        """Those that are not on the bus, each once."""
        found: dict[OffsetKey, Result] = {}
        for result in results:
            key = key_of(result.offset)
            if key not in found and not any(key in kept for kept in self._kept):
                found[key] = result
        return list(found.values())

    def next_number(self) -> int:
        """Of the next publish: above those of all earlier starts, so that a reader that was replaced is refused."""
        self._piece += 1
        return self.epoch << _PIECE_BITS | self._piece

    def weighed(self, size_bytes: int) -> None:
        self._largest = max(self._largest, size_bytes)

    @property
    def batch_records(self) -> int:
        """How many records to ask for, so that a batch fits into memory."""
        return max(1, min(self.max_records, BATCH_BYTES // self._largest))
