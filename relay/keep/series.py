"""One series that is kept fresh: its progress, and its next request. Pure."""

from dataclasses import dataclass, field

import orjson

from candlewright.wire.grid import SECOND, first_open_from, open_containing
from relay.keep.rules import Key, Wanted

#: Candles of one request; the next one follows when it has ended. Where a venue has no candles, each request is twice
#: as long as the last.
REQUEST_CANDLES = 50_000
MAX_DOUBLINGS = 5
#: Candles of one request that checks fetched candles for gaps; proven ones cost no calls.
CHECK_CANDLES = 500_000
CHECK_EVERY = 86_400 * SECOND
#: A candle is requested this long (ns) after its close.
SETTLE_NS = 15 * SECOND
FIRST_RETRY, LAST_RETRY = 60 * SECOND, 3_600 * SECOND


@dataclass(frozen=True, slots=True)
class Asked:
    """An open request for candles with start <= open time < end (ns). `is_check`: it checks candles that were fetched
    before.
    """

    request_id: str
    start: int
    end: int
    is_check: bool
    at: int


@dataclass(kw_only=True, slots=True)
class Series:
    """Times are in ns. All candles of [since, until) were requested, and the venue returned those that it has; it keeps
    none from before `begins`.

    `fresh_at`: when the series was last completely up to date. `checked_until`, `checked_at`: how far the last check
    for gaps has come, and when it began. `ended_at`: when the market stopped trading, or 0; earlier candles are still
    fetched, then the series `is_over`.
    """

    ticker: str
    period_seconds: int
    since: int
    begins: int
    until: int
    checked_until: int
    fresh_at: int = 0
    checked_at: int = 0
    asked: Asked | None = None
    empty_requests: int = 0
    failures: int = 0
    retry_at: int = 0
    error: str = ""
    ended_at: int = 0
    is_over: bool = False
    #: Not stored, since it follows from the rules.
    every: int = field(default=0, compare=False)

    @classmethod
    def begun(cls, key: Key, wanted: Wanted, at: int) -> "Series":
        since = first_open_from(wanted.since, key.period_seconds)
        return cls(
            ticker=key.ticker,
            period_seconds=key.period_seconds,
            since=since,
            begins=since,
            until=since,
            checked_until=since,
            checked_at=at,
            every=wanted.every,
        )

    @classmethod
    def from_bytes(cls, value: bytes) -> "Series":
        """Raises ValueError or TypeError for bytes that are not a series."""
        fields = orjson.loads(value)
        asked = fields.pop("asked")
        return cls(**fields, asked=None if asked is None else Asked(**asked))

    def to_bytes(self) -> bytes:
        return orjson.dumps(self)

    @property
    def key(self) -> Key:
        return Key(self.ticker, self.period_seconds)

    def want(self, wanted: Wanted) -> bool:
        """Note that the market trades and what the rules want; returns whether that is new."""
        since = first_open_from(wanted.since, self.period_seconds)
        is_new = since < self.since or bool(self.ended_at)
        if since < self.since:
            # Stored candles are proven, so requesting them again costs nothing.
            self.since = self.begins = self.until = self.checked_until = since
            self.asked = None
        self.every, self.ended_at, self.is_over = wanted.every, 0, False
        return is_new

    def end(self, at: int) -> int:
        """The end (ns) of the candles that can be requested now."""
        return open_containing((min(at, self.ended_at) if self.ended_at else at) - SETTLE_NS, self.period_seconds)

    def behind(self, at: int) -> int:
        """The number of missing candles, without those that the next regular request will fetch."""
        length = self.end(at) - self.until
        return length // self._period if not self.is_over and length > 2 * self.every else 0

    def is_backfill(self, at: int) -> bool:
        return self.end(at) - self.until > 2 * self.every

    def next_range(self, at: int) -> tuple[int, int, bool] | None:
        """The range to request now, and whether it only checks for gaps; None if there is nothing to do."""
        if self.asked is not None or self.is_over or at < self.retry_at:
            return None
        end = self.end(at)
        if end > self.until and (self.is_backfill(at) or self.ended_at or at >= self.fresh_at + self.every):
            candles = REQUEST_CANDLES << min(self.empty_requests, MAX_DOUBLINGS)
            return self.until, min(end, self.until + candles * self._period), False
        is_begun = self.begins < self.checked_until < self.until
        if is_begun or (at >= self.checked_at + CHECK_EVERY and self.until > self.begins):
            start = self.checked_until if is_begun else self.begins
            return start, min(self.until, start + CHECK_CANDLES * self._period), True
        return None

    def ask(self, asked: Asked) -> None:
        self.asked = asked
        if asked.is_check and asked.start == self.begins:
            self.checked_at = asked.at

    # ---- how a request ended

    def succeeded(self, at: int, *, is_empty: bool, closed_until: int) -> int:
        """Note a success; returns by how many candles the series advanced. `closed_until`: the open time of the first
        candle that had not closed, or 0.
        """
        asked, self.asked = self.asked, None
        assert asked is not None
        self.failures, self.error, self.retry_at = 0, "", 0
        end = min(asked.end, closed_until or asked.end)
        if asked.is_check:
            self.checked_until = end if end < self.until else self.begins
            return 0
        self.fresh_at = asked.at
        self.empty_requests = self.empty_requests + 1 if is_empty else 0
        further = max(end - self.until, 0) // self._period
        self.until = max(end, self.until)
        if not further:
            # The exchange's clock is behind ours.
            self.retry_at = at + self.every
        return further

    def failed(self, at: int, error: str, *, is_final: bool = False) -> None:
        """Note a failure. `is_final`: retrying soon would not help."""
        self.asked, self.error = None, error
        self.failures += 1
        pause = LAST_RETRY if is_final else min(FIRST_RETRY << min(self.failures - 1, 10), LAST_RETRY)
        self.retry_at = at + pause
        if is_final and self.ended_at:
            self.is_over = True

    def skip_to(self, start: int, error: str) -> None:
        """Skip to `start`, because the venue keeps no earlier candle."""
        assert self.asked is not None
        self.until = max(self.asked.end, first_open_from(start, self.period_seconds))
        self.checked_until = self.begins = self.until
        self.asked, self.error = None, error

    @property
    def _period(self) -> int:
        return self.period_seconds * SECOND
