"""Which of several events a cooldown keeps must not depend on how rows are cut into steps.

A pattern with several partitions of a ticker returns the matches of a step partition by partition. Its rows are
therefore fed one by one, so that the matches come in the order in which they are decided.
"""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pyarrow as pa

from candlewright_cep import Clock, Events, TriggerStream
from candlewright_cep.streaming.patterns.match_results import Context
from candlewright_cep.vector import concatenate
from triggers.texts.check import TriggerOptions, groups_rows, takes_turns

__all__ = ["fed"]

_INT64 = pa.int64()


def fed(
    stream: TriggerStream,
    rows: pa.Table,
    clock: Clock,
    *,
    options: TriggerOptions,
    period_ns: int = 0,
    is_own: bool = False,
) -> Events:
    """`TriggerStream.feed`, for a trigger with a cooldown with each ticker's events in the order in which they are
    decided; those that only the passing of time decides in the order of their windows or first rows.

    `period_ns`: from a row's time to the time that it proves to have passed, 0 for trades.
    """
    if not options.cooldown_ns or options.revisions:
        return stream.feed(rows, clock, is_own=is_own)
    if not takes_turns(stream.query):
        found = stream.feed(rows, clock, is_own=is_own)
        is_by_window = groups_rows(stream.query) and found.context is None
        return found.take(np.argsort(found.time, kind="stable")) if is_by_window else found
    parts = []
    for place, (part, reached) in enumerate(_in_turn(rows, clock, stream.query.source.time_columns[0], period_ns)):
        found = stream.feed(part, reached, is_own=is_own)
        if place % 2 == 0 and found.context is not None:
            found = found.take(np.argsort(found.context.first_time, kind="stable"))
        parts.append(found)
    return _together(parts)


def _in_turn(rows: pa.Table, clock: Clock, time_column: str, period_ns: int) -> Iterator[tuple[pa.Table, Clock]]:
    """The next row of each ticker, after the clock alone has reached its time. The last clock is the given one."""
    times = rows.column(time_column).cast(pa.timestamp("ns", "UTC")).cast(_INT64).to_pylist() if rows.num_rows else []
    places: dict[str, list[int]] = {}
    for place, ticker in enumerate(rows.column("ticker").to_pylist() if rows.num_rows else ()):
        places.setdefault(ticker, []).append(place)
    for turn in range(max(map(len, places.values()), default=0)):
        now = {ticker: own[turn] for ticker, own in places.items() if turn < len(own)}
        before, after = _copied(clock), _copied(clock)
        for ticker, place in now.items():
            before.watermarks[ticker] = times[place]
            before.closed.discard(ticker)
            if turn + 1 < len(places[ticker]):
                after.watermarks[ticker] = times[place] + period_ns
                after.closed.discard(ticker)
        yield rows.slice(0, 0), before
        yield rows.take(pa.array(sorted(now.values()))), after
    if not places:
        yield rows, clock


def _copied(clock: Clock) -> Clock:
    return Clock(dict(clock.watermarks), set(clock.closed))


def _together(parts: list[Events]) -> Events:
    found = [part for part in parts if len(part)]
    if len(found) < 2:
        return found[0] if found else parts[-1]
    contexts = [part.context for part in found if part.context is not None]
    context = None
    if len(contexts) == len(found):
        columns = {
            field.name: np.concatenate([getattr(each, field.name) for each in contexts]) for field in fields(Context)
        }
        context = Context(**columns)
    return Events(
        parts[0].fields,
        [concatenate(own) for own in zip(*(part.columns for part in found), strict=True)],
        [ticker for part in found for ticker in part.ticker],
        np.concatenate([part.time for part in found]),
        np.concatenate([part.sequence for part in found]),
        context,
    )
