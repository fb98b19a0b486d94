"""Validates records of the bus for their readers: one check for each kind of message.

Each function returns the reason to reject a message, as a sentence for an operator, or an empty string. A message that
passes cannot overflow its readers' arithmetic: times are within the table's range, counts fit their columns,
enumerations are known, and every list fits in memory.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.grid import LATEST_NS, SECOND, WEEK_SECONDS, count_opens, open_containing, origin_of
from candlewright.wire.ticker import MAX_TICKER_BYTES
from protobuf import records_pb2 as rec

__all__ = [
    "MAX_ID_BYTES",
    "MAX_REVISION",
    "are_sound_bars",
    "problem_with_bar",
    "problem_with_control",
    "problem_with_mark",
    "problem_with_piece",
    "problem_with_proof",
    "problem_with_question",
    "problem_with_request",
    "problem_with_request_done",
    "problem_with_ticker",
    "problem_with_wanted",
]

#: Length limit of request ids, including the suffix of their pieces, and of job and trade ids.
MAX_ID_BYTES = 300
MAX_COUNT = 1 << 53
#: The table numbers revisions on from the highest it has, in 31 bits.
MAX_REVISION = 1 << 30
MAX_PERIODS = 10_000
#: Trades that one aggregate, and all aggregates of one mark, may represent.
MAX_AGGREGATED = 10_000_000
MAX_TEXT_BYTES = 64 << 10


# ---- requests


def problem_with_request(request: rec.Request) -> str:
    """The relay and the broker decide whether its range and period can be served."""
    match request.WhichOneof("body"):
        case "historical":
            return _problem_with_asked(request.historical.request_id, request.historical.ticker)
        case "data":
            if request.data.HasField("realtime") and not _are_periods(request.data.realtime.ohlc_period_seconds):
                return "a period is not between a second and a week"
            return _problem_with_asked(request.data.request_id, request.data.ticker)
        case "control":
            return ""
        case _:
            return "the request is empty"


def _problem_with_asked(request_id: str, ticker: str) -> str:
    return _problem_with_id(request_id) or problem_with_ticker(ticker)


def _problem_with_id(request_id: str) -> str:
    is_sound = 0 < len(request_id.encode()) <= MAX_ID_BYTES
    return "" if is_sound else "the request id is empty or too long"


def _are_periods(seconds: Iterable[int]) -> bool:
    return all(0 < period <= WEEK_SECONDS for period in seconds)


# ---- history_outcomes


def problem_with_piece(done: rec.PieceDone) -> str:
    """Readers of the offsets check them against the bus."""
    if problem := _problem_with_series(done.ticker, done.period_seconds) or _problem_with_range(done):
        return problem
    if not 0 < len(done.request_id.encode()) <= MAX_ID_BYTES or not 0 < len(done.job_id.encode()) <= MAX_ID_BYTES:
        return "the request id or the job id is empty or too long"
    opens = count_opens(done.start_time, done.end_time, done.period_seconds)
    if done.rows > opens or done.expected > opens:
        return f"it is reported with {done.rows} rows and {done.expected} expected in a range of {opens} candles"
    spans = [(span.first_offset, span.last_offset) for span in done.spans]
    if any(first > last or last >= MAX_COUNT for first, last in spans):
        return "a span of offsets ends before it begins"
    if any(left[1] >= right[0] for left, right in pairwise(spans)):
        return "spans of offsets do not ascend"
    pages = sum(last - first + 1 for first, last in spans)
    if pages > done.rows or bool(pages) != bool(done.rows and not done.is_proven):
        return f"{pages} pages for {done.rows} rows"
    return _problem_with_holes(done.holes)


def problem_with_question(question: rec.ProofQuestion) -> str:
    if problem := _problem_with_asked(question.request_id, question.ticker):
        return problem
    if not 0 < question.period_seconds <= WEEK_SECONDS:
        return f"the period of {question.period_seconds} s is not between a second and a week"
    return _problem_with_parts([(each.start_time, each.end_time) for each in question.ranges])


def problem_with_proof(proof: rec.Proof) -> str:
    """Whether its counts are those of its ranges is for the broker to say, who knows the period."""
    parts = [(each.start_time, each.end_time) for each in proof.ranges]
    return _problem_with_id(proof.request_id) or _problem_with_parts(parts)


def _problem_with_parts(ranges: Sequence[tuple[int, int]]) -> str:
    if any(not start < end < LATEST_NS for start, end in ranges):
        return "a part is not a range of times"
    if any(left[1] > right[0] for left, right in pairwise(ranges)):
        return "the parts do not ascend"
    return ""


def problem_with_request_done(done: rec.RequestDone) -> str:
    if problem := _problem_with_series(done.ticker, done.period_seconds) or _problem_with_range(done):
        return problem
    if problem := _problem_with_id(done.request_id):
        return problem
    if done.status not in ing.HistoryReadyNotification.NotificationStatus.values():
        return f"{done.status} is not a status"
    if done.rows >= MAX_COUNT or done.expected >= MAX_COUNT:
        return f"{done.rows} rows, {done.expected} expected: no request has that many"
    if done.closed_until and not done.start_time <= done.closed_until < done.end_time:
        return "the closed part ends outside the range"
    return _problem_with_holes(done.holes)


def _problem_with_range(done: rec.PieceDone | rec.RequestDone) -> str:
    if not done.start_time < done.end_time < LATEST_NS:
        return f"{done.start_time} to {done.end_time} is not a valid time range"
    return ""


def _problem_with_holes(holes: Iterable[cw.TimeRange]) -> str:
    if any(not hole.start_time < hole.end_time < LATEST_NS for hole in holes):
        return "a hole is not a valid time range"
    return ""


def _problem_with_series(ticker: str, period_seconds: int) -> str:
    return problem_with_ticker(ticker) or _problem_with_period(period_seconds)


def _problem_with_period(period_seconds: int) -> str:
    if not 0 < period_seconds <= WEEK_SECONDS:
        return f"the period of {period_seconds} s is not between a second and a week"
    return ""


def problem_with_ticker(ticker: str) -> str:
    if not 0 < len(ticker.encode()) <= MAX_TICKER_BYTES:
        return "the ticker is empty or too long"
    return ""


# ---- ohlc


def problem_with_bar(bar: cw.OHLCV) -> str:
    if problem := _problem_with_series(bar.ticker, bar.period_seconds):
        return problem
    if not 0 < bar.open_time < LATEST_NS:
        return f"the open_time {bar.open_time} is not a time in nanoseconds since 1970, UTC"
    if open_containing(bar.open_time, bar.period_seconds) != bar.open_time:
        return f"the open_time {bar.open_time} is not a multiple of {bar.period_seconds} seconds"
    if bar.trade_count >= MAX_COUNT:
        return f"a bar cannot have {bar.trade_count} trades"
    if bar.revision > MAX_REVISION:
        return f"a bar cannot have {bar.revision} revisions"
    prices = (bar.open, bar.high, bar.low, bar.close)
    if not all(map(math.isfinite, (*prices, bar.volume, bar.quote_volume))):
        return "a price or volume of the bar is not finite"
    if bar.high != max(prices) or bar.low != min(prices) or bar.volume < 0:
        return "the high is not the highest price, the low not the lowest, or the volume is negative"
    return ""


def are_sound_bars(
    tickers: Iterable[str],
    *,
    period_seconds: NDArray[np.int64],
    open_time: NDArray[np.uint64],
    prices: NDArray[np.float64],
    volumes: NDArray[np.float64],
    trade_count: NDArray[np.uint64],
    revision: NDArray[np.int64],
) -> bool:
    """Whether `problem_with_bar` finds nothing in any of these bars, in a tenth of its time.

    `prices`: open, high, low and close, (4, n); `volumes`: volume and quote volume, (2, n); the others: (n,), 0 where a
    bar does not have the field.
    """
    _, high, low, _ = prices
    fits = (open_time > 0) & (open_time < LATEST_NS) & (trade_count < MAX_COUNT) & (revision <= MAX_REVISION)
    is_bar = (high == prices.max(axis=0)) & (low == prices.min(axis=0)) & (volumes[0] >= 0)
    return (
        not any(map(problem_with_ticker, set(tickers)))
        and bool(np.all(fits) and np.isfinite(prices).all() and np.isfinite(volumes).all() and np.all(is_bar))
        and all(
            not _problem_with_period(period)
            and not np.any(
                (open_time[period_seconds == period].astype(np.int64) - origin_of(period)) % (period * SECOND)
            )
            for period in np.unique(period_seconds).tolist()
        )
    )


# ---- trigger_controls


def problem_with_control(control: rec.TriggerControl) -> str:
    """The compiler checks whether its text can run."""
    body = control.WhichOneof("body")
    if body is None:
        return "the control is empty"
    trigger_id = control.remove.trigger_id if body == "remove" else control.register.trigger_id
    if not 0 < len(trigger_id.encode()) <= MAX_ID_BYTES:
        return "the trigger id is empty or too long"
    if body == "remove":
        return ""
    registration = control.register
    if len(registration.sql.encode()) > MAX_TEXT_BYTES:
        return "the text of the trigger is too large"
    # The relay uses the nanosecond of the registration as its version.
    if registration.version >= LATEST_NS:
        return f"{registration.version} is not a valid trigger version"
    if registration.registered_at >= LATEST_NS:
        return f"{registration.registered_at} is not a time in nanoseconds since 1970, UTC"
    return next(filter(None, map(problem_with_ticker, registration.tickers)), "")


# ---- tick_marks


def problem_with_mark(mark: rec.TickMark) -> str:
    if problem := problem_with_ticker(mark.ticker):
        return problem
    if mark.after_sequence >= MAX_COUNT:
        return f"no ticker has {mark.after_sequence} trades"
    match mark.WhichOneof("body"):
        case "wanted":
            return problem_with_wanted(mark.wanted)
        case "covered":
            return _problem_with_times((mark.covered.from_time,))
        case "clock":
            if mark.clock.sequence >= MAX_COUNT:
                return f"no ticker has {mark.clock.sequence} trades"
            return _problem_with_times((mark.clock.exchange_time,))
        case "gap":
            return _problem_with_gap(mark.gap)
        case "seed":
            return _problem_with_seed(mark.seed)
        case _:
            return "the mark is empty"


def _problem_with_times(times: Iterable[int]) -> str:
    late = next((time for time in times if time >= LATEST_NS), None)
    return "" if late is None else f"{late} is not a time in nanoseconds since 1970, UTC"


def problem_with_wanted(wanted: rec.Wanted) -> str:
    if len(wanted.period_seconds) > MAX_PERIODS:
        return f"{len(wanted.period_seconds)} periods; at most {MAX_PERIODS} are allowed"
    if not _are_periods(wanted.period_seconds):
        return "a period is not between a second and a week"
    return ""


def _problem_with_gap(gap: rec.Gap) -> str:
    if any(len(text.encode()) > MAX_ID_BYTES for text in (gap.gap_id, gap.from_trade_id, gap.to_trade_id)):
        return f"an id of the gap has more than {MAX_ID_BYTES} bytes"
    if gap.missing >= MAX_COUNT:
        return f"a gap cannot miss {gap.missing} trades"
    if len(gap.reason.encode()) > MAX_TEXT_BYTES:
        return "the reason of the gap is too long"
    return _problem_with_times((gap.from_time, gap.to_time, gap.detected_at))


def _problem_with_seed(seed: rec.Seed) -> str:
    rows = len(seed.open_time)
    numbers = (seed.open, seed.high, seed.low, seed.close, seed.volume)
    ids = (seed.first_trade_id, seed.last_trade_id)
    optional = (seed.quote_volume, seed.trade_count) if seed.period_seconds else (*ids, seed.quote_volume)
    if any(len(column) != rows for column in numbers) or any(len(column) not in (0, rows) for column in optional):
        return "the columns of the seed differ in length"
    if not all(map(math.isfinite, (number for column in (*numbers, seed.quote_volume) for number in column))):
        return "a price or volume of the seed is not finite"
    if any(volume < 0 for volume in seed.volume):
        return "a volume of the seed is negative"
    if problem := _problem_with_times(seed.open_time):
        return problem
    if 0 in seed.open_time:
        # The table takes no bar that would open there.
        return "an open time of the seed is 0"
    if seed.period_seconds:
        return _problem_with_candles(seed)
    return _problem_with_aggregates(seed.first_trade_id, seed.last_trade_id, rows)


def _problem_with_candles(seed: rec.Seed) -> str:
    if seed.period_seconds > WEEK_SECONDS:
        return f"the period of {seed.period_seconds} s is not between a second and a week"
    origin, period = origin_of(seed.period_seconds), seed.period_seconds * SECOND
    if any((open_time - origin) % period for open_time in seed.open_time):
        return f"an open time of the seed is not a multiple of {seed.period_seconds} seconds"
    if any(count >= MAX_COUNT for count in seed.trade_count):
        return "a candle of the seed cannot have that many trades"
    return ""


def _problem_with_aggregates(first: Sequence[int], last: Sequence[int], rows: int) -> str:
    if not len(first) == len(last) == rows:
        return "the columns of the seed differ in length"
    if any(not low <= high < 1 << 62 for low, high in zip(first, last, strict=True)):
        return "an aggregate ends before it begins"
    counted = sum(high - low + 1 for low, high in zip(first, last, strict=True))
    return f"aggregates of {counted} trades; at most {MAX_AGGREGATED} are allowed" if counted > MAX_AGGREGATED else ""
