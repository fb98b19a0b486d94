"""`candlewright verify`: compares stored candles with the exchange, and exported files with their manifest."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, print_rows, say
from candlewright.cli.progress import RequestProgress
from candlewright.client import Client, connect
from candlewright.extensions import PlatformMissing, extension
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.ranges import Ranges
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import format_nanoseconds, to_nanoseconds

if TYPE_CHECKING:
    import pyarrow as pa

VALUES = ("open", "high", "low", "close", "volume", "quote_volume", "trade_count")
COLUMNS = ("ticker", "open_time", "change", "column", "stored", "exchange")
#: `quote_volume` and `trade_count` are compared where both sides have them: not every path of a venue reports them.
_OPTIONAL = frozenset({"quote_volume", "trade_count"})


def verify(
    tickers: Sequence[str],
    *,
    period: str,
    start: str | None,
    end: str | None,
    output: Output,
    data_dir: Path | None,
    config: Path | None,
    timeout: float,
) -> bool:
    """Whether the exchange agrees with the stored candles; prints differences to stdout, the number compared to
    stderr."""
    if not tickers or start is None or end is None:
        raise typer.BadParameter("name tickers with --start and --end, or give --manifest FILE")
    try:
        for ticker in tickers:
            Ticker.parse(ticker)
        period_seconds, first, last = parse_period(period), to_nanoseconds(start), to_nanoseconds(end)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    rows: list[dict[str, Any]] = []
    with connect(settings=settings_for(config, data_dir), timeout=timeout) as c:
        for ticker in tickers:
            found, compared = verified(c, ticker, period_seconds, start=first, end=last)
            what = f"{ticker} {format_period(period_seconds)}"
            say(f"{what}: {compared} stored candles compared, {len(found)} differences")
            rows += found
    if rows:
        print_rows(rows, output, columns=COLUMNS, empty="")
    return not rows


def verify_manifest(
    tickers: Sequence[str], *, manifest: Path, data: Path | None, key: str | None, output: Output
) -> bool:
    """Whether the files are unchanged since they were signed. Needs the platform's packages, but no running
    platform."""
    if tickers:
        raise typer.BadParameter("--manifest checks every file that it names: leave the tickers out")
    check = extension("manifest")
    if check is None:
        raise PlatformMissing("`candlewright verify --manifest`")
    is_same: bool = check(manifest, data, key, output=output)
    return is_same


def verified(
    client: Client, ticker: str, period_seconds: int, *, start: int, end: int
) -> tuple[list[dict[str, Any]], int]:
    """Updates the table; lake.market.ohlc_revisions keeps the previous values."""
    stored = client.load(ticker, period_seconds, start, end).to_arrow()
    with RequestProgress(f"{ticker} {format_period(period_seconds)}") as progress:
        fresh = client.history(ticker, period_seconds, start=start, end=end, refresh=True, progress=progress)
    found = differences(stored, fresh.to_arrow(), fresh.holes)
    return [{"ticker": ticker, **each} for each in found], stored.num_rows


def differences(stored: "pa.Table", fresh: "pa.Table", holes: Ranges = ()) -> list[dict[str, Any]]:
    """One row for each value that changed, and for each candle that only one side has, by time.

    `holes`: where the exchange now has no candle (ns); stored rows there stay. A bar made from trades (source `ticks`)
    is compared like any other: the exchange's candle decides.
    """
    import numpy as np
    import pyarrow.compute as pc

    before, after = (table["open_time"].cast("int64").to_numpy() for table in (stored, fresh))
    for start, end in holes:
        after = after[(after * 1_000 < start) | (after * 1_000 >= end)]
    shared, left, _ = np.intersect1d(before, after, assume_unique=True, return_indices=True)
    right = np.searchsorted(fresh["open_time"].cast("int64").to_numpy(), shared)
    found = [(time, "not at the exchange", "", None, None) for time in np.setdiff1d(before, shared).tolist()]
    found += [(time, "was not stored", "", None, None) for time in np.setdiff1d(after, shared).tolist()]
    for column in VALUES:
        old, new = stored[column].take(left), fresh[column].take(right)
        changed = pc.not_equal(old, new)
        # A comparison with NULL is NULL, which is a difference only if the column must have a value.
        places = np.flatnonzero(pc.fill_null(changed, column not in _OPTIONAL).to_numpy(zero_copy_only=False))
        values = (old.take(places).to_pylist(), new.take(places).to_pylist())
        found += [
            (time, "differs", column, *pair) for time, *pair in zip(shared[places].tolist(), *values, strict=True)
        ]
    in_order = sorted(found, key=lambda each: (each[0], VALUES.index(each[2]) if each[2] else 0))
    names = ("change", "column", "stored", "exchange")
    return [
        {"open_time": format_nanoseconds(time * 1_000), **dict(zip(names, rest, strict=True))}
        for time, *rest in in_order
    ]
