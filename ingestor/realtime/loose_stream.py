"""The stream of a venue whose ids do not count up by one, so only the end of a connection shows that trades may be
missing.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ingestor.realtime.stream import IDLE_CHECK_SECONDS, Lost, Outcome, Release, Repair, Repaired, TradeStream
from ingestor.trade import ORDER, RECEIVED_AT, TIME, TRADE_ID, Trade

#: Ids remembered to recognise repeats, far more than a REST page has or a socket resends.
MAX_SEEN = 10_000


@dataclass(kw_only=True, slots=True)
class LooseStream(TradeStream):
    """Releases the trades of one delivery ordered by (time, numeric id). After a (re)connection, trades wait until REST
    has shown the first of them; then everything between it and the last known trade is complete.
    """

    _seen: "OrderedDict[str, None]" = field(default_factory=OrderedDict)
    _waiting: list[Trade] = field(default_factory=list)
    _is_met: bool = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def known(self) -> dict[int, Trade]:
        return {}

    def open(self, last: Trade, known: Iterable[Trade] = ()) -> list[Outcome]:
        for trade in known:
            self._remember(trade)
        self._last = last
        self.is_open = True
        return []

    def connected(self, at: float) -> list[Outcome]:
        self._is_met = False
        return TradeStream.connected(self, at)

    def closed(self, at: float) -> list[Outcome]:
        self._is_met = False
        return TradeStream.closed(self, at)

    def came(self, trades: Sequence[Trade], at: float) -> list[Outcome]:
        self.quiet.heard(at)
        if self.is_open and self._is_met:
            return self._release(trades)
        self._waiting.extend(trades)
        return self._look(at)

    def repaired(self, answer: Repaired, at: float) -> list[Outcome]:
        asked, self._repair = self._repair, None
        if asked is None or self._is_stale:
            # The connection ended during the REST request, so the trades since are requested again.
            self._is_stale = False
            return self._look(at)
        outcomes: list[Outcome] = []
        fresh = [trade for trade in answer.trades if trade[TRADE_ID] not in self._seen]
        self.counts.repaired += len(fresh)
        if not answer.proven and (fresh or not asked.is_recheck):
            start = asked.after[TIME]
            end = min((trade[TIME] for trade in (*fresh, *self._waiting)), default=start)
            self.counts.gaps += 1
            outcomes.append(
                Lost(
                    from_id=asked.after[TRADE_ID],
                    to_id="",
                    from_time=start,
                    to_time=max(start, end),
                    missing=None,
                    reason=answer.reason,
                )
            )
        self._is_checked = True
        if asked.is_recheck and fresh:
            self.quiet.begin(at)
        if asked.until_trade is None:
            # No trade had arrived before the request; one that arrived since is checked with a separate page.
            return outcomes + self._release(fresh) + self._look(at)
        self._is_met = True
        waiting, self._waiting = self._waiting, []
        return outcomes + self._release([*fresh, *waiting])

    def found_later(self, lost: Lost, answer: Repaired) -> list[Outcome]:
        last = self._last
        within = [
            trade
            for trade in answer.trades
            if lost.from_time <= trade[TIME] <= lost.to_time and trade[TRADE_ID] not in (lost.from_id, lost.to_id)
        ]
        before = self.counts.trades
        outcomes = self._release(within)
        self.counts.repaired += self.counts.trades - before
        # The stream continues after its newest trade; late ones do not matter.
        self._last = last
        if answer.proven:
            outcomes.append(replace(lost, is_repaired=True, reason="requested again"))
        return outcomes

    # ---- inside

    def _look(self, at: float) -> list[Outcome]:
        if self._repair is not None or self._last is None or self._connected_at is None:
            return []
        if self._is_checked and not self._waiting:
            return []
        if not self._waiting and at - self._connected_at < IDLE_CHECK_SECONDS:
            return []
        first = self._waiting[0] if self._waiting else None
        return self._ask(Repair(self._last, until_trade=first))

    def _release(self, trades: Iterable[Trade]) -> list[Outcome]:
        fresh = []
        for trade in trades:
            if trade[TRADE_ID] in self._seen:
                self.counts.duplicates += 1
            else:
                self._remember(trade)
                fresh.append(trade)
        if not fresh:
            return []
        fresh.sort(key=lambda trade: (trade[TIME], trade[ORDER], trade[RECEIVED_AT]))
        last = self._last
        if last is not None:
            self.counts.late += sum(1 for trade in fresh if trade[TIME] < last[TIME])
        if last is None or fresh[-1][TIME] >= last[TIME]:
            self._last = fresh[-1]
        self.counts.trades += len(fresh)
        return [Release(fresh)]

    def _remember(self, trade: Trade) -> None:
        self._seen[trade[TRADE_ID]] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
