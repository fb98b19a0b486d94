"""Decides which request may next ask what the tables prove, or begin without asking. Pure.

The driver answers questions in order and writes the results in batches, so clients can take turns only here. A single
client may have any number of requests under way, from the question to the final. While several clients are active, each
has at most WINDOW, so that another client's request meets short batches and a driver with time.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

from broker.slots.fair_queue import FairQueue
from broker.work import HistoricalRequest

#: Requests of one sender to one venue that have asked but are not yet dispatched. More would not be dispatched sooner,
#: and their answers would take the driver's time from other requests.
MAX_ASKED = 128
#: Requests of one connection, or of one sender, that may be under way while others are active.
WINDOW = 64
#: A client counts as active for this long (s) after it sent a request, or one of its requests asked or ended.
THERE_SECONDS = 30.0
#: A sender and a venue.
_Asker = tuple[str, str]
#: A sender and one of its connections.
_Client = tuple[str, str]
_Key = TypeVar("_Key")


class _Question:
    """A request that is to ask when its client's turn comes."""

    __slots__ = ("is_queued", "lane", "request")

    def __init__(self, request: HistoricalRequest) -> None:
        self.request = request
        self.lane = request.lane
        self.is_queued = False


class Asking:
    """`is_open` returns whether a request has not ended. `at` is monotonic seconds."""

    def __init__(self, is_open: Callable[[HistoricalRequest], bool]) -> None:
        self._is_open = is_open
        #: Requests that are to ask, by asker and connection, which both take turns.
        self._waiting: dict[_Asker, dict[str, FairQueue[_Question]]] = {}
        #: Requests that have asked, by id; some may have been dispatched since.
        self._asked: dict[_Asker, dict[str, HistoricalRequest]] = {}
        #: The asker of each request, until its final.
        self._under_way: dict[str, tuple[_Asker, str]] = {}
        self._of_client: Counter[_Client] = Counter()
        self._of_sender: Counter[str] = Counter()
        #: Active connections by their last activity, and the number of active connections per sender.
        self._there: OrderedDict[_Client, float] = OrderedDict()
        self._connections: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, request: HistoricalRequest, at: float) -> None:
        sender, connection, _ = request.lane
        self._saw((sender, connection), at)
        queues = self._waiting.setdefault((sender, request.venue), {})
        queues.setdefault(connection, FairQueue[_Question]()).add(_Question(request))

    def next(self, at: float) -> HistoricalRequest | None:
        """Take the request that may ask now, if any; it is under way from here on."""
        self._forget_absent(at)
        while (turn := self._turn()) is not None:
            asker, connection = turn
            request = self._take(asker, connection)
            if self._is_open(request):
                client = asker[0], connection
                self._asked.setdefault(asker, {})[request.request_id] = request
                self._under_way[request.request_id] = turn
                self._of_client[client] += 1
                self._of_sender[client[0]] += 1
                self._saw(client, at)
                return request
        return None

    def take_all(self) -> Iterator[HistoricalRequest]:
        """Take all requests that were to ask, in the order of their turns."""
        while self._waiting:
            asker, queues = next(iter(self._waiting.items()))
            request = self._take(asker, next(iter(queues)))
            if self._is_open(request):
                yield request

    def ended(self, request_id: str, at: float) -> None:
        """The final of a request was published."""
        turn = self._under_way.pop(request_id, None)
        if turn is None:
            return
        asker, connection = turn
        asked = self._asked.get(asker, {})
        asked.pop(request_id, None)
        if not asked:
            self._asked.pop(asker, None)
        client = asker[0], connection
        _count_down(self._of_client, client)
        _count_down(self._of_sender, asker[0])
        self._saw(client, at)

    def _take(self, asker: _Asker, connection: str) -> HistoricalRequest:
        """Take the request whose turn it is; its asker and connection go to the end of the line."""
        queues = self._waiting.pop(asker)
        queue = queues.pop(connection)
        question = queue.head()
        assert question is not None
        queue.advance(keep=False)
        if queue:
            queues[connection] = queue
        if queues:
            self._waiting[asker] = queues
        return question.request

    def _turn(self) -> tuple[_Asker, str] | None:
        """Of the connections that may ask, the one that has waited longest."""
        for asker, queues in self._waiting.items():
            sender = asker[0]
            if len(self._connections) > 1 and self._of_sender[sender] >= WINDOW:
                continue
            if len(self._asked.get(asker, ())) >= MAX_ASKED and len(self._undispatched(asker)) >= MAX_ASKED:
                continue
            is_shared = self._connections[sender] > 1
            for connection in queues:
                if not is_shared or self._of_client[sender, connection] < WINDOW:
                    return asker, connection
        return None

    def _undispatched(self, asker: _Asker) -> dict[str, HistoricalRequest]:
        asked = self._asked[asker].items()
        found = {name: each for name, each in asked if not each.was_dispatched and self._is_open(each)}
        self._asked[asker] = found
        return found

    def _saw(self, client: _Client, at: float) -> None:
        if client not in self._there:
            self._connections[client[0]] += 1
        self._there[client] = at
        self._there.move_to_end(client)

    def _forget_absent(self, at: float) -> None:
        while self._there:
            (sender, _), seen_at = next(iter(self._there.items()))
            if at - seen_at < THERE_SECONDS:
                return
            self._there.popitem(last=False)
            _count_down(self._connections, sender)


def _count_down(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
