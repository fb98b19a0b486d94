"""Reads accepted pieces from the bus as rows of `market.ohlc`: exactly the candles that were accepted, or a fault."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from bus import Bus
from bus import topics as bus_topics
from candlewright.wire.errors import BadFrame, CandlewrightError, OffsetOutOfRange
from core.poison import is_poison, reason_of
from flink_replacement_spark.engine.bus_source import read_range
from flink_replacement_spark.history import pages as history_pages
from iceberg import OHLC
from protobuf import records_pb2 as records

#: Spans with at most this many records between them are read together.
_MAX_GAP = 16
#: Partition, first and last offset.
_Stretch = tuple[int, int, int]
#: Pages by the index of their piece.
_Found = dict[int, list[history_pages.Page]]


class PieceFault(CandlewrightError):
    """A piece's rows on the bus differ from what was accepted; the text is a sentence for the client."""


def read_pieces(bus: Bus, pieces: Sequence[records.PieceDone], updated_at_us: int) -> tuple[pa.Table, dict[int, str]]:
    """The candles of all valid pieces, in no order, and the faults of the others by index. Pieces must not overlap.

    All pieces are read and checked together, so that a small piece costs little; only faulty ones are examined one by
    one.
    """
    found = _pages_of(bus, pieces)
    by_series: dict[tuple[str, int], list[int]] = defaultdict(list)
    doubtful = []
    for index, piece in enumerate(pieces):
        if index not in found or _problem_of(found[index], piece):
            doubtful.append(index)
        else:
            by_series[piece.ticker, piece.period_seconds].append(index)
    tables = [OHLC.arrow_schema.empty_table()]
    for indices in by_series.values():
        rows = _candles_of(indices, pieces, found, updated_at_us)
        if short := _miscounted(rows, indices, pieces):
            doubtful += short
            rows = _candles_of([index for index in indices if index not in short], pieces, found, updated_at_us)
        tables.append(rows)
    faults = {}
    for index in doubtful:
        try:
            tables.append(read_piece(bus, pieces[index], updated_at_us))
        except PieceFault as fault:
            faults[index] = str(fault)
    return pa.concat_tables(tables), faults


def _candles_of(indices: Sequence[int], pieces: Sequence[records.PieceDone], found: _Found, now_us: int) -> pa.Table:
    """The candles of pieces of one series, in order."""
    pages = [page for index in indices for page in found[index]]
    rows = [sum(map(len, found[index])) for index in indices]
    starts, ends = (
        np.repeat(np.array([getattr(pieces[index], name) for index in indices], np.int64), rows)
        for name in ("start_time", "end_time")
    )
    return history_pages.candles(pages, starts, ends, updated_at_us=now_us)


