"""Imports of trades over real Iceberg tables and a real bus, without Spark."""

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus import topics as bus_topics
from candlewright.wire.errors import CommitConflict
from candlewright.wire.grid import SECOND
from core.imports import Import, differences_of, folder_of, rows_of
from datasets.quality import examine
from flink_replacement_spark.history import trade_importer
from flink_replacement_spark.history.trade_importer import _judge
from iceberg import GAPS, TICKS, LongAppend, append, load_table, read_gaps, read_ticks
from tests.flink_replacement_spark.harness import TICKER
from tests.flink_replacement_spark.history.test_importer import Importing
from tests.fresh_bus import FreshBus

START = 1_735_689_600 * SECOND
SCHEMA = pa.schema([field for field in TICKS.arrow_schema if field.name not in ("ts", "received_at")])


def trade(first: int, last: int = 0, *, size: float = 0.5, price: float = 1.5, shift_ns: int = 0) -> dict[str, Any]:
    """One of each size; an aggregate with `last`."""
    trade_id = f"{first}-{last}" if last > first else str(first)
    total = size * (max(last, first) - first + 1)
    moment = START + first * SECOND + shift_ns
    return {"ticker": TICKER, "trade_id": trade_id, "ts_ns": moment, "price": price, "size": total, "side": "buy"}


class Trades(Importing):
    def file(self, *rows: dict[str, Any]) -> str:
        import_id = uuid.uuid4().hex
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), rows_of(self.settings.data_dir, import_id))
        self.bus.put(bus_topics.TABLE_IMPORTS, {import_id: Import(import_id=import_id, rows=len(rows)).to_bytes()})
        return import_id

    def done(self, *rows: dict[str, Any]) -> str:
        import_id = self.file(*rows)
        self.importer.step()
        return import_id

    def counts(self, *rows: dict[str, Any]) -> tuple[int, int, int]:
        found = self.outcome(self.done(*rows))
        assert found.state == "done", found.error
        return found.new, found.same, found.different

    def store(self, *rows: dict[str, Any]) -> None:
        append(load_table(self.catalog, TICKS), stored(*rows), {})

    def ids(self) -> list[str]:
        found = read_ticks(self.settings, TICKER, start_ns=0, end_ns=2 * START)
        return list(found["trade_id"].to_pylist())

    @property
    def snapshots(self) -> int:
        return len(load_table(self.catalog, TICKS).metadata.snapshots)


