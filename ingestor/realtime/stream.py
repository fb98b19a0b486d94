"""Orders and de-duplicates one ticker's trades: takes what a socket delivers, and returns what may be published. Pure.

This is a part of `TickJob`, which calls it directly, and not the state of a server.

`DenseStream` is for venues whose ids count up by one: a missing id is a missing trade. `LooseStream` (loose_stream.py)
is for the others, where only a reconnect shows that something may be missing. Times `at` are monotonic seconds.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from candlewright.wire.grid import SECOND
from ingestor.trade import ORDER, TIME, TRADE_ID, Trade

#: How long (s) a missing id may still arrive by itself; exchanges swap pairs, and send blocks up to 800 ms late.
REORDER_SECONDS = 1.5
#: How long (s) after a (re)connection REST is asked whether an idle market missed a trade.
IDLE_CHECK_SECONDS = 1.0
#: After a silence this long (s), REST is asked however quiet the ticker usually is, then at growing intervals, because
#: an exchange may forget a subscription on a live connection.
RECHECK_SECONDS = 300.0
MAX_RECHECK_SECONDS = 3_600.0
#: A silence is unusual if it is UNUSUAL times as long as the usual one, which is averaged over LEARNED_SECONDS.
UNUSUAL = 3.0
LEARNED_SECONDS = 300.0
#: Trades that may wait for a repair; beyond this, the socket is not read.
MAX_WAITING = 20_000
#: Recently released trades to keep, for cutting an exchange's aggregates to the missing ids.
REMEMBERED = 200
#: A lower id this much later than the last trade means that ids restarted, or that the last one was not this
#: exchange's.
ANEW_NS = 60 * SECOND
#: Given-up ranges to remember, since their trades may still arrive.
MAX_LOST = 1_000


@dataclass(frozen=True, slots=True)
class Release:
    """Publish these trades, in this order."""

    trades: Sequence[Trade]


@dataclass(frozen=True, slots=True)
class Repair:
    """Ask REST for the trades after `after`, up to id `until` or trade `until_trade` (both None: up to the newest).

    `is_recheck`: the socket should already have sent all of them.
    """

    after: Trade
    until: int | None = None
    until_trade: Trade | None = None
    is_recheck: bool = False

    def is_reached_by(self, newest: Trade | None, trade_ids: Collection[str]) -> bool:
        """Whether what REST showed, up to `newest`, reaches far enough, since pages lag behind sockets."""
        if self.until is not None:
            return newest is not None and newest[ORDER] >= self.until
        if self.until_trade is not None:
            is_past = newest is not None and newest[TIME] > self.until_trade[TIME]
            return is_past or self.until_trade[TRADE_ID] in trade_ids
        return True


@dataclass(kw_only=True, frozen=True, slots=True)
class Lost:
    """Trades with these ids (or, without ids, of this time) are given up. `missing`: their number; None = unknown."""

    from_id: str
    to_id: str
    from_time: int
    to_time: int
    missing: int | None
    reason: str
    is_repaired: bool = False


Outcome = Release | Repair | Lost


@dataclass(frozen=True, slots=True)
class Repaired:
    """The answer to a Repair. `proven`: the exchange showed all its trades from `after` to the newest, so ids that are
    not among `trades` do not exist. `reason`: why trades are missing, for a row in `gaps`.
    """

    trades: Sequence[Trade]
    proven: bool
    reason: str


@dataclass(kw_only=True, slots=True)
class Counts:
    trades: int = 0
    duplicates: int = 0
    late: int = 0
    gaps: int = 0
    missing: int = 0
    repairs: int = 0
    repaired: int = 0
    absent: int = 0


@dataclass(slots=True)
class Quiet:
    """Learns how long a ticker is usually silent, and detects longer silences. `floor`: a shorter silence (s) is never
    unusual; `usual`: the mean silence, weighted by time, so that bursts do not hide the pauses.
    """

    floor: float = 2.0
    usual: float = 0.0
    since: float = 0.0
    checks: int = 0
    _heard_at: float | None = None

    @property
    def patience(self) -> float:
        """Seconds of silence until REST is asked; doubles each time that REST has nothing new."""
        first = min(max(self.floor, UNUSUAL * self.usual), RECHECK_SECONDS)
        return min(first * float(1 << min(self.checks, 20)), MAX_RECHECK_SECONDS)

    def heard(self, at: float) -> None:
        if self._heard_at is not None:
            gap = at - self._heard_at
            self.usual += (gap - self.usual) * (-math.expm1(-gap / LEARNED_SECONDS) if self.usual else 1.0)
        self._heard_at = at
        self.since, self.checks = at, 0

    def begin(self, at: float) -> None:
        """Begin a silence that is not learned from, because the connection is new or had not sent everything."""
        self._heard_at = None
        self.since, self.checks = at, 0

    def asked(self, at: float) -> None:
        self.since, self.checks = at, self.checks + 1

    def silence(self, at: float) -> float:
        """Seconds since a trade arrived, or since REST was asked."""
        return at - self.since

    def is_unusual(self, at: float) -> bool:
        return self.silence(at) >= self.patience


@dataclass(kw_only=True, slots=True)
class TradeStream(ABC):
    """The common part of the two: the connection, and at most one open request to REST."""

    counts: Counts = field(default_factory=Counts)
    quiet: Quiet = field(default_factory=Quiet)
    is_open: bool = False
    _last: Trade | None = None
    _repair: Repair | None = None
    _connected_at: float | None = None
    _is_checked: bool = False
    _is_stale: bool = False

    @property
    def is_sound(self) -> bool:
        """Connected, and nothing that came before is being looked for: the exchange's clock may be published."""
        return self.is_open and self._is_checked and self._repair is None and not self.waiting

    @property
    @abstractmethod
    def waiting(self) -> int: ...

    @property
    def last(self) -> Trade | None:
        return self._last

    @abstractmethod
    def known(self) -> dict[int, Trade]:
        """Trades by id that an aggregate may have joined with missing ones."""

    @abstractmethod
    def open(self, last: Trade, known: Iterable[Trade] = ()) -> list[Outcome]:
        """Continue after `last`; one without a trade id only gives the time since which no trade was seen."""

    def connected(self, at: float) -> list[Outcome]:
        self._connected_at = at
        self._is_checked = False
        self.quiet.begin(at)
        return []

    def closed(self, at: float) -> list[Outcome]:
        self._connected_at = None
        self._is_checked = False
        self._is_stale = self._repair is not None
        return []

    @abstractmethod
    def came(self, trades: Sequence[Trade], at: float) -> list[Outcome]: ...

    @abstractmethod
    def repaired(self, answer: Repaired, at: float) -> list[Outcome]: ...

    @abstractmethod
    def found_later(self, lost: Lost, answer: Repaired) -> list[Outcome]:
        """What REST shows, when it can be asked again, of what was given up."""

    def ticked(self, at: float) -> list[Outcome]:
        return self._look(at)

    def check(self, at: float) -> list[Outcome]:
        """Ask by REST after an unusual silence, unless something is being looked for; not sound until the answer."""
        if not self.is_sound or self._connected_at is None or self._last is None or not self.quiet.is_unusual(at):
            return []
        self.quiet.asked(at)
        return self._ask(Repair(self._last, is_recheck=True))

    @abstractmethod
    def _look(self, at: float) -> list[Outcome]:
        """Whether it is time to ask for something."""

    def _ask(self, repair: Repair) -> list[Outcome]:
        self._repair = repair
        self.counts.repairs += 1
        return [repair]


