"""Data sets of a stranger, who signs whatever they like: each ends with a fault, in little memory and time."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from core.settings import Settings
from datasets import memory
from datasets.manifest import check, checking, contents, document
from datasets.manifest.document import Body, File, Manifest, ManifestFault
from datasets.manifest.merkle import root_of
from datasets.manifest.signing import sign
from iceberg.tables import OHLC, TICKS

START = 1_704_067_200 * 10**9
MINUTE = 60 * 10**9
TICKER = "BTC/USDT.BINANCE"
NAME = "BINANCE/BTC_USDT-1m.parquet"
TRADES = "BINANCE/BTC_USDT-trades.parquet"


def rows(schema: pa.Schema, times: Any, **changed: Any) -> pa.Table:
    """Rows of a table's columns at these times (ns), whose other values are 1; `changed`: columns with other values."""
    count = len(times)
    texts = {"ticker": TICKER, "source": "exchange", "side": "buy"}
    columns = []
    for field in schema:
        if field.name in changed:
            columns.append(pa.array(changed[field.name], field.type))
        elif field.name == "trade_id":
            columns.append(pa.array(range(count)).cast(field.type))
        elif field.name == "period_seconds":
            columns.append(pa.array(np.full(count, 60), field.type))
        elif pa.types.is_timestamp(field.type):
            columns.append(pa.array(np.asarray(times, np.int64) // 1_000).cast(field.type))
        elif field.name in texts:
            columns.append(pa.repeat(pa.scalar(texts[field.name]), count).cast(field.type))
        elif field.name == "ts_ns":
            columns.append(pa.array(times, field.type))
        else:
            columns.append(pa.array(np.ones(count)).cast(field.type))
    return pa.table(columns, schema=schema)


def minutes(count: int = 3) -> Any:
    return START + np.arange(count) * MINUTE


def entry(folder: Path, name: str = NAME, **said: Any) -> File:
    """The entry of a file, which is true except for `said`."""
    file = folder / name
    first = {
        "path": name, "bytes": 0, "sha256": "0" * 64, "ticker": TICKER, "period_seconds": 60, "rows": 3,
        "first": START, "last": START + 2 * MINUTE, "sources": {"exchange": 3}, "incomplete": 0, "partitions": [],
        "holes": [], "gaps": [], "from_trades": None,
    }  # fmt: skip
    if name == TRADES:
        first |= {"period_seconds": 0, "sources": {}}
    if file.is_file():
        with file.open("rb") as source:
            first |= {"bytes": file.stat().st_size, "sha256": contents.hash_of(source)}
            if "partitions" not in said:
                first["partitions"] = [each for each, _ in contents.partitions_of(source, of_trades=name == TRADES)]
    return File(**first | said)


def stored(folder: Path, table: pa.Table, name: str = NAME, **how: Any) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    pq.write_table(table, folder / name, **how)


def signed(folder: Path, *files: File, **said: Any) -> None:
    """A manifest that the stranger's own key has signed."""
    body = {"format": "candlewright-manifest/1", "made_at": START, "version": "1", "origin": "exchanges"}
    made = Body(**body | {"root": root_of(files), "files": list(files)} | said)
    key, signature = sign(Settings(data_dir=_key_of(folder)).data_dir, made.encoded())
    (folder / "manifest.json").write_bytes(Manifest(body=made, key=key, signature=signature).encoded())


def _key_of(folder: Path) -> Path:
    own = folder.with_name("key")
    own.mkdir(exist_ok=True)
    return own


def faults(folder: Path) -> list[str]:
    try:
        return check(folder / "manifest.json", folder).faults
    except ManifestFault as error:
        return [str(error)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "set"
    found.mkdir()
    return found


def test_the_rows_of_these_tests_are_sound(folder: Path) -> None:
    stored(folder, rows(OHLC.arrow_schema, minutes()))
    stored(folder, rows(TICKS.arrow_schema, minutes()), TRADES)
    signed(folder, entry(folder), entry(folder, TRADES))
    assert faults(folder) == []


# ---- the manifest's text
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (b'{"body":' * 100_000, "Invalid JSON: recursion limit exceeded"),
        (b'{"body":{"made_at":NaN}}', "body.format: Field required"),
        (b'{"body":{"made_at":1e400}}', "body.format: Field required"),
        (b'{"body":{"made_at":' + b"9" * 5_000 + b"}}", "not a valid manifest"),
        (b'{"body":{"files":[' + b",".join([b"{}"] * 100_000) + b"]}}", "body.format: Field required"),
        (b'{"\\ud800":1}', "not a valid manifest"),
        (b'{"body":{},"body":{}}', "body.format: Field required"),
        (b"\xff\xfe{}", "not a valid manifest"),
        (b"", "not a valid manifest"),
    ],
)
def test_a_text_that_is_not_a_manifest_is_named(folder: Path, text: bytes, said: str) -> None:
    (folder / "manifest.json").write_bytes(text)
    (fault,) = faults(folder)
    assert said in fault and len(fault) < 600


def test_a_duplicate_key_is_a_change_of_the_text(folder: Path) -> None:
    signed(folder)
    text = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(text.replace(b'  "made_at"', b'  "made_at": 1,\n  "made_at"', 1))
    assert "the manifest's text was changed" in faults(folder)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"made_at": 1704067200000000000', '"made_at": 99999999999999999999'),
        ('"made_at": 1704067200000000000', '"made_at": -1'),
        ('"period_seconds": 60', '"period_seconds": -60'),
        ('"period_seconds": 60', '"period_seconds": 4294967296'),
        ('"rows": 3', '"rows": -3'),
        ('"first": 1704067200000000000', '"first": 9223372036854775807'),
        ('"exchanges"', f'"{"x" * 5_000}"'),
    ],
)
def test_a_number_that_no_platform_writes_is_refused(folder: Path, old: str, new: str) -> None:
    signed(folder, entry(folder))
    text = (folder / "manifest.json").read_text()
    assert old in text
    (folder / "manifest.json").write_text(text.replace(old, new))
    assert "this is not a valid manifest: body." in faults(folder)[0]


