"""The newest messages of one topic, shared by its readers: bounded, with no socket or clock."""

from collections import deque
from dataclasses import dataclass
from itertools import islice

from google.protobuf.message import Message

__all__ = ["Entry", "Ring"]

#: Limits of one topic's messages, for readers that are slightly behind.
MAX_BYTES = 4 << 20
MAX_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """Numbers `first` to `last` of a topic as the text of an event; `last` < `first` if it has no number.

    `message` is the original message, for a reader that begins in the middle of it.
    """

    first: int
    last: int
    kind: str
    data: bytes
    message: Message | None = None

    @property
    def has_numbers(self) -> bool:
        return self.last >= self.first


class Ring:
    """Positions count all entries ever added; a reader remembers the position of its next one."""

    def __init__(self, next_number: int, max_bytes: int = 0, max_entries: int = MAX_ENTRIES) -> None:
        #: The number after the newest one here, and the oldest number from which on all are here.
        self.next_number = next_number
        self.oldest_number = next_number
        self._entries: deque[Entry] = deque()
        self._first_place = 0
        self._bytes = 0
        self._max_bytes = max_bytes or MAX_BYTES
        self._max_entries = max_entries

    @property
    def begin(self) -> int:
        return self._first_place

    @property
    def end(self) -> int:
        return self._first_place + len(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.data)
        if entry.has_numbers:
            self.next_number = entry.last + 1
        while len(self._entries) > 1 and (self._bytes > self._max_bytes or len(self._entries) > self._max_entries):
            dropped = self._entries.popleft()
            self._bytes -= len(dropped.data)
            self._first_place += 1
            if dropped.has_numbers:
                self.oldest_number = dropped.last + 1

    def go_back(self, next_number: int) -> None:
        """From here on, the topic's numbers are assigned again."""
        self.next_number = next_number
        self.oldest_number = min(self.oldest_number, next_number)

    def covers(self, number: int) -> bool:
        """Whether a reader that needs `number` next can continue from here."""
        return self.oldest_number <= number <= self.next_number

    def place_of(self, number: int) -> int:
        """The position at which a reader begins that needs `number` next, which must be covered."""
        for back, entry in enumerate(reversed(self._entries)):
            if entry.has_numbers and entry.last < number:
                return self.end - back
        return self._first_place

    def read(self, place: int, most: int) -> list[Entry] | None:
        """The entries from a position on; None if they are gone because the reader was too slow."""
        if place < self._first_place:
            return None
        return list(islice(self._entries, place - self._first_place, place - self._first_place + most))
