"""Publishes what broker and ingestors publish, for tests of the history writer."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bus import Bus, Record
from bus import topics as bus_topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as records

T = TypeVar("T")
MINUTE = 60_000_000_000
TICKER = "BTC/USDT.BINANCE"
Status = ing.HistoryReadyNotification.NotificationStatus


def page(
    job_id: str, minutes: Sequence[int], ticker: str = TICKER, *, close: float = 1.0, source: str = "exchange"
) -> records.HistoryPage:
    count = len(minutes)
    return records.HistoryPage(
        job_id=job_id,
        ticker=ticker,
        period_seconds=60,
        source=source,
        open_time=[minute * MINUTE for minute in minutes],
        open=[1.0] * count,
        high=[9.0] * count,
        low=[0.5] * count,
        close=[close] * count,
        volume=[float(minute) for minute in minutes],
        quote_volume=[2.0] * count,
        trade_count=[7] * count,
    )


@dataclass
class Feed:
    """Publishes pages and outcomes as the broker and its ingestors do."""

    bus: Bus
    ticker: str = TICKER
    outcomes: list[records.HistoryOutcome] = field(default_factory=list)

    def piece(
        self,
        request_id: str,
        minutes: Sequence[int],
        *,
        piece: int = 0,
        pages: Sequence[records.HistoryPage] | None = None,
        rows: int | None = None,
        close: float = 1.0,
        source: str = "exchange",
    ) -> records.PieceDone:
        """Publish the pages of one piece now; `send` publishes its outcome."""
        job_id = f"{request_id}-{piece}-{time.monotonic_ns()}"
        own = pages if pages is not None else [page(job_id, minutes, self.ticker, close=close, source=source)]
        places = self.bus.publish(
            bus_topics.HISTORY,
            [Record(value=p.SerializeToString(), partition_key=self.ticker.encode()) for p in own],
        )
        done = records.PieceDone(
            request_id=request_id,
            piece=piece,
            job_id=own[0].job_id if pages else job_id,
            ticker=self.ticker,
            period_seconds=60,
            start_time=min(minutes) * MINUTE,
            end_time=(max(minutes) + 1) * MINUTE,
            partition=places[0].partition,
            spans=[cw.Span(first_offset=places[0].offset, last_offset=places[-1].offset)],
            rows=len(minutes) if rows is None else rows,
            expected=len(minutes),
        )
        self.outcomes.append(records.HistoryOutcome(piece=done))
        return done

    def done(
        self, request_id: str, rows: int, *, status: Status = ing.HistoryReadyNotification.OK, text: str = ""
    ) -> None:
        self.outcomes.append(
            records.HistoryOutcome(
                request=records.RequestDone(
                    request_id=request_id,
                    ticker=self.ticker,
                    period_seconds=60,
                    start_time=0,
                    end_time=10_000 * MINUTE,
                    status=status,
                    error_message=text,
                    rows=rows,
                    expected=rows,
                    holes=[cw.TimeRange(start_time=3 * MINUTE, end_time=5 * MINUTE)],
                )
            )
        )

    def send(self) -> None:
        values = [outcome.SerializeToString() for outcome in self.outcomes]
        self.send_values(values)
        self.outcomes.clear()

    def send_values(self, values: Sequence[bytes]) -> None:
        key = self.ticker.encode()
        self.bus.publish(bus_topics.HISTORY_OUTCOMES, [Record(value=v, partition_key=key) for v in values])

    def request(self, request_id: str, minutes: Sequence[int], close: float = 1.0) -> None:
        """Carry out a whole request of one piece."""
        self.piece(request_id, minutes, close=close)
        self.done(request_id, len(minutes))
        self.send()


def final_of(bus: Bus, request_id: str) -> ing.HistoryReadyNotification | None:
    content = bus.recall(bus_topics.REGISTRY_FINALS, [request_id])[0]
    return None if content is None else ing.HistoryReadyNotification.FromString(content)


def wait_for(find: Callable[[], T | None], timeout_seconds: float = 30.0) -> T:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if (found := find()) is not None:
            return found
        time.sleep(0.01)
    raise AssertionError("nothing came in time")


def notifications(bus: Bus) -> list[ing.HistoryReadyNotification]:
    found = []
    for partition, state in enumerate(bus.state(bus_topics.NOTIFICATIONS)):
        stored = bus.read(bus_topics.NOTIFICATIONS, partition, state.first) if state.end else []
        found += [ing.HistoryReadyNotification.FromString(record.value) for record in stored]
    return found