def test_a_manifest_above_the_limit_is_not_parsed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MOST_BYTES", 1 << 20)
    with (folder / "manifest.json").open("wb") as sink:
        sink.truncate(1 << 40)
    assert "has more than 1048576 bytes" in faults(folder)[0]


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a\\..\\x", ".", "a//b", "./a", "a/", "a\0b", ""])
def test_a_path_that_leaves_the_folder_or_has_two_forms_is_refused(folder: Path, name: str) -> None:
    signed(folder, entry(folder, NAME).model_copy(update={"path": name}))
    (fault,) = faults(folder)
    assert fault.startswith("the manifest names a file")


def test_control_characters_of_a_manifest_or_a_file_name_do_not_reach_the_terminal(folder: Path) -> None:
    (folder / "b\x1b]0;mine\x07").write_text("")
    (folder / os.fsdecode(b"c\xff\x9b")).write_text("")
    signed(folder, entry(folder, "a\x1b[2J\u202e.parquet"))
    for output in ("table", "json"):
        args = ["verify", "--manifest", str(folder / "manifest.json"), "--output", output]
        found = CliRunner().invoke(app, args)
        assert found.exit_code == 1 and "a\\x1b[2J\\u202e.parquet is missing" in found.stderr
        assert "b\\x1b]0;mine\\x07 was added" in found.stderr
        assert "\x1b" not in found.output and "\u202e" not in found.stderr
        assert output == "table" or len(json.loads(found.stdout)["faults"]) == 3


# ---- the folder
def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stored(other, rows(OHLC.arrow_schema, minutes()))
    signed(folder, entry(other))
    (folder / "BINANCE").symlink_to(other / "BINANCE")
    assert faults(folder) == ["BINANCE is a link or a device, not a file", f"{NAME} is missing"]
    (folder / "BINANCE").unlink()
    (folder / "BINANCE").mkdir()
    (folder / NAME).symlink_to(other / NAME)
    assert f"{NAME} is a link or a device, not a file" in faults(folder)
    (folder / NAME).unlink()
    (folder / NAME).symlink_to(folder / NAME)
    assert f"{NAME} is a link or a device, not a file" in faults(folder)


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    (folder / "BINANCE").mkdir()
    os.mkfifo(folder / NAME)
    signed(folder, entry(folder))
    assert f"{NAME} is a link or a device, not a file" in faults(folder)


def test_folders_deeper_than_a_path_can_say(folder: Path) -> None:
    signed(folder)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    (fault,) = faults(folder)
    assert fault.endswith("cannot be read: File name too long")


def test_faults_are_listed_up_to_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MOST_FAULTS", 10)
    signed(folder)
    for number in range(30):
        (folder / str(number)).write_text("")
    assert len(faults(folder)) == 11 and faults(folder)[-1].startswith("there are more than 10 faults")


def test_a_file_that_changes_while_it_is_checked_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(folder, rows(OHLC.arrow_schema, minutes()))
    signed(folder, entry(folder))
    hashed = contents.hash_of

    def swap(source: Any) -> str:
        found = hashed(source)
        was = (folder / NAME).stat()
        (folder / NAME).write_bytes((folder / NAME).read_bytes())
        os.utime(folder / NAME, ns=(was.st_atime_ns, was.st_mtime_ns))
        return found

    monkeypatch.setattr(checking, "hash_of", swap)
    assert faults(folder) == [f"{NAME}: it was changed while it was checked"]