def stored(*rows: dict[str, Any]) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    moments = pa.array(table["ts_ns"].to_numpy() // 1_000).cast(pa.timestamp("us", "UTC"))
    table = table.append_column("ts", moments).append_column("received_at", moments)
    return table.select(TICKS.arrow_schema.names).cast(TICKS.arrow_schema)


@pytest.fixture
def bench(tmp_path: Path) -> Trades:
    return Trades(tmp_path, FreshBus())


def test_trades_are_one_commit_and_a_second_run_changes_nothing(bench: Trades, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trade_importer, "_PART_ROWS", 3)
    rows = [trade(each) for each in range(1, 11)]
    assert bench.counts(*rows) == (10, 0, 0)
    assert bench.counts(*rows, trade(11)) == (1, 10, 0)
    assert (len(bench.ids()), bench.snapshots) == (11, 2)
    assert read_ticks(bench.settings, TICKER, start_ns=0, end_ns=2 * START)["received_at"].null_count == 11
    assert [*folder_of(bench.settings.data_dir).iterdir()] == []


def test_stored_trades_stay_and_differences_are_listed(bench: Trades) -> None:
    bench.store(trade(1), trade(2, size=0.25), trade(3, price=9.0))
    import_id = bench.file(*(trade(each) for each in range(1, 5)))
    bench.importer.step()
    found = bench.outcome(import_id)
    assert (found.new, found.same, found.different) == (1, 1, 2)
    listed = pq.read_table(differences_of(bench.settings.data_dir, import_id)).to_pylist()
    assert [(row["stored_trade_id"], row["stored_size"], row["file_size"]) for row in listed] == [
        ("2", 0.25, 0.5),
        ("3", 0.5, 0.5),
    ]
    assert bench.ids() == ["1", "2", "3", "4"]


def test_an_aggregate_and_its_trades_are_stored_once(bench: Trades) -> None:
    bench.store(*(trade(each, shift_ns=(1 - each) * SECOND) for each in (1, 2, 3)), trade(10, 12))
    assert bench.counts(trade(1, 3)) == (0, 1, 0)
    assert bench.counts(*(trade(each, shift_ns=(10 - each) * SECOND) for each in (10, 11, 12, 13))) == (1, 3, 0)
    # The first trade of this aggregate is not stored; the other one has a different size.
    assert bench.counts(trade(0, 3, shift_ns=SECOND), trade(10, 12, size=7)) == (0, 0, 2)


def test_the_same_moment_in_milliseconds_and_in_microseconds(bench: Trades) -> None:
    bench.store(trade(1))
    assert bench.counts(trade(1, shift_ns=999_000)) == (0, 1, 0)
    assert bench.counts(trade(1, shift_ns=1_000_000)) == (0, 0, 1)


def test_trades_without_ids_add_nothing_to_a_minute_with_ids(bench: Trades) -> None:
    rows = [trade(0, shift_ns=second * SECOND) | {"trade_id": f"t{second}.0"} for second in (0, 59, 61, 130, 200)]
    bench.store(trade(0, shift_ns=65 * SECOND))
    assert bench.counts(*rows) == (4, 0, 1)
    assert bench.counts(*rows) == (0, 4, 1)
    assert bench.counts(rows[0] | {"price": 8.0}) == (0, 0, 1)


def test_a_commit_that_fails_leaves_nothing(bench: Trades, monkeypatch: pytest.MonkeyPatch) -> None:
    import_id = bench.file(trade(1))
    with monkeypatch.context() as patched:
        patched.setattr(LongAppend, "commit", _killed)
        with pytest.raises(CommitConflict):
            bench.importer.step()
    assert bench.ids() == [] and bench.outcome(import_id).error == "killed"
    bench.importer.step()
    assert bench.ids() == ["1"] and bench.outcome(import_id).state == "done"


def _killed(*_: object) -> None:
    raise CommitConflict("killed")


@pytest.mark.parametrize("times", [1, 3])
def test_trades_that_another_writer_stores_meanwhile_are_compared_too(
    bench: Trades, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Even if the other writer never stops: the last attempt excludes other writers."""
    left = [*range(1, times + 1)]
    real = trade_importer._judge

    def judge(part: pa.Table, known: pa.Table) -> Any:
        if left:
            bench.store(trade(left.pop()))
        return real(part, known)

    monkeypatch.setattr(trade_importer, "_judge", judge)
    assert bench.counts(*(trade(each) for each in range(1, 6))) == (5 - times, times, 0)
    assert sorted(bench.ids()) == ["1", "2", "3", "4", "5"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_each_id_is_judged_as_one_by_one(data: Any) -> None:
    """Stored and file: intervals of ids, none of which overlap within one of them."""

    def intervals() -> list[tuple[int, int]]:
        ends = sorted(data.draw(st.sets(st.integers(1, 30), max_size=10)))
        kept = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
        starts = [1, *(end + 1 for end in ends)]
        return [pair for pair, keep in zip(zip(starts, ends, strict=False), kept, strict=True) if keep]

    def row(first: int, last: int, price: float) -> dict[str, Any]:
        return trade(first, last, price=price) | {"ts_ns": START}

    table, given_ = intervals(), intervals()
    if not given_:
        return
    odd = data.draw(st.sets(st.integers(1, 30), max_size=2))
    known = stored(*(row(first, last, 2.0 if first in odd else 1.0) for first, last in table))
    known = known.take(pa.array(np.random.default_rng(0).permutation(known.num_rows)))
    judged = _judge(pa.Table.from_pylist([row(first, last, 1.0) for first, last in given_], SCHEMA), known)
    for place, (first, last) in enumerate(given_):
        touched = [(low, high) for low, high in table if low <= last and high >= first]
        assert judged.is_new[place] == (not touched)
        inside = all(first <= low and high <= last for low, high in touched)
        is_whole = inside and sum(high - low + 1 for low, high in touched) == last - first + 1
        is_part = len(touched) == 1 and touched[0][0] <= first and last <= touched[0][1]
        agrees = not any(low in odd for low, _ in touched) and (is_whole or is_part)
        assert judged.is_other[place] == (bool(touched) and not agrees)


def gap(first: object, last: object, begin: int, *, end: int) -> dict[str, Any]:
    return {
        "ticker": TICKER,
        "from_trade_id": str(first),
        "to_trade_id": str(last),
        "from_ts": (START + begin * SECOND) // 1_000,
        "to_ts": (START + end * SECOND) // 1_000,
        "repaired": False,
        "reason": "away",
    }


def test_gaps_whose_trades_are_all_stored_are_repaired(bench: Trades) -> None:
    gaps = [
        gap(3, 6, 2, end=7),
        gap(10, 12, 9, end=13),
        gap("", "", 2, end=7),
        gap("a3", "a6", 2, end=7),
        gap(90, 91, 900, end=901),
    ]
    append(load_table(bench.catalog, GAPS), pa.Table.from_pylist(gaps, GAPS.arrow_schema), {})
    bench.store(trade(2), trade(3), trade(7), trade(9))
    counted = bench.outcome(bench.done(trade(4, 5), trade(6), trade(10), trade(12)))
    assert (counted.new, counted.filled_gaps) == (4, 1)
    found = read_gaps(bench.settings, TICKER).to_pylist()
    assert len(found) == len(gaps)
    repaired = [(row["from_trade_id"], row["reason"]) for row in found if row["repaired"]]
    assert repaired == [("3", "imported from files")]
    assert examine(bench.settings, TICKER, 60, start=START, end=2 * START).gaps_repaired == 1
    assert bench.outcome(bench.done(trade(11))).filled_gaps == 1
    assert bench.outcome(bench.done(trade(11))).filled_gaps == 0
