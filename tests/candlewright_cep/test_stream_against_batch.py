"""Any batching of a stream gives the rows of batch evaluation, through snapshots and restarts."""

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from candlewright_cep import SkipFailed, evaluate
from candlewright_cep.matching import bulk
from candlewright_cep.streaming.patterns import match_log, match_stream
from candlewright_cep.streaming.rows import row_log
from candlewright_cep.streaming.rows.release import ReleaseBuffer
from candlewright_cep.streaming.stream import StreamInput, TriggerStream, compile_stream
from tests.candlewright_cep.random_matches import Case, cases
from tests.rounds import rounds

_SETTINGS = settings(
    max_examples=rounds(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


#: After the last row, past all deadlines.
_LATER_NS = 100 * 10**9


def streamed(
    sql: str, table: pa.Table, cuts: list[int], *, restart: bool, clock: bool = False
) -> list[tuple[Any, ...]]:
    """The rows of `table` in batches, then the end of all tickers. `clock`: time advances to the next batch even
    without rows.
    """
    source = StreamInput(table.schema, ("ts",), "ticker")
    query = compile_stream(sql, {"ticks": source}, partitions_close=True)
    running = TriggerStream(query=query)
    buffer = ReleaseBuffer("ts", "ticker")
    found: list[tuple[Any, ...]] = []

    def take(released: pa.Table) -> None:
        nonlocal running
        found.extend(tuple(row.values()) for row in running.feed(released, buffer.clock).table.to_pylist())
        if restart:
            state = running.parts()
            running = TriggerStream(query=query)
            running.restore_parts(state)

    times = table.column("ts").cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
    for start, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        take(buffer.push(table.slice(start, end - start)).rows)
        if clock and times:
            take(buffer.advance({"T": times[end] if end < len(times) else times[-1] + _LATER_NS}))
    take(buffer.close(set(table.column("ticker").to_pylist())))
    return sorted(found, key=repr)


def with_ticker(case: Case) -> pa.Table:
    return case.table.append_column("ticker", pa.array(["T"] * len(case.rows), pa.string()))


def in_batches(
    case: Case, cuts: list[int], *, restart: bool, few_kept: int = 0, partition: str = "", clock: bool = False
) -> None:
    """`few_kept`: fewer retained rows are copied with each batch, and saved with each state. `partition`: columns of
    PARTITION BY, where `s` is the second of the row's time.
    """
    table = with_ticker(case)
    sql = case.sql
    if partition:
        source = "(SELECT *, DATE_TRUNC('SECOND', ts) AS s FROM ticks)"
        sql = sql.replace("FROM ticks MATCH_RECOGNIZE (", f"FROM {source} MATCH_RECOGNIZE (PARTITION BY {partition} ")
    # Both keep ties in arrival order.
    try:
        wanted = sorted((tuple(row.values()) for row in evaluate(sql, table).to_pylist()), key=repr)
    except SkipFailed:
        return
    places = sorted({cut for cut in cuts if cut <= table.num_rows})
    with (
        patch.object(match_stream, "MANY_KEPT", few_kept),
        patch.object(match_stream, "MOST_PIECES", 3),
        patch.object(match_log, "NEWEST_ROWS", few_kept),
        patch.object(row_log, "NEWEST_ROWS", few_kept),
    ):
        assert streamed(sql, table, places, restart=restart, clock=clock) == wanted, (sql, places)


@_SETTINGS
@given(cases(), st.lists(st.integers(0, 7), max_size=6), st.booleans(), st.sampled_from([0, 2, 256]))
def test_a_stream_gives_the_rows_of_the_batch(case: Case, cuts: list[int], restart: bool, few_kept: int) -> None:
    in_batches(case, cuts, restart=restart, few_kept=few_kept)


@_SETTINGS
@given(
    st.one_of(cases(), cases(within=True)),
    st.lists(st.integers(0, 7), max_size=6),
    st.booleans(),
    st.sampled_from(["k", "s", "k, s", "ticker, s", "v, ticker", "ticker, k, s"]),
    st.booleans(),
)
def test_dropping_partitions_changes_no_row(
    case: Case, cuts: list[int], restart: bool, partition: str, clock: bool
) -> None:
    with patch.object(match_stream, "FEW_PARTITIONS", 0):
        in_batches(case, cuts, restart=restart, partition=partition, clock=clock)


@_SETTINGS
@given(cases(), st.lists(st.integers(0, 7), max_size=6), st.booleans(), st.sampled_from([0, 2, 32]))
def test_a_stream_whose_matches_are_found_in_bulk_gives_the_rows_of_the_batch(
    case: Case, cuts: list[int], restart: bool, short: int
) -> None:
    with patch.object(bulk, "FEWEST_ROWS", 0), patch.object(match_stream, "SHORT_ATTEMPT", short):
        in_batches(case, cuts, restart=restart)


@pytest.mark.parametrize("fewest", [0, 1_000])
def test_a_match_comes_with_the_row_that_decides_it(fewest: int) -> None:
    times = pa.array([second * 10**9 for second in range(6)]).cast(pa.timestamp("ns", "UTC"))
    table = pa.table({"ticker": ["T"] * 6, "ts": times, "v": [1.0, 2.0, 3.0, 1.0, 2.0, 1.0]})
    sql = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(v) AS v PATTERN (A B) "
        "DEFINE B AS v > PREV(v)) AS m"
    )
    running = TriggerStream(query=compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",), "ticker")}))
    buffer = ReleaseBuffer("ts", "ticker")
    with patch.object(bulk, "FEWEST_ROWS", fewest):
        fed = [running.feed(buffer.push(table.slice(row, 1)).rows, buffer.clock) for row in range(6)]
    assert [events.table.num_rows for events in fed] == [0, 1, 0, 0, 1, 0]


@_SETTINGS
@given(cases(within=True), st.lists(st.integers(0, 7), max_size=6), st.booleans(), st.booleans())
def test_a_stream_with_within_gives_the_rows_of_the_batch(
    case: Case, cuts: list[int], restart: bool, clock: bool
) -> None:
    in_batches(case, cuts, restart=restart, clock=clock)


@_SETTINGS
@given(cases(within=True, timeouts=True), st.lists(st.integers(0, 7), max_size=6), st.booleans(), st.booleans())
def test_a_stream_with_timeout_rows_gives_the_rows_of_the_batch(
    case: Case, cuts: list[int], restart: bool, clock: bool
) -> None:
    in_batches(case, cuts, restart=restart, clock=clock)