def test_candles_are_compared_only_with_the_trades_that_were_proven(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(folder, rows(OHLC.arrow_schema, minutes()))
    stored(folder, rows(TICKS.arrow_schema, minutes()), TRADES)
    beside = document.FromTrades(compared=0, differing=0, opens=[])
    signed(folder, entry(folder, from_trades=beside), entry(folder, TRADES))
    opened = checking.opened

    def swap(folder: Path, path: str) -> Any:
        if path == NAME:
            (folder / TRADES).write_bytes((folder / TRADES).read_bytes())
        return opened(folder, path)

    monkeypatch.setattr(checking, "opened", swap)
    assert faults(folder) == [f"{NAME}: its trades were changed while they were checked"]


# ---- the files
def _of_another_shape(folder: Path) -> None:
    nested = pa.array([1])
    for _ in range(20):
        nested = pa.ListArray.from_arrays([0, 1], nested)
    stored(folder, pa.table({"open_time": nested}))


def _more_rows_than_bytes(folder: Path) -> None:
    stored(folder, rows(OHLC.arrow_schema, np.full(1_000_000, START)), compression="zstd")


def _empty_groups(folder: Path) -> None:
    (folder / NAME).parent.mkdir()
    with pq.ParquetWriter(folder / NAME, OHLC.arrow_schema) as sink:
        for _ in range(10):
            sink.write_table(OHLC.arrow_schema.empty_table())


def _missing_times(folder: Path) -> None:
    stored(folder, rows(OHLC.arrow_schema, minutes(), open_time=[None] * 3))


def _half_a_minute(folder: Path) -> None:
    stored(folder, rows(OHLC.arrow_schema, START + np.array([0, MINUTE // 2, MINUTE])))


def _cut(folder: Path) -> None:
    stored(folder, rows(OHLC.arrow_schema, minutes()))
    (folder / NAME).write_bytes((folder / NAME).read_bytes()[:-9])


def _only_a_footer(folder: Path) -> None:
    (folder / NAME).parent.mkdir()
    (folder / NAME).write_bytes(b"PAR1" + (2**31 - 1).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_of_another_shape, "its columns are not those of candles"),
        (_more_rows_than_bytes, "it claims 1,000,000 rows, more than"),
        (_empty_groups, "its number of rows contradicts its parts"),
        (_missing_times, "a value of open_time is missing"),
        (_half_a_minute, "2024-01 has candles that are not whole periods apart"),
        (_cut, "it cannot be read as Parquet"),
        (_only_a_footer, "it cannot be read as Parquet"),
    ],
)
def test_a_file_that_was_signed_as_it_is_proves_nothing(folder: Path, make: Callable[[Path], None], said: str) -> None:
    make(folder)
    signed(folder, entry(folder, partitions=[]))
    (fault,) = faults(folder)
    assert fault.startswith(NAME) and said in fault
    # An unsigned manifest is read only to name the differences.
    signed(folder, entry(folder, sha256="1" * 64, partitions=[]))
    (fault,) = faults(folder)
    assert fault.startswith(f"{NAME}: its bytes differ from those that were signed")


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1.0])
def test_trades_without_a_price_are_refused_before_bars_are_made_of_them(folder: Path, price: float) -> None:
    stored(folder, rows(TICKS.arrow_schema, minutes(), price=[1.0, price, 1.0]), TRADES)
    stored(folder, rows(OHLC.arrow_schema, minutes(), close=[1.0, price, 1.0]))
    beside = document.FromTrades(compared=0, differing=0, opens=[])
    signed(folder, entry(folder, from_trades=beside), entry(folder, TRADES))
    assert faults(folder) == [
        f"{TRADES}: 2024-01-01 has a price or size that is negative or not a number",
        f"{NAME}: its trades are missing or not as signed, so it cannot be compared with them",
    ]


def test_prices_of_every_size_are_compared(folder: Path) -> None:
    stored(
        folder, rows(TICKS.arrow_schema, minutes(), price=[1e308, 5e-324, 0.1], size=[1e308, 5e-324, 1e-300]), TRADES
    )
    stored(folder, rows(OHLC.arrow_schema, minutes()))
    beside = document.FromTrades(compared=1, differing=1, opens=[START + MINUTE])
    signed(folder, entry(folder, from_trades=beside), entry(folder, TRADES))
    assert faults(folder) == []


@pytest.mark.skipif(not memory._STATUS.exists(), reason="only Linux limits the memory of a process")
def test_values_that_unpack_to_gigabytes_are_not_unpacked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_MOST_MEMORY", 256 << 20)
    # 4 GB in a file of a few kilobytes: every row repeats a dictionary's only text.
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(40_000, np.int32)), pa.array([f"{START}" * 5_000]))
    table = rows(OHLC.arrow_schema, minutes(40_000)).set_column(0, "ticker", texts)
    stored(folder, table, store_schema=False)
    signed(folder, entry(folder, partitions=[]))
    assert faults(folder) == [f"{NAME}: it needs over 256 MiB of memory to be read"]
    signed(folder, entry(folder, sha256="1" * 64, partitions=[]))
    assert faults(folder) == [f"{NAME}: its bytes differ from those that were signed"]
