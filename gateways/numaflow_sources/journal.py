"""Publishing once: what is about to be published is written down first, for the successor of a killed reader."""

from collections.abc import Sequence

from bus.api import Bus, Record
from gateways.numaflow_sources.state import PIECES_KEPT, Result
from protobuf.records_pb2 import NumaflowChunk

TABLE = "numaflow_sources"
#: A log of starts: the offset of its record is the number of a start.
STARTS = "__numaflow_sources"


class Journal:
    """Of one source. All calls block, may be repeated, and raise BusError."""

    def __init__(self, bus: Bus, name: str, topic: str, dead_letters: str) -> None:
        self._bus = bus
        self._name = name
        self._topic = topic
        self._dead_letters = dead_letters
        self._last: NumaflowChunk | None = None

    def begin(self) -> tuple[int, list[NumaflowChunk]]:
        """(the number of this start, what earlier ones published, the oldest first). The last of these may not have
        been published yet if it has records and not offsets only.
        """
        self._bus.create_topic(STARTS, 1)
        (position,) = self._bus.publish(STARTS, [Record(self._name.encode(), partition=0)])
        rows = self._bus.get(TABLE, [self._row(slot) for slot in range(PIECES_KEPT)])
        found = sorted((NumaflowChunk.FromString(row) for row in rows if row), key=lambda chunk: chunk.number)
        self._last = found[-1] if found else None
        # Records before the last: another reader of this source was refused when it wanted to publish them.
        return position.offset + 1, [chunk for chunk in found if chunk is self._last or not has_records(chunk)]

    def write_down(self, number: int, results: Sequence[Result]) -> None:
        chunk = NumaflowChunk(number=number, results=[result.SerializeToString() for result in results])
        self._bus.put(TABLE, {**self._closed(), self._row(number): chunk.SerializeToString()})
        self._last = chunk

    def close(self) -> None:
        """What was written down last is published: of its records only the offsets matter any more."""
        if rows := self._closed():
            self._bus.put(TABLE, rows)
            self._last = None

    def _closed(self) -> dict[str, bytes]:
        last = self._last
        return {} if last is None else {self._row(last.number): _offsets_only(last).SerializeToString()}

    def publish(self, number: int, records: Sequence[Record], dead: Sequence[Record]) -> None:
        """Once for each number, whoever repeats it; BusError when a later start has published."""
        self._bus.publish_as(self._topic, records, writer=f"numaflow:{self._name}", number=number)
        self._bus.publish_as(self._dead_letters, dead, writer=f"numaflow:{self._name}:dead", number=number)

    def _row(self, number: int) -> str:
        return f"{self._name}/{number % PIECES_KEPT}"


def has_records(chunk: NumaflowChunk) -> bool:
    """Whether more than the offsets was written down."""
    return any(Result.FromString(result).HasField("event_time") for result in chunk.results[:1])


def _offsets_only(chunk: NumaflowChunk) -> NumaflowChunk:
    offsets = [Result(offset=Result.FromString(result).offset) for result in chunk.results]
    return NumaflowChunk(number=chunk.number, results=[offset.SerializeToString() for offset in offsets])
