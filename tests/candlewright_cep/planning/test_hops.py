"""HOP windows as ranges of rows give the same as copying each row into its windows, on a stream as well."""

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerStream, compile_stream, evaluate
from candlewright_cep.planning import hops
from tests.rounds import rounds

_SECOND = 10**9
TEXTS = [
    "SELECT ticker, window_start, window_end, window_time, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS low, "
    "MAX_BY(v, w) AS m FROM {hop} WHERE v > 2 GROUP BY ticker, window_start, window_end, window_time",
    "SELECT window_end, AVG(v) AS mean, STDDEV(v) AS d FROM {hop} GROUP BY window_end HAVING COUNT(*) > 1",
    "SELECT window_start, v % 3 AS k, ticker, SUM(w) AS s, BOOL_OR(v > 5) AS b FROM {hop} "
    "GROUP BY v % 3, window_start, ticker",
    "SELECT HOP_START(ts, {intervals}) AS a, ANY_VALUE(w) AS w, COUNT(w) AS n FROM ticks GROUP BY HOP(ts, {intervals})",
]
INTERVALS = [(1, 5), (2, 5), (3, 3), (5, 2), (1, 1)]


def text(form: str, step: int, size: int) -> str:
    intervals = f"INTERVAL '{step}' SECOND, INTERVAL '{size}' SECOND"
    return form.format(hop=f"TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), {intervals}))", intervals=intervals)


@st.composite
def tables(draw: st.DrawFn, *, in_order: bool) -> pa.Table:
    times = draw(st.lists(st.none() | st.integers(-8, 20), min_size=1, max_size=40))
    if in_order:
        times = sorted(time for time in times if time is not None)
    count = len(times)
    whole = st.lists(st.none() | st.integers(0, 9), min_size=count, max_size=count)
    nanoseconds = [None if time is None else time * _SECOND // 2 for time in times]
    return pa.table(
        {
            "ticker": pa.array(draw(st.lists(st.sampled_from("AB"), min_size=count, max_size=count)), pa.string()),
            "ts": pa.array(nanoseconds, pa.int64()).cast(pa.timestamp("ns", "UTC")),
            "v": pa.array(draw(whole), pa.int64()),
            "w": pa.array([None if v is None else v / 8 for v in draw(whole)], pa.float64()),
        }
    )


def rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Deviations may differ in their last digits."""
    return [{k: float(f"{v:.12g}") if k == "d" and v is not None else v for k, v in row.items()} for row in rows]


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("intervals", INTERVALS)
@settings(max_examples=rounds(20))
@given(data=st.data())
def test_ranges_agree_with_copies(form: str, intervals: tuple[int, int], data: st.DataObject) -> None:
    # For rows of equal time, the order of values depends on the order of arrival.
    table = data.draw(tables(in_order="ANY_VALUE" in form or "MAX_BY" in form))
    sql = text(form, *intervals)
    with patch.object(hops, "has_frames", lambda _: False):
        wanted = evaluate(sql, table).to_pylist()
    assert rounded(evaluate(sql, table).to_pylist()) == rounded(wanted)


def test_a_row_after_the_last_window_and_before_the_next_changes_no_other_key() -> None:
    # Windows of two seconds every five: of the key 0, no row is in any of them.
    table = pa.table(
        {
            "ticker": pa.array(["A", "A", "A"]),
            "ts": pa.array([-3_500_000_000, -1_000_000_000, 9_000_000_000]).cast(pa.timestamp("ns", "UTC")),
            "v": pa.array([1, 0, 0]),
            "w": pa.array([0.5, 1.0, 2.0]),
        }
    )
    found = evaluate(text("SELECT window_start, v, SUM(w) AS s FROM {hop} GROUP BY window_start, v", 5, 2), table)
    assert [(row["v"], row["s"]) for row in found.to_pylist()] == [(1, 0.5)]


@pytest.mark.parametrize("form", TEXTS)
@settings(max_examples=rounds(20))
@given(data=st.data(), intervals=st.sampled_from(INTERVALS), batch=st.integers(1, 9), restart=st.booleans())
def test_any_batching_gives_the_windows_of_the_batch(
    form: str, data: st.DataObject, intervals: tuple[int, int], batch: int, restart: bool
) -> None:
    table = data.draw(tables(in_order=True))
    sql = text(form, *intervals)
    query = compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))})
    stream, buffer = TriggerStream(query=query), ReleaseBuffer("ts", "ticker")
    buffer.advance({"A": -(10**12), "B": -(10**12)})
    found: list[dict[str, Any]] = []
    for start in range(0, table.num_rows, batch):
        found += stream.feed(buffer.push(table.slice(start, batch)).rows, buffer.clock).table.to_pylist()
        if restart:
            state = stream.snapshot()
            stream = TriggerStream(query=query)
            stream.restore(state)
    found += stream.feed(buffer.close({"A", "B"}), buffer.clock).table.to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, evaluate(sql, table).to_pylist()))


def test_a_text_with_a_condition_on_the_window_is_copied() -> None:
    table = pa.table({"ts": pa.array([1, 2, 3]).cast(pa.timestamp("s", "UTC")), "v": [1, 2, 3]})
    sql = (
        "SELECT window_start, SUM(v) AS s FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' SECOND, "
        "INTERVAL '2' SECOND)) WHERE ts > window_start GROUP BY window_start"
    )
    assert evaluate(sql, table).column("s").to_pylist() == [1, 2, 3]