def _miscounted(rows: pa.Table, indices: Sequence[int], pieces: Sequence[records.PieceDone]) -> set[int]:
    """The indices of pieces whose number of candles differs from the accepted one."""
    bounds = np.array([(pieces[index].start_time, pieces[index].end_time) for index in indices], np.int64)
    times = rows["open_time"].cast(pa.int64()).to_numpy()
    # Rounded up: open times are whole microseconds.
    counts = np.diff(np.searchsorted(times, -(-bounds // 1_000)), axis=1)[:, 0].tolist()
    return {index for index, count in zip(indices, counts, strict=True) if count != pieces[index].rows}


def _pages_of(bus: Bus, pieces: Sequence[records.PieceDone]) -> _Found:
    """The pages in each piece's spans, without the pieces whose spans cannot be read or decoded."""
    spans = [[(piece.partition, each.first_offset, each.last_offset) for each in piece.spans] for piece in pieces]
    of_job: dict[str, list[int]] = defaultdict(list)
    for index, piece in enumerate(pieces):
        of_job[piece.job_id].append(index)
    found: _Found = {index: [] for index in range(len(pieces))}
    unread: list[_Stretch] = []
    for stretch in _stretches(span for own in spans for span in own):
        partition, first, last = stretch
        try:
            for stored in read_range(bus, bus_topics.HISTORY, partition, first=first, last=last):
                for record in stored:
                    place = partition, record.offset, record.offset
                    try:
                        page = history_pages.decode_page(record.value)
                    except BadFrame:
                        unread.append(place)
                        continue
                    for index in of_job.get(page.job_id, ()):
                        if _touch(spans[index], place):
                            found[index].append(page)
        except Exception as error:
            if not isinstance(error, OffsetOutOfRange) and not is_poison(error):
                raise
            unread.append(stretch)
    for index, own in enumerate(spans):
        if any(_touch(own, place) for place in unread):
            del found[index]
    return found


def _touch(spans: Sequence[_Stretch], other: _Stretch) -> bool:
    partition, first, last = other
    return any(p == partition and a <= last and first <= b for p, a, b in spans)


def _stretches(spans: Iterable[_Stretch]) -> Iterator[_Stretch]:
    """The spans, with neighbouring ones joined."""
    open_one: _Stretch | None = None
    for partition, first, last in sorted(spans):
        if open_one and open_one[0] == partition and first - open_one[2] <= _MAX_GAP:
            open_one = partition, open_one[1], max(open_one[2], last)
            continue
        if open_one:
            yield open_one
        open_one = partition, first, last
    if open_one:
        yield open_one


def read_piece(bus: Bus, piece: records.PieceDone, updated_at_us: int) -> pa.Table:
    """The candles of exactly this piece as rows of `market.ohlc`; raises PieceFault."""
    found: list[history_pages.Page] = []
    with faults_of(piece):
        for span in piece.spans:
            for stored in read_range(
                bus, bus_topics.HISTORY, piece.partition, first=span.first_offset, last=span.last_offset
            ):
                found += pages_of_job((record.value for record in stored), piece)
        return checked_candles(found, piece, updated_at_us)


def pages_of_job(values: Iterator[bytes], piece: records.PieceDone) -> Iterator[history_pages.Page]:
    for value in values:
        page = history_pages.decode_page(value)
        if page.job_id == piece.job_id:
            yield page


def checked_candles(found: Sequence[history_pages.Page], piece: records.PieceDone, updated_at_us: int) -> pa.Table:
    """Rows of the piece; raises PieceFault unless they are of its ticker and period, and as many as were accepted."""
    if problem := _problem_of(found, piece):
        raise PieceFault(problem)
    rows = history_pages.candles(found, piece.start_time, piece.end_time, updated_at_us=updated_at_us)
    if rows.num_rows != piece.rows:
        raise PieceFault(
            f"Piece {piece.piece} ({utc(piece.start_time)} to {utc(piece.end_time)}) was reported with {piece.rows} "
            f"candles, but {rows.num_rows} of that range are on the bus."
        )
    return rows


def _problem_of(found: Sequence[history_pages.Page], piece: records.PieceDone) -> str:
    if any((page.ticker, page.period_seconds) != (piece.ticker, piece.period_seconds) for page in found):
        return f"Piece {piece.piece} holds candles of another ticker or period."
    if names := list(filter(None, map(history_pages.problem_with, found))):
        return f"Piece {piece.piece} holds a {names[0]} that is not a number for the table."
    return ""


@contextmanager
def faults_of(piece: records.PieceDone) -> Iterator[None]:
    """Errors that the records of a piece cause are its fault; a bad environment is not."""
    try:
        yield
    except OffsetOutOfRange as error:
        raise PieceFault(f"The pages of piece {piece.piece} are no longer on the bus: {error}.") from error
    except BadFrame as error:
        raise PieceFault(f"A page of piece {piece.piece} cannot be decoded: {error.text}.") from error
    except Exception as error:
        if not is_poison(error):
            raise
        raise PieceFault(f"The pages of piece {piece.piece} cannot be read: {reason_of(error)}.") from error


def utc(time_ns: int) -> str:
    return f"{np.datetime64(time_ns // 1_000_000_000, 's')}Z"
