"""What stands on the bus of a ticker already: where an ingestor that takes it over goes on."""

from dataclasses import dataclass

from bus import Bus
from bus.topics import TICKS
from core.errors import BadFrame, OffsetOutOfRange
from ingestor.realtime.trade import ORDER, TIME, Trade, trades_of

#: How far back to read: late trades may have been published after the newest one. Where ids are no numbers these trades
#: are all that tells repeats: as many as a venue's longest page, or what it resends on subscribe.
TAIL_TRADES = 1_000


@dataclass(frozen=True, slots=True)
class Tail:
    """`sequence`: the last number given out; `trades`: the newest of them, ascending (none where trimmed)."""

    sequence: int
    trades: list[Trade]

    @property
    def last(self) -> Trade:
        return self.trades[-1]


def read_tail(bus: Bus, ticker: str) -> Tail:
    """Raises BusUnavailable."""
    name = f"TICKS:{ticker}"
    newest = bus.last_sequence(name)
    if newest == 0:
        return Tail(0, [])
    position = bus.locate(TICKS, name, max(1, newest - TAIL_TRADES)) or bus.locate(TICKS, name, newest)
    if position is None:
        return Tail(newest, [])
    trades: list[Trade] = []
    offset, key, reached = position.offset, ticker.encode(), 0
    while reached < newest:
        try:
            found = bus.read(TICKS, position.partition, offset)
        except OffsetOutOfRange:
            break
        if not found:
            break
        offset = found[-1].offset + 1
        for record in found:
            if record.key != key or record.sequence is None:
                continue
            try:
                batch = trades_of(record.value)
            except BadFrame:
                continue
            trades += batch
            reached = record.sequence + len(batch) - 1
    trades.sort(key=lambda trade: (trade[ORDER], trade[TIME]))
    return Tail(newest, trades)
