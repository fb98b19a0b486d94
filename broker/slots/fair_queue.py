"""Fair turns: senders (a key, else an address) take turns, then a sender's connections, a connection's clients, and a
client's requests.

So a client with many requests delays no other, whatever client ids and connections it uses.
"""

from collections import deque
from typing import Any, Generic, Protocol, TypeVar, Union


class Waiting(Protocol):
    """An item that may wait in a queue. `lane`: sender, connection and client; `is_queued` belongs to the queue."""

    lane: tuple[str, ...]
    is_queued: bool


Item = TypeVar("Item", bound=Waiting)


class _Turns:
    """Names that take turns; each leads to further turns, or to a queue of requests. Never empty once filled."""

    __slots__ = ("children", "names")

    def __init__(self) -> None:
        self.names: deque[str] = deque()
        self.children: dict[str, _Child] = {}

    def child(self, name: str, *, is_last: bool) -> "_Child":
        """The child of this name, created at the end of the line if it is new."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = deque() if is_last else _Turns()
            self.names.append(name)
        return found

    def drop(self, name: str) -> None:
        del self.children[name]
        if self.names[0] == name:
            self.names.popleft()
        else:
            self.names.remove(name)


_Child = Union[_Turns, "deque[Any]"]


class FairQueue(Generic[Item]):
    """Requests of one venue and kind that have a piece to hand out. A request is in here at most once."""

    def __init__(self) -> None:
        self._turns = _Turns()
        #: The same as `len`, without the call.
        self.size = 0
        #: The result of `_path`, until something is removed.
        self._found: tuple[list[_Turns], deque[Item]] | None = None

    def __len__(self) -> int:
        return self.size

    def add(self, request: Item) -> None:
        """Put `request` last in its client's turn, unless it waits already."""
        if request.is_queued:
            return
        request.is_queued = True
        self.size += 1
        child: _Child = self._turns
        last = len(request.lane) - 1
        for depth, name in enumerate(request.lane):
            assert isinstance(child, _Turns)
            child = child.child(name, is_last=depth == last)
        assert isinstance(child, deque)
        child.append(request)

    def head(self) -> Item | None:
        return self._path()[1][0] if self.size else None

    def advance(self, *, keep: bool) -> None:
        """Move on after the head was served: with `keep`, it goes to the end of its client's requests, else it is
        removed; the client goes to the end of its line.
        """
        path, queue = self._path()
        self._found = None
        request = queue.popleft()
        if keep:
            queue.append(request)
        else:
            self._forget(request)
        is_empty = not queue
        for turns in reversed(path):
            name = turns.names[0]
            if is_empty:
                turns.drop(name)
            else:
                turns.names.rotate(-1)
            is_empty = not turns.names

    def drop_head(self) -> Item:
        """Remove the head without using up a turn."""
        path, queue = self._path()
        request = queue.popleft()
        self._forget(request)
        self._prune(path, [turns.names[0] for turns in path], is_empty=not queue)
        return request

    def remove(self, request: Item) -> None:
        if not request.is_queued:
            return
        path: list[_Turns] = []
        child: _Child = self._turns
        for name in request.lane:
            assert isinstance(child, _Turns)
            path.append(child)
            child = child.children[name]
        assert isinstance(child, deque)
        child.remove(request)
        self._forget(request)
        self._prune(path, request.lane, is_empty=not child)

    def _path(self) -> "tuple[list[_Turns], deque[Item]]":
        """The levels whose turn it is, and the requests at the end of them."""
        found = self._found
        if found is None:
            path: list[_Turns] = []
            child: _Child = self._turns
            while isinstance(child, _Turns):
                path.append(child)
                child = child.children[child.names[0]]
            found = self._found = path, child
        return found

    def _prune(self, path: "list[_Turns]", names: "list[str] | tuple[str, ...]", *, is_empty: bool) -> None:
        for turns, name in zip(reversed(path), reversed(names), strict=True):
            if not is_empty:
                return
            turns.drop(name)
            is_empty = not turns.names

    def _forget(self, request: Item) -> None:
        self._found = None
        request.is_queued = False
        self.size -= 1
