"""Examples whose answers from reference engines are stored beside the checkout."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import SkipFailed, TriggerRejected, compile_query, evaluate

_FILE = Path(__file__).resolve().parents[3] / "shared" / "cep" / "examples.jsonl"
_TYPES = {
    "varchar": pa.string(),
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp(3)": pa.timestamp("ms"),
    "timestamp(6)": pa.timestamp("us"),
    "timestamp(9)": pa.timestamp("ns"),
}


def _examples() -> list[dict[str, Any]]:
    if not _FILE.is_file():
        return []
    return [json.loads(line) for line in _FILE.read_text().splitlines() if line.strip()]


def _table(example: dict[str, Any]) -> pa.Table:
    columns: list[pa.Array] = []
    for index, (_, name) in enumerate(example["schema"]):
        kind = _TYPES[name]
        values = [row[index] for row in example["rows"]]
        if pa.types.is_timestamp(kind):
            values = [None if value is None else datetime.fromisoformat(value) for value in values]
        columns.append(pa.array(values, kind))
    return pa.table(columns, names=[name for name, _ in example["schema"]])


def _shown(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value


def test_the_examples_are_there() -> None:
    if not _FILE.is_file() and not os.environ.get("CI"):
        pytest.skip("no example file beside the checkout")
    assert len(_examples()) >= 13


@pytest.mark.parametrize("example", _examples(), ids=lambda example: str(example["name"]))
def test_example_has_the_answer_of_the_reference_engine(example: dict[str, Any]) -> None:
    if example["expected"] is None:
        with pytest.raises((TriggerRejected, SkipFailed)):
            evaluate(example["query"], _table(example))
        return
    found = evaluate(example["query"], _table(example))
    rows = [[_shown(value) for value in row.values()] for row in found.to_pylist()]
    assert sorted(rows, key=repr) == sorted(example["expected"], key=repr)


def test_no_example_gets_a_warning() -> None:
    for example in _examples():
        if example["expected"] is not None:
            schemas = {"ticks": _table(example).schema}
            found = compile_query(example["query"], schemas, answers_to_any=True).planned
            assert found == (), example["name"]
