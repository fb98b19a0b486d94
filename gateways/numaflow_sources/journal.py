"""Publishes each piece once: a piece is journalled before it is published, for the successor of a killed reader."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from bus.api import Bus, Record
from bus.dead_letters import Letter, put_aside
from gateways.numaflow_sources.pieces import PIECES_KEPT
from gateways.numaflow_sources.protocol import Result
from protobuf.records_pb2 import NumaflowChunk

TABLE = "numaflow_sources"
#: A log of starts: the offset of a start's record is its number.
STARTS = "__numaflow_sources"


class Journal:
    """The journal of one source. All calls block, may be repeated, and raise BusError."""

    def __init__(self, bus: Bus, name: str, topic: str, *, dead_letters: str) -> None:
        self._bus = bus
        self._name = name
        self._topic = topic
        self._dead_letters = dead_letters
        self._last: NumaflowChunk | None = None

    def begin(self) -> tuple[int, list[NumaflowChunk]]:
        """(the number of this start, the pieces that earlier ones published, oldest first). The last piece may not have
        been published yet if it has records and not only offsets.
        """
        self._bus.create_topic(STARTS, 1)
        (position,) = self._bus.publish(STARTS, [Record(self._name.encode(), partition=0)])
        rows = self._bus.get(TABLE, [self._row(slot) for slot in range(PIECES_KEPT)])
        chunks = [self._read(row) for row in rows if row]
        found = sorted((chunk for chunk in chunks if chunk is not None), key=lambda chunk: chunk.number)
        self._last = found[-1] if found else None
        # Records in an earlier piece: another reader of this source was refused when it tried to publish them.
        return position.offset + 1, [chunk for chunk in found if chunk is self._last or not has_records(chunk)]

    def _read(self, row: bytes) -> NumaflowChunk | None:
        """None for a row that no reader wrote; it is put aside."""
        try:
            chunk = NumaflowChunk.FromString(row)
            for result in chunk.results:
                Result.FromString(result)
        except DecodeError:
            put_aside(self._bus, "gateways", [Letter(TABLE, row, "not a NumaflowChunk", self._name.encode())])
            return None
        return chunk

    def write_down(self, number: int, results: Sequence[Result]) -> None:
        chunk = NumaflowChunk(number=number, results=[result.SerializeToString() for result in results])
        self._bus.put(TABLE, {**self._closed(), self._row(number): chunk.SerializeToString()})
        self._last = chunk

    def close(self) -> None:
        """Note that the last journalled piece is published: from now on only its offsets matter."""
        if rows := self._closed():
            self._bus.put(TABLE, rows)
            self._last = None

    def _closed(self) -> dict[str, bytes]:
        last = self._last
        return {} if last is None else {self._row(last.number): _offsets_only(last).SerializeToString()}

    def publish(self, number: int, records: Sequence[Record], dead: Sequence[Record]) -> None:
        """Publishes once per number, even if another reader repeats it; BusError if a later start has published."""
        self._bus.publish_as(self._topic, records, writer=f"numaflow:{self._name}", number=number)
        self._bus.publish_as(self._dead_letters, dead, writer=f"numaflow:{self._name}:dead", number=number)

    def _row(self, number: int) -> str:
        return f"{self._name}/{number % PIECES_KEPT}"


def has_records(chunk: NumaflowChunk) -> bool:
    """Whether the journal holds more than the offsets."""
    return any(Result.FromString(result).HasField("event_time") for result in chunk.results[:1])


def _offsets_only(chunk: NumaflowChunk) -> NumaflowChunk:
    offsets = [Result(offset=Result.FromString(result).offset) for result in chunk.results]
    return NumaflowChunk(number=chunk.number, results=[offset.SerializeToString() for offset in offsets])
