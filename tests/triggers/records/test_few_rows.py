"""Trades that are read one by one, because they are few, give the rows that they give together."""

from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import tick_columns
from candlewright_cep import vector
from triggers.records import rows
from triggers.records.rows import TickIntake

_IDS = st.one_of(
    st.integers(0, 30).map(str),
    st.integers(0, 10**19).map(str),
    st.sampled_from(["007", "1a", "-3", "a", "é", "٣", "+5", "1_0", " 9"]),
)


@st.composite
def _batches(draw: st.DrawFn) -> bytes:
    ids = draw(st.lists(_IDS, min_size=1, max_size=5))
    count = len(ids)
    return tick_columns.encode(
        tick_columns.TickColumns(
            ticker=draw(st.sampled_from(["A/USDT.X", "B/USDT.X", "C/USDT.X"])),
            first_sequence=draw(st.integers(1, 9)),
            timestamp=np.array(draw(st.lists(st.integers(1, 50), min_size=count, max_size=count)), np.int64),
            price=np.array(draw(st.lists(st.sampled_from([1.0, 2.5, np.nan]), min_size=count, max_size=count))),
            size=np.ones(count),
            side=np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), np.uint8),
            trade_id=np.array([text.encode() for text in ids]),
            received_at=np.array(draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)), np.int64),
        )
    )


@given(steps=st.lists(st.lists(_batches(), max_size=3), max_size=4), is_all=st.booleans())
def test_few_trades_give_the_rows_that_they_give_together(steps: list[list[bytes]], is_all: bool) -> None:
    def read(few: int) -> list[tuple[list[dict[str, object]], object]]:
        intake, found = TickIntake(), []
        with patch.object(rows, "_FEW", few):
            for values in steps:
                own = intake.rows(values, None if is_all else frozenset({"price", "side", "trade_id"}))
                found.append((own.to_pylist(), (intake.save(), intake.counted.save(), list(intake.refused.records))))
        return found

    assert read(0) == read(16)


@given(names=st.lists(st.sampled_from("abc"), max_size=9), start=st.integers(0, 3))
def test_few_texts_have_the_distinct_values_that_many_have(names: list[str], start: int) -> None:
    texts = pa.chunked_array([pa.array(names[:start], pa.string()), pa.array(names[start:], pa.string())])
    with patch.object(vector, "_FEW", 0):
        expected = vector.distinct(texts)

    found = vector.distinct(texts)

    assert found[0] == expected[0]
    assert found[1].tolist() == expected[1].tolist()