@dataclass(kw_only=True, slots=True)
class DenseStream(TradeStream):
    """While `is_open` is False, trades are kept until `open` gives the trade to continue after."""

    reorder_seconds: float = REORDER_SECONDS
    recent: deque[Trade] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _next: int = 0
    _waiting: dict[int, Trade] = field(default_factory=dict)
    _hole_since: float | None = None
    _lost: deque[tuple[int, int, Lost]] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def known(self) -> dict[int, Trade]:
        return {**{trade[ORDER]: trade for trade in self.recent}, **self._waiting}

    def open(self, last: Trade, known: Iterable[Trade] = ()) -> list[Outcome]:
        self.recent.extend(known)
        self._last = last
        self._next = last[ORDER] + 1 if last[ORDER] else 0
        self.is_open = True
        waiting, self._waiting = self._waiting, {}
        return self.came([waiting[order] for order in sorted(waiting)], self._hole_since or 0.0)

    def came(self, trades: Sequence[Trade], at: float) -> list[Outcome]:
        if not trades:
            return []
        self.quiet.heard(at)
        if not self.is_open:
            for trade in trades:
                self._keep(trade)
            return []
        expected = self._next
        if not self._waiting and expected:
            for trade in trades:
                if trade[ORDER] != expected:
                    break
                expected += 1
            else:
                self._is_checked = self._is_checked or self._connected_at is not None
                return [self._release(list(trades))]
        outcomes: list[Outcome] = []
        late: list[Trade] = []
        for trade in trades:
            if trade[ORDER] >= self._next:
                self._keep(trade)
            elif self._last is not None and trade[TIME] > self._last[TIME] + ANEW_NS:
                outcomes += self._begin_anew(self._last, trade)
            else:
                self._old(trade, late, outcomes)
        if late:
            late.sort()
            self.counts.late += len(late)
            self.counts.trades += len(late)
            outcomes.insert(0, Release(late))
        outcomes += self._drain()
        return outcomes + self._look(at)

    def repaired(self, answer: Repaired, at: float) -> list[Outcome]:
        asked, self._repair = self._repair, None
        if asked is None:
            return []
        before = self.counts.trades
        held = len(self._waiting)
        for trade in answer.trades:
            # A page may contain more than was requested, including trades that the socket sends a moment later.
            if trade[ORDER] >= self._next and trade[ORDER] not in self._waiting:
                self._waiting[trade[ORDER]] = trade
        self.counts.repaired += len(self._waiting) - held
        outcomes = self._drain()
        # An answer from before the connection ended does not cover what was missed since.
        self._is_checked = self._is_checked or (self._connected_at is not None and not self._is_stale)
        self._is_stale = False
        until = asked.until
        if until is None:
            until = answer.trades[0][ORDER] - 1 if answer.trades else 0
        while self._waiting and self._next <= until:
            outcomes += self._give_up(min(self._waiting), answer)
            outcomes += self._drain()
        if answer.trades and self.counts.trades > before:
            self._hole_since = None
            if asked.is_recheck:
                self.quiet.begin(at)
        return outcomes + self._look(at)

    def found_later(self, lost: Lost, answer: Repaired) -> list[Outcome]:
        late: list[Trade] = []
        mended: list[Outcome] = []
        for trade in answer.trades:
            if any(first <= trade[ORDER] <= last for first, last, other in self._lost if other is lost):
                self._old(trade, late, mended)
        self.counts.late += len(late)
        self.counts.trades += len(late)
        self.counts.repaired += len(late)
        absent = sum(last - first + 1 for first, last, other in self._lost if other is lost and first)
        if absent and answer.proven:
            self.counts.absent += absent
            self._lost = deque(entry for entry in self._lost if entry[2] is not lost)
            mended.append(replace(lost, is_repaired=True, reason="requested again: the exchange has no others"))
        return [Release(sorted(late)), *mended] if late else mended

    # ---- inside

    def _keep(self, trade: Trade) -> None:
        if trade[ORDER] in self._waiting:
            self.counts.duplicates += 1
        else:
            self._waiting[trade[ORDER]] = trade

    def _release(self, trades: list[Trade]) -> Release:
        self._last = trades[-1]
        self._next = trades[-1][ORDER] + 1
        self.recent.extend(trades[-REMEMBERED:])
        self.counts.trades += len(trades)
        return Release(trades)

    def _drain(self) -> list[Outcome]:
        waiting, order = self._waiting, self._next
        if order == 0:
            # It is not known yet which trade is the first.
            return []
        ready = []
        while (trade := waiting.pop(order, None)) is not None:
            ready.append(trade)
            order += 1
        if not waiting:
            self._hole_since = None
            if ready and self._connected_at is not None:
                self._is_checked = True
        return [self._release(ready)] if ready else []

    def _look(self, at: float) -> list[Outcome]:
        """Request a repair if one is due."""
        if self._repair is not None or not self.is_open or self._last is None:
            return []
        if self._waiting:
            if self._hole_since is None:
                self._hole_since = at
            # Trades lost with a connection will not arrive by themselves.
            if self._is_checked and at - self._hole_since < self.reorder_seconds:
                return []
            return self._ask(Repair(self._last, min(self._waiting) - 1))
        if self._connected_at is not None and not self._is_checked and at - self._connected_at >= IDLE_CHECK_SECONDS:
            return self._ask(Repair(self._last))
        return []

    def _give_up(self, until: int, answer: Repaired) -> list[Outcome]:
        """Continue at id `until`, and give up the missing ids before it."""
        first, self._next = self._next, until
        missing = until - first if first else None
        if answer.proven:
            self.counts.absent += missing or 0
            return []
        before, after = self._last, self._waiting[until]
        lost = Lost(
            from_id=str(first) if first else "",
            to_id=str(until - 1),
            from_time=before[TIME] if before is not None else after[TIME],
            to_time=after[TIME],
            missing=missing,
            reason=answer.reason,
        )
        self.counts.gaps += 1
        self.counts.missing += missing or 0
        self._lost.append((first, until - 1, lost))
        if len(self._lost) > MAX_LOST:
            self._lost.popleft()
        return [lost]

    def _begin_anew(self, last: Trade, trade: Trade) -> list[Outcome]:
        """Restart with lower ids. Trades since `last` that were taken for repeats, or that wait, count as missing."""
        self.counts.gaps += 1
        lost = Lost(
            from_id="",
            to_id="",
            from_time=last[TIME],
            to_time=trade[TIME],
            missing=None,
            reason="the exchange's trade ids start afresh",
        )
        self._waiting.clear()
        self._lost.clear()
        self._next = trade[ORDER]
        self._keep(trade)
        return [*self._drain(), lost]

    def _old(self, trade: Trade, late: list[Trade], outcomes: list[Outcome]) -> None:
        """Handle a trade at or below the last id: it is a repeat, unless its id was given up."""
        order = trade[ORDER]
        entry = next((entry for entry in self._lost if entry[0] <= order <= entry[1]), None)
        if entry is None:
            self.counts.duplicates += 1
            return
        late.append(trade)
        self._lost.remove(entry)
        first, last, lost = entry
        if first < order:
            self._lost.append((first, order - 1, lost))
        if order < last:
            self._lost.append((order + 1, last, lost))
        if not any(other is lost for _, _, other in self._lost):
            outcomes.append(
                Lost(
                    from_id=lost.from_id,
                    to_id=lost.to_id,
                    from_time=lost.from_time,
                    to_time=lost.to_time,
                    missing=lost.missing,
                    reason="came late",
                    is_repaired=True,
                )
            )
