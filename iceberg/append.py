"""Writes without Spark: finds new and changed rows, and appends in commits that can be recognised after a crash."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.update import TableUpdate
from sqlalchemy.exc import SQLAlchemyError

from candlewright.wire.errors import CommitConflict, CommitUnknown
from iceberg.data_files import write_data_files
from iceberg.filters import one_of
from iceberg.read import scan_series
from iceberg.scan import read_rows
from iceberg.tables import COVERAGE, TableDefinition

_KEY = ("ticker", "period_seconds", "open_time")
_ALWAYS_KNOWN = ("open", "high", "low", "close", "volume")
_SOMETIMES_KNOWN = ("quote_volume", "trade_count")


@dataclass(frozen=True, slots=True)
class RowDifference:
    """`new` rows have no counterpart in the table, `changed` rows replace theirs; all others are already stored."""

    new: pa.Table
    changed: pa.Table


def compare_candles(incoming: pa.Table, existing: pa.Table) -> RowDifference:
    """Split `incoming` against `existing`, both unique by (ticker, period_seconds, open_time).

    An exchange's candle is never replaced by one from another source. An optional value that is NULL in `incoming` is
    not a change.
    """
    if existing.num_rows == 0:
        return RowDifference(incoming, incoming.slice(0, 0))
    asked, known = candle_keys(incoming, existing)
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known, asked, sorter=order)
    counterpart = order[np.minimum(place, len(order) - 1)]
    is_known = known[counterpart] == asked
    ours = incoming.filter(pa.array(is_known))
    theirs = existing.take(pa.array(counterpart[is_known]))
    return RowDifference(incoming.filter(pa.array(~is_known)), ours.filter(pa.array(_is_changed(ours, theirs))))


def compare_with_stored(table: Table, incoming: pa.Table) -> RowDifference:
    """`compare_candles` with the rows of `table`. Usually it has none of `incoming`, and then only keys are read."""
    opens = pc.min_max(incoming["open_time"].cast(pa.int64())).as_py()
    scan = partial(
        scan_series,
        table,
        incoming["ticker"].unique().to_pylist(),
        start_ns=opens["min"] * 1_000,
        end_ns=opens["max"] * 1_000 + 1,
    )
    asked, known = candle_keys(incoming, scan(columns=_KEY))
    if not pc.any(pc.is_in(pa.array(asked), value_set=pa.array(known))).as_py():
        return RowDifference(incoming, incoming.slice(0, 0))
    return compare_candles(incoming, scan())


def candle_keys(one: pa.Table, other: pa.Table) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """An integer for each row of both tables, equal exactly where (ticker, period_seconds, open_time) is; open times
    are whole seconds.
    """
    both = pa.concat_tables([table.select(_KEY) for table in (one, other)])
    ticker = both["ticker"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    periods, period = np.unique(both["period_seconds"].to_numpy(), return_inverse=True)
    seconds = both["open_time"].cast(pa.int64()).to_numpy() // 1_000_000
    keys = (ticker * len(periods) + period << 36) + seconds
    return keys[: one.num_rows], keys[one.num_rows :]


def _is_changed(ours: pa.Table, theirs: pa.Table) -> "np.ndarray[Any, np.dtype[np.bool_]]":
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
    return np.asarray(differs & ~loses, dtype=np.bool_)


def is_committed(table: Table, summary: Mapping[str, str]) -> bool:
    """Whether a snapshot that the table still remembers carries all of `summary`."""
    for snapshot in reversed(table.metadata.snapshots):
        if snapshot.summary is not None and all(snapshot.summary.get(key) == value for key, value in summary.items()):
            return True
    return False


class _Append(Transaction):
    """An append that derives the metadata once per change. pyiceberg derives it, with a deep copy of all snapshots,
    each time a step of an append reads it: at a hundred snapshots this was most of the time of a small commit.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._derived: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        base, updates = self._table.metadata, self._updates
        if self._derived is None or self._derived[0] is not base or self._derived[1] is not updates:
            self._derived = base, updates, super().table_metadata
        return self._derived[2]


def _itself(entry: Any, memo: dict[int, Any]) -> Any:
    return entry


# pyiceberg deep-copies the metadata three times per commit. These entries are frozen, so the copies can share them; at
# two hundred snapshots, copying them was most of the time of a small commit.
for _frozen in (Snapshot, SnapshotLogEntry, MetadataLogEntry):
    _frozen.__deepcopy__ = _itself  # type: ignore[assignment,method-assign]


def append(table: Table, rows: pa.Table, summary: Mapping[str, str]) -> None:
    """Commit `rows` as one snapshot that carries `summary`.

    Raises CommitConflict if another writer committed first (nothing was written), and CommitUnknown if the catalog did
    not report an outcome; in that case the data files stay, because a snapshot may name them.
    """
    _commit(table, write_data_files(table, rows), summary)


def _commit(table: Table, files: Sequence[DataFile], summary: Mapping[str, str]) -> None:
    with (
        _committing(table),
        _Append(table) as transaction,
        transaction._append_snapshot_producer(dict(summary)) as producer,
    ):
        for file in files:
            producer.append_data_file(file)


@contextmanager
def _committing(table: Table) -> Iterator[None]:
    try:
        yield
    except (CommitFailedException, ValidationException) as error:
        raise CommitConflict(str(error)) from error
    except (SQLAlchemyError, RESTError) as error:
        raise CommitUnknown(f"{'.'.join(table.name())}: {error}") from error


@contextmanager
def _known_outcome(table: Table, summary: Mapping[str, str]) -> Iterator[None]:
    """After an unknown outcome, look for the commit; raises CommitConflict if it is missing."""
    try:
        yield
    except CommitUnknown as error:
        table.refresh()
        if not is_committed(table, summary):
            raise CommitConflict(str(error)) from error


class LongAppend:
    """One commit of more rows than fit in memory: `add` writes data files, which no reader sees before `commit`. If
    `commit` is never called, the files are orphans, which maintenance deletes.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._files: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        self._files += write_data_files(self._table, rows)

    def commit(self, table: Table, summary: Mapping[str, str]) -> None:
        """Commit all added rows to `table`, which is the table's newest state. Raises as `append_or_find`."""
        with _known_outcome(table, summary):
            _commit(table, self._files, summary)


def append_or_find(table: Table, rows: pa.Table, summary: Mapping[str, str]) -> None:
    """`append`, which after an unknown outcome looks for the commit; raises CommitConflict if it is missing."""
    with _known_outcome(table, summary):
        append(table, rows, summary)


def load_table(catalog: Catalog, definition: TableDefinition) -> Table:
    """The newest state of a table; raises OSError if the catalog or the warehouse cannot be read."""
    with catalog_errors(definition.name):
        return catalog.load_table(definition.identifier)


@contextmanager
def catalog_errors(name: str) -> Iterator[None]:
    """Translate the errors of an unreachable catalog to OSError."""
    try:
        yield
    except (SQLAlchemyError, RESTError, NoSuchTableError) as error:
        raise OSError(f"table {name}: {error}") from error


def written_requests(table: Table, request_ids: Sequence[str]) -> set[str]:
    """Which of these requests have a row in `market.coverage`."""
    found = read_rows(table, COVERAGE, one_of("request_id", request_ids), columns=("request_id",))
    return set(found["request_id"].to_pylist())
