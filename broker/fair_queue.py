"""Who is served next: clients take turns, and each client's requests take turns."""

from collections import deque

from broker.requests import Request


class FairQueue:
    """Requests of one venue and kind that have a piece to hand out. A request is in here at most once."""

    def __init__(self) -> None:
        self._clients: deque[str] = deque()
        self._requests: dict[str, deque[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._requests.values()))

    def __bool__(self) -> bool:
        return bool(self._clients)

    def add(self, request: Request) -> None:
        """Put `request` last in its client's turn, unless it waits already."""
        if request.is_queued:
            return
        request.is_queued = True
        turn = self._requests.get(request.client_id)
        if turn is None:
            turn = self._requests[request.client_id] = deque()
            self._clients.append(request.client_id)
        turn.append(request)

    def head(self) -> Request | None:
        return self._requests[self._clients[0]][0] if self._clients else None

    def advance(self, keep: bool) -> None:
        """The head was served: it goes to the end of its client's turn (or out), the client behind the others."""
        client = self._clients.popleft()
        turn = self._requests[client]
        request = turn.popleft()
        if keep:
            turn.append(request)
        else:
            request.is_queued = False
        if turn:
            self._clients.append(client)
        else:
            del self._requests[client]

    def drop_head(self) -> Request:
        """Take the head out without costing its client the turn."""
        client = self._clients[0]
        turn = self._requests[client]
        request = turn.popleft()
        request.is_queued = False
        if not turn:
            self._clients.popleft()
            del self._requests[client]
        return request

    def remove(self, request: Request) -> None:
        if not request.is_queued:
            return
        turn = self._requests[request.client_id]
        turn.remove(request)
        request.is_queued = False
        if not turn:
            del self._requests[request.client_id]
            self._clients.remove(request.client_id)
