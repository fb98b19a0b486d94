"""Writing without Spark: what is new or changed, and appends that can be recognised after a crash."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from core.errors import CommitConflict, CommitUnknown

_ALWAYS_KNOWN = ("open", "high", "low", "close", "volume")
_SOMETIMES_KNOWN = ("quote_volume", "trade_count")


@dataclass(frozen=True, slots=True)
class RowDifference:
    """`new` rows have no counterpart in the table, `changed` ones replace theirs; the rest stands there already."""

    new: pa.Table
    changed: pa.Table


def compare_candles(incoming: pa.Table, existing: pa.Table) -> RowDifference:
    """Split `incoming` against `existing`, both of one ticker and period and unique by open_time.

    A candle of the exchange is never replaced by one from another source. An unknown optional value is no change.
    """
    if existing.num_rows == 0:
        return RowDifference(incoming, incoming.slice(0, 0))
    known = existing["open_time"].cast(pa.int64()).to_numpy()
    asked = incoming["open_time"].cast(pa.int64()).to_numpy()
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known, asked, sorter=order)
    counterpart = order[np.minimum(place, len(order) - 1)]
    is_known = known[counterpart] == asked
    ours = incoming.filter(pa.array(is_known))
    theirs = existing.take(pa.array(counterpart[is_known]))
    return RowDifference(incoming.filter(pa.array(~is_known)), ours.filter(pa.array(_is_changed(ours, theirs))))


def _is_changed(ours: pa.Table, theirs: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    differs = np.zeros(ours.num_rows, dtype=bool)
    for name in _ALWAYS_KNOWN:
        differs |= ours[name].to_numpy().view(np.int64) != theirs[name].to_numpy().view(np.int64)
    for name in _SOMETIMES_KNOWN:
        is_given = ours[name].is_valid().to_numpy()
        was_given = theirs[name].is_valid().to_numpy()
        same = ours[name].fill_null(0).to_numpy() == theirs[name].fill_null(0).to_numpy()
        differs |= is_given & ~(was_given & same)
    our_source, their_source = (side["source"].to_numpy(zero_copy_only=False) for side in (ours, theirs))
    differs |= our_source != their_source
    differs |= ours["complete"].to_numpy() != theirs["complete"].to_numpy()
    loses = (their_source == "exchange") & (our_source != "exchange")
    return differs & ~loses


def is_committed(table: Table, summary: Mapping[str, str]) -> bool:
    """Whether a snapshot that the table still remembers carries all of `summary`."""
    for snapshot in reversed(table.metadata.snapshots):
        if snapshot.summary is not None and all(snapshot.summary.get(key) == value for key, value in summary.items()):
            return True
    return False


def append(table: Table, rows: pa.Table, summary: Mapping[str, str]) -> None:
    """Commit `rows` as one snapshot that carries `summary`.

    Raises CommitConflict when somebody else committed (nothing was written), CommitUnknown when the catalog did not
    say; files are left alone then, because a snapshot may name them.
    """
    try:
        table.append(rows, snapshot_properties=dict(summary))
    except (CommitFailedException, ValidationException) as error:
        raise CommitConflict(str(error)) from error
    except SQLAlchemyError as error:
        raise CommitUnknown(f"{'.'.join(table.name())}: {error}") from error


def append_or_find(table: Table, rows: pa.Table, summary: Mapping[str, str]) -> None:
    """`append`, and after an unknown outcome look whether it is there; raises CommitConflict when it is not."""
    try:
        append(table, rows, summary)
    except CommitUnknown as error:
        table.refresh()
        if not is_committed(table, summary):
            raise CommitConflict(str(error)) from error
