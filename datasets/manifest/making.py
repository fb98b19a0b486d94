"""Writes a data set with its manifest: files in the form of `export --to parquet`, and the trades on request."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from candlewright.version import VERSION
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import LATEST_NS, SECOND, count_opens
from candlewright.wire.ranges import common, without
from core.settings import Settings
from datasets.layouts import plain
from datasets.layouts.files import pair_of, replacing, venue_of
from datasets.manifest.contents import from_trades, hash_of, partitions_of
from datasets.manifest.document import MOST_BYTES, Body, File, FromTrades, Gap, Hole, Manifest
from datasets.manifest.merkle import root_of
from datasets.manifest.signing import sign
from datasets.stored import Series, missing_ranges, open_times, read_candles
from iceberg.coverage import read_holes
from iceberg.read import read_gaps, read_ticks, tick_bounds
from iceberg.tables import TICKS

_DAY = 86_400 * SECOND


@dataclass(frozen=True, slots=True)
class DataSet:
    """The data to write. `start`, `end` in ns; None = whatever is stored."""

    series: Sequence[Series]
    start: int | None = None
    end: int | None = None
    with_trades: bool = False
    origin: str = ""


def write(settings: Settings, wanted: DataSet, folder: Path, *, manifest: Path) -> Manifest:
    """Write the files below `folder`, then the manifest.

    Raises CandlewrightError if nothing is stored in the range, or if `folder` has files that are not part of the data
    set.
    """
    trades: dict[str, File] = {}
    if wanted.with_trades:
        for ticker in dict.fromkeys(each.ticker for each in wanted.series):
            if (file := _trades(settings, ticker, wanted, folder)) is not None:
                trades[ticker] = file
    candles = [_candles(settings, each, wanted, folder, trades.get(each.ticker)) for each in wanted.series]
    files = sorted((*filter(None, candles), *trades.values()), key=lambda each: each.path)
    if not files:
        raise CandlewrightError("no candles are stored in this range")
    _check_alone(files, folder, manifest)
    body = Body(
        format="candlewright-manifest/1",
        made_at=time.time_ns(),
        version=VERSION,
        origin=wanted.origin,
        root=root_of(files),
        files=files,
    )
    key, signature = sign(settings.data_dir, body.encoded())
    signed = Manifest(body=body, key=key, signature=signature)
    content = signed.encoded()
    if len(content) > MOST_BYTES:
        raise CandlewrightError(
            f"the manifest has over {MOST_BYTES >> 20} MiB: export fewer tickers or a shorter range"
        )
    with replacing(manifest.absolute()) as draft:
        draft.write_bytes(content)
    return signed


def _check_alone(files: Sequence[File], folder: Path, manifest: Path) -> None:
    known = {folder / each.path for each in files} | {manifest}
    paths = {path.resolve() for path in known}
    other = next((path for path in sorted(folder.rglob("*")) if path.is_file() and path.resolve() not in paths), None)
    if other is not None:
        raise CandlewrightError(f"{other} is not part of this data set: choose an empty folder with --dir")


def _candles(settings: Settings, series: Series, wanted: DataSet, folder: Path, trades: File | None) -> File | None:
    candles = read_candles(settings, series.ticker, series.period_seconds, start=wanted.start, end=wanted.end)
    if not candles.table.num_rows:
        return None
    (file,) = plain.parquet(candles, folder)
    missing = missing_ranges(open_times(candles.table), series.period_seconds)
    known = read_holes(settings, series.ticker, series.period_seconds) if missing else []
    venue = common(missing, known)
    reasons = [(each, "venue") for each in venue] + [(each, "not_stored") for each in without(missing, venue)]
    holes = [
        Hole(start=start, end=end, candles=count_opens(start, end, series.period_seconds), reason=reason)  # type: ignore[arg-type]
        for (start, end), reason in sorted(reasons)
    ]
    beside: FromTrades | None = None
    if trades is not None:
        with (folder / trades.path).open("rb") as source:
            beside = from_trades([candles.table], source, series.period_seconds)
    sources = Counter(str(each) for each in candles.table["source"].to_pylist())
    return _file(
        file, folder, series.ticker, series.period_seconds, open_times(candles.table).tolist(),
        sources=dict(sources), incomplete=candles.incomplete, holes=holes, from_trades=beside,
    )  # fmt: skip


def _trades(settings: Settings, ticker: str, wanted: DataSet, folder: Path) -> File | None:
    """Write the ticker's trades to one file, with a row group per day; None if it has none."""
    start, end = wanted.start or 0, LATEST_NS if wanted.end is None else wanted.end
    bounds = tick_bounds(settings, ticker, start_ns=start, end_ns=end)
    if bounds is None:
        return None
    file = folder / venue_of(ticker) / f"{pair_of(ticker, '_')}-trades.parquet"
    first: list[int] = []
    last = 0
    with replacing(file) as draft, pq.ParquetWriter(draft, TICKS.arrow_schema, compression="zstd") as writer:
        for day in range(bounds[0] // _DAY * _DAY, bounds[1], _DAY):
            rows = _in_order(read_ticks(settings, ticker, start_ns=max(day, start), end_ns=min(day + _DAY, end)))
            if rows.num_rows:
                writer.write_table(rows, row_group_size=rows.num_rows)
                first, last = first or [rows["ts_ns"][0].as_py()], rows["ts_ns"][-1].as_py()
    if not first:
        file.unlink()
        return None
    gaps = [_gap(row) for row in read_gaps(settings, ticker).to_pylist() if not row["repaired"]]
    inside = [each for each in gaps if each.start <= last and each.end >= first[0]]
    return _file(file, folder, ticker, 0, [first[0], last], gaps=inside)


def _in_order(trades: pa.Table) -> pa.Table:
    """Trades ordered by time, then by id."""
    wide = trades.append_column("width", pc.binary_length(trades["trade_id"]))
    keys = [(name, "ascending") for name in ("ts_ns", "width", "trade_id")]
    return trades.take(pc.sort_indices(wide, sort_keys=keys))


def _gap(row: dict[str, Any]) -> Gap:
    return Gap(
        from_trade_id=row["from_trade_id"], to_trade_id=row["to_trade_id"], start=_nanoseconds(row["from_ts"]),
        end=_nanoseconds(row["to_ts"]), missing=row["missing"], reason=row["reason"],
    )  # fmt: skip


def _nanoseconds(moment: datetime | None) -> int:
    if moment is None:
        return 0
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000


def _file(
    file: Path,
    folder: Path,
    ticker: str,
    period_seconds: int,
    times: Sequence[int],
    *,
    sources: dict[str, int] | None = None,
    incomplete: int = 0,
    holes: Sequence[Hole] = (),
    gaps: Sequence[Gap] = (),
    from_trades: FromTrades | None = None,
) -> File:
    with file.open("rb") as source:
        partitions = [each for each, _ in partitions_of(source, of_trades=not period_seconds)]
        sha256 = hash_of(source)
    return File(
        path=file.relative_to(folder).as_posix(),
        bytes=file.stat().st_size,
        sha256=sha256,
        ticker=ticker,
        period_seconds=period_seconds,
        rows=sum(each.rows for each in partitions),
        first=times[0],
        last=times[-1],
        sources=sources or {},
        incomplete=incomplete,
        partitions=partitions,
        holes=list(holes),
        gaps=list(gaps),
        from_trades=from_trades,
    )
