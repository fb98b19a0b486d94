"""Files as venues and tools write them, and their possible faults."""

import gzip
import hashlib
import math
import os
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather
from pyarrow import parquet as pq

from candlewright.wire.ticker import Ticker
from datasets.archives import FORMATS, BadFile, Candles, Wanted, binance, files, freqtrade, together
from tests.datasets.archives.bomb import write_bomb
from tests.rounds import rounds

BTC = Wanted(Ticker.parse("BTC/USDT.BINANCE"))
XBT = Wanted(Ticker.parse("BTC/USD.KRAKEN"))
START = 1_704_067_200


def klines(count: int = 3, *, unit: int = 1_000, start: int = START) -> list[list[str]]:
    rows = []
    for number in range(count):
        opens = (start + 60 * number) * unit
        values = ["100.5", "101.25", "99.75", "100.0", "12.5"]
        rows.append([str(opens), *values, str(opens + 60 * unit - 1), "1250.5", "42", "6.0", "600.0", "0"])
    return rows


def text_of(rows: Sequence[Sequence[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in rows)


def archived(folder: Path, rows: Sequence[Sequence[str]], name: str = "BTCUSDT-1m-2024-01") -> Path:
    file = folder / f"{name}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(f"{name}.csv", text_of(rows))
    return file


def read(file: Path, wanted: Wanted = BTC, of: str = "binance-klines") -> Candles:
    return FORMATS[of](file, wanted)


def seconds(candles: Candles) -> list[int]:
    return [time // 1_000_000 for time in candles.table["open_time"].cast(pa.int64()).to_pylist()]


@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_binance_klines_in_milliseconds_and_in_microseconds(tmp_path: Path, unit: int) -> None:
    candles = read(archived(tmp_path, klines(unit=unit)))
    assert seconds(candles) == [START, START + 60, START + 120]
    row = candles.table.to_pylist()[0]
    assert (row["ticker"], row["period_seconds"], row["source"], row["complete"]) == (
        "BTC/USDT.BINANCE",
        60,
        "archive",
        True,
    )
    assert (row["open"], row["high"], row["low"], row["close"]) == (100.5, 101.25, 99.75, 100.0)
    assert (row["volume"], row["quote_volume"], row["trade_count"]) == (12.5, 1250.5, 42)


def test_a_checksum_is_verified_where_there_is_one(tmp_path: Path) -> None:
    file = archived(tmp_path, klines())
    assert "was not verified" in read(file).remarks[0]
    beside = file.with_name(f"{file.name}.CHECKSUM")
    beside.write_text(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    assert read(file).remarks == ()
    beside.write_text(f"{'0' * 64}  {file.name}\n")
    with pytest.raises(BadFile, match="download it again"):
        read(file)


def test_a_header_is_skipped_and_remarked(tmp_path: Path) -> None:
    rows = [["open_time", *"abcdefghijk"], *klines()]
    candles = read(archived(tmp_path, rows))
    assert len(seconds(candles)) == 3
    assert any("futures" in remark for remark in candles.remarks)


def test_krakens_own_names_and_minutes(tmp_path: Path) -> None:
    file = tmp_path / "XBTUSD_5.csv"
    file.write_text(f"{START},1,2,0.5,1.5,10,3\n{START + 300},1,2,0.5,1.5,0,0\n")
    candles = read(file, XBT, "kraken")
    assert candles.table["period_seconds"].to_pylist() == [300, 300]
    assert candles.table["trade_count"].to_pylist() == [3, 0]
    with pytest.raises(BadFile, match=r"its market is XBTUSD, not ETH/USD\.KRAKEN"):
        read(file, Wanted(Ticker.parse("ETH/USD.KRAKEN")), "kraken")


def test_files_of_freqtrade_are_read(tmp_path: Path) -> None:
    file = tmp_path / "BTC_USDT-1h.feather"
    date = pa.array([START * 1_000, (START + 3_600) * 1_000]).cast(pa.timestamp("ms", "UTC"))
    values = [pa.array([value, value]) for value in (1.0, 2.0, 0.5, 1.5, 10.0)]
    feather.write_feather(
        pa.table([date, *values], names=["date", "open", "high", "low", "close", "volume"]), str(file)
    )
    candles = read(file, BTC, "freqtrade")
    assert seconds(candles) == [START, START + 3_600]
    assert candles.table["quote_volume"].null_count == 2
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(BadFile, match="not a valid feather file"):
        read(file, BTC, "freqtrade")


def test_own_columns_by_a_mapping_and_iso_times(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("when,o,h,l,c,vol\n2024-01-01T00:00:00Z,1,2,0.5,1.5,10\n2024-01-01 00:01:00,1,2,0.5,1.5,0\n")
    names = dict(
        zip(("open_time", "open", "high", "low", "close", "volume"), ["when", "o", "h", "l", "c", "vol"], strict=True)
    )
    wanted = replace(BTC, period_seconds=60, mapping=names)
    assert seconds(read(file, wanted, "csv")) == [START, START + 60]
    with pytest.raises(BadFile, match="it has no column nope; its columns are: when, o, h"):
        read(file, replace(wanted, mapping=names | {"close": "nope"}), "csv")
    with pytest.raises(BadFile, match="add --period"):
        read(file, replace(wanted, period_seconds=None), "csv")


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_own_columns_are_separated_as_the_first_line_separates_them(tmp_path: Path, delimiter: str) -> None:
    file = tmp_path / "mine.csv"
    rows = ["open_time,open,high,low,close,volume", f"{START},1,2,0.5,1.5,10", f"{START + 60},1,2,0.5,1.5,0"]
    wanted = replace(BTC, period_seconds=60, mapping={"volume": "Volume (BTC, spot)"})
    file.write_text("\n".join(rows).replace(",", delimiter).replace("volume", "Volume (BTC, spot)"))
    assert seconds(read(file, wanted, "csv")) == [START, START + 60]
    wanted = replace(wanted, mapping=None)
    file.write_text("\n".join(rows).replace(",", delimiter).replace("0.5", "0,5"))
    with pytest.raises(BadFile, match="line 2: low is not a number: '0,5'"):
        read(file, wanted, "csv")


def changed(row: int, column: int, value: str) -> list[list[str]]:
    rows = klines()
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (changed(1, 4, "NaN"), r"line 2: close is not a number: 'NaN'"),
        (changed(1, 4, "1e999"), r"line 2: close is not a finite number"),
        (changed(2, 5, "-1"), r"line 3: volume is negative: '-1'"),
        (changed(0, 1, "0"), r"line 1: open is not above zero"),
        (changed(1, 2, "1"), r"line 2: low and high do not enclose open and close"),
        (changed(1, 0, "x"), r"line 2: open_time is not a whole number"),
        (changed(1, 0, str(START)), r"line 2: open_time is not a time in milliseconds"),
        (changed(0, 0, "12"), r"line 1: open_time is not a plausible time"),
        (changed(1, 6, str(START * 1_000)), r"line 2: close_time is not the end of a 1m candle"),
        (changed(1, 8, "-3"), r"line 2: count is not a whole number"),
        ([*klines(), klines()[1]], r"line 4: it repeats the time of line 2"),
        ([row[:5] for row in klines()], r"line 1: it has 5 columns instead of 12"),
        ([*klines(), ["1", "2"]], r"line 4: it has 2 columns instead of 12"),
        (klines(start=START + 1), r"line 1: its time is not the open time of a 1m candle"),
        (klines(start=4_102_444_800), r"line 1: the candle has not closed yet"),
        ([], r"it is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, rows: list[list[str]], said: str) -> None:
    with pytest.raises(BadFile, match=said):
        read(archived(tmp_path, rows))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ETHUSDT-1m-2024-01", "its market is ETHUSDT, not BTC/USDT.BINANCE"),
        ("BTCUSDT-5m-2024-01", "close_time is not the end of a 5m candle"),
        ("BTCUSDT-1mo-2024-01", "no fixed length"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(BadFile, match=said):
        read(archived(tmp_path, klines(), name))


def test_zip_files_that_are_cut_short_or_hold_several_files(tmp_path: Path) -> None:
    whole = archived(tmp_path, klines(2_000))
    content = whole.read_bytes()
    for size in (0, 3, 50, len(content) // 2, len(content) - 1):
        whole.write_bytes(content[:size])
        with pytest.raises(BadFile):
            read(whole)
    damaged = bytearray(content)
    damaged[len(damaged) // 2] ^= 0xFF
    whole.write_bytes(damaged)
    with pytest.raises(BadFile):
        read(whole)
    with zipfile.ZipFile(whole, "w") as packed:
        packed.writestr("a.csv", "1")
        packed.writestr("b.csv", "1")
    with pytest.raises(BadFile, match=r"it holds 2 files \(a.csv, b.csv"):
        read(whole)


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binance, "MAX_BYTES", 1 << 20)
    file = tmp_path / "BTCUSDT-1m-2024-01.zip"
    write_bomb(file)
    with pytest.raises(BadFile, match="it unpacks to 8 MiB"):
        read(file)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
def test_a_feather_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str) -> None:
    file = sound(tmp_path, "freqtrade")
    table = feather.read_table(str(file))
    # An unexpected column, and the dictionary of another.
    table = table.append_column("more", pa.array(["0" * (4 << 20)] * 3))
    table = table.append_column("name", pa.array(["1" * (4 << 20)] * 3).dictionary_encode())
    feather.write_feather(table, str(file), compression=compression)
    monkeypatch.setattr(freqtrade, "MAX_BYTES", 15 << 20)
    said = "it has 16 MiB, over 15" if compression == "uncompressed" else "it unpacks to 16 MiB, over 15"
    before = pa.total_allocated_bytes()
    with pytest.raises(BadFile, match=said):
        read(file, replace(BTC, period_seconds=60), "freqtrade")
    assert pa.total_allocated_bytes() - before < 1 << 20
    monkeypatch.setattr(freqtrade, "MAX_BYTES", 17 << 20)
    assert read(file, replace(BTC, period_seconds=60), "freqtrade").table.num_rows == 3


def test_files_together_must_agree(tmp_path: Path) -> None:
    one = read(archived(tmp_path, klines(3)))
    two = read(archived(tmp_path, klines(5), "BTCUSDT-1m-2024-02"))
    assert together([one, two]).num_rows == 5
    other = klines(2)
    other[1][4] = "99.9"
    with pytest.raises(BadFile, match=r"two of the files differ in the candle of 2024-01-01T00:01:00"):
        together([one, read(archived(tmp_path, other, "BTCUSDT-1m-2024-03"))])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=rounds(60))
@given(st.binary(max_size=300) | st.text(alphabet='0123456789,.\n-eN"', max_size=300).map(str.encode), st.data())
def test_a_file_of_any_content_is_read_or_refused(tmp_path: Path, content: bytes, data: Any) -> None:
    of = data.draw(st.sampled_from([*FORMATS]))
    name = {"binance-klines": "BTCUSDT-1m-2024-01.csv", "kraken": "XBTUSD_1.csv", "freqtrade": "BTC_USDT-1m.feather"}
    file = tmp_path / name.get(of, "mine.csv")
    file.write_bytes(content)
    wanted = XBT if of == "kraken" else replace(BTC, period_seconds=60)
    try:
        assert read(file, wanted, of).table.num_rows
    except BadFile as error:
        assert str(file) in str(error)


def sound(folder: Path, of: str) -> Path:
    """A valid file of each format."""
    if of == "binance-klines":
        return archived(folder, klines())
    if of == "freqtrade":
        file = folder / "BTC_USDT-1m.feather"
        date = pa.array([(START + 60 * number) * 1_000 for number in range(3)]).cast(pa.timestamp("ms", "UTC"))
        columns = {"date": date} | {
            name: pa.array([value] * 3)
            for name, value in {"open": 1.0, "high": 2.0, "low": 0.5, "close": 1.5, "volume": 10.0}.items()
        }
        feather.write_feather(pa.table(columns), str(file))
        return file
    file = folder / ("XBTUSD_1.csv" if of == "kraken" else "mine.csv")
    header = "" if of == "kraken" else "open_time,open,high,low,close,volume,trade_count\n"
    file.write_text(header + "".join(f"{START + 60 * number},1,2,0.5,1.5,10,3\n" for number in range(3)))
    return file


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=rounds(120))
@given(
    st.sampled_from([*FORMATS]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 4), st.binary(max_size=3)), min_size=1, max_size=3),
)
def test_a_damaged_file_is_refused_or_has_sound_candles(
    tmp_path: Path, of: str, edits: list[tuple[int, int, bytes]]
) -> None:
    file = sound(tmp_path, of)
    content = bytearray(file.read_bytes())
    for place, length, put in edits:
        at = place % len(content)
        content[at : at + length] = put or b"0"
    file.write_bytes(content)
    try:
        found = read(file, XBT if of == "kraken" else replace(BTC, period_seconds=60), of)
    except BadFile as error:
        assert str(file) in str(error)
        return
    times = seconds(found)
    assert times == sorted(set(times)) and all(time % 60 == 0 for time in times)
    for row in found.table.to_pylist():
        assert 0 < row["low"] <= min(row["open"], row["close"]) <= max(row["open"], row["close"]) <= row["high"]
        assert math.isfinite(row["high"]) and row["volume"] >= 0


@pytest.mark.parametrize(
    ("of", "content", "said"),
    [
        ("csv", b"open_time,open\rhigh\n1,2\n", "its header cannot be read as CSV"),
        ("freqtrade", None, "a date is not a plausible time"),
    ],
)
def test_damage_that_the_libraries_name_in_their_own_way(
    tmp_path: Path, of: str, content: bytes | None, said: str
) -> None:
    file = sound(tmp_path, of)
    if content is None:
        table = feather.read_table(str(file))
        far = pa.array([2**60] * 3).cast(pa.timestamp("ms", "UTC"))
        feather.write_feather(table.set_column(0, "date", far), str(file))
    else:
        file.write_bytes(content)
    with pytest.raises(BadFile, match=said):
        read(file, replace(BTC, period_seconds=60), of)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.0]] * 3),
        pa.array(["1.5"] * 3).dictionary_encode(),
        pa.array([True] * 3),
        pa.nulls(3),
        pa.array([1, 1, 1]).cast(pa.decimal128(30, 2)),
        pa.array(["1.5"] * 3, pa.string_view()),
        pa.RunEndEncodedArray.from_arrays([3], pa.array([1.5])),
    ],
    ids=lambda column: str(column.type),
)
def test_a_feather_column_that_is_not_a_number_is_named(tmp_path: Path, column: pa.Array) -> None:
    file = sound(tmp_path, "freqtrade")
    table = feather.read_table(str(file))
    table = table.set_column(table.column_names.index("open"), "open", column)
    feather.write_feather(table, str(file), compression="uncompressed")
    with pytest.raises(BadFile, match=r"the column open is .*, not a number"):
        read(file, BTC, "freqtrade")


@pytest.mark.parametrize("of", ["csv", "binance-klines"])
@pytest.mark.parametrize("content", [b"," * 70_000, b"a" * 70_000, b'"' * 70_001])
def test_a_first_line_without_an_end_is_refused(tmp_path: Path, of: str, content: bytes) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes(content)
    with pytest.raises(BadFile, match="line 1: the line has over 65,536 bytes"):
        read(file, replace(BTC, period_seconds=60), of)


def test_a_checksum_file_of_any_length_is_read_to_a_limit(tmp_path: Path) -> None:
    file = archived(tmp_path, klines())
    with file.with_name(f"{file.name}.CHECKSUM").open("wb") as sink:
        sink.truncate(1 << 40)
    with pytest.raises(BadFile, match="download it again"):
        read(file)


def test_a_zip_directory_with_a_nameless_file_is_refused(tmp_path: Path) -> None:
    file = archived(tmp_path, klines())
    content = file.read_bytes()
    at = content.index(b"PK\x01\x02")
    length = int.from_bytes(content[at + 28 : at + 30], "little")
    file.write_bytes(content[: at + 28] + b"\0\0" + length.to_bytes(2, "little") + content[at + 32 :])
    with pytest.raises(BadFile, match="not a valid zip file"):
        read(file)


def small(values: str = "1,2,0.5,1.5,10", *, lines: int = 1) -> bytes:
    rows = "".join(f"{START + 60 * number},{values}\n" for number in range(lines))
    return f"open_time,open,high,low,close,volume\n{rows}".encode()


def parquet_with_a_false_footer(folder: Path) -> bytes:
    pq.write_table(pa.table({"open_time": [START]}), folder / "x.parquet")
    return (folder / "x.parquet").read_bytes()[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda _: gzip.compress(b"0" * (8 << 20)), "it is compressed with gzip: unpack it"),
        (parquet_with_a_false_footer, "it is a Parquet file: write it as CSV"),
        (lambda _: small().decode().encode("utf-16"), "it is UTF-16 text: save it as UTF-8"),
        (lambda _: small("1,2,0.5,1.5\0,10"), r"line 2: close is not a number: '1.5\\x00'"),
        (lambda _: small("1,2,0.5,1.5,\u00e9").decode().encode("latin-1"), "line 2: it is not UTF-8 text"),
        (lambda _: small() + b"1" * (2 << 20), "after line 2: a line has over 1 MiB"),
        (lambda _: small(lines=11), "it has over 10 candles: import it in parts"),
        (lambda _: small("1,2,0.5,1.5,1" + "0" * 4_000), "its candles have over 0 MiB of text"),
    ],
)
def test_a_hostile_csv_file_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, said: str
) -> None:
    monkeypatch.setattr(files, "_CHUNK_BYTES", 1 << 20)
    monkeypatch.setattr(files, "MAX_ROWS", 10)
    monkeypatch.setattr(files, "_MOST_TEXT_BYTES", 3_000)
    file = tmp_path / "mine.csv"
    file.write_bytes(content(tmp_path))
    with pytest.raises(BadFile, match=said):
        read(file, replace(BTC, period_seconds=60), "csv")


def test_columns_that_are_not_wanted_may_hold_anything(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes(b"note,open_time,open,high,low,close,volume\n\xe9\0,%d,1,2,0.5,1.5,10\n" % START)
    assert read(file, replace(BTC, period_seconds=60), "csv").table["close"].to_pylist() == [1.5]


@pytest.mark.parametrize("of", [*FORMATS])
def test_only_regular_files_are_read(tmp_path: Path, of: str) -> None:
    wanted = XBT if of == "kraken" else replace(BTC, period_seconds=60)
    file = sound(tmp_path, of)
    kept = file.rename(tmp_path / "kept")
    file.symlink_to(kept)
    assert read(file, wanted, of).table.num_rows == 3
    for target, said in (("nothing", "No such file"), (file.name, "Too many levels"), (".", "Is a directory")):
        file.unlink()
        file.symlink_to(target)
        with pytest.raises(BadFile, match=said):
            read(file, wanted, of)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(BadFile, match="it is not a file"):
        read(file, wanted, of)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_changes_after_its_checksum_was_verified_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    file = archived(tmp_path, klines())
    file.with_name(f"{file.name}.CHECKSUM").write_text(hashlib.sha256(file.read_bytes()).hexdigest())
    other = archived(tmp_path, changed(1, 4, "100.25"), "other")
    verified = files.checked_sum

    def then_changed(*given: Any) -> bool:
        result = verified(*given)
        if is_replaced:
            other.replace(file)
        else:
            file.write_bytes(other.read_bytes())
        return result

    monkeypatch.setattr(binance, "checked_sum", then_changed)
    with pytest.raises(BadFile, match="it was changed or replaced while it was read"):
        read(file)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_without_a_limit_are_not_unpacked(tmp_path: Path, method: int) -> None:
    file = tmp_path / "BTCUSDT-1m-2024-01.zip"
    with zipfile.ZipFile(file, "w", method) as packed:
        packed.writestr("a.csv", text_of(klines()))
    with pytest.raises(BadFile, match=f"its compression, method {method}, is not supported"):
        read(file)


def test_a_zip_file_of_very_many_files_is_refused_before_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "BTCUSDT-1m-2024-01.zip"
    with zipfile.ZipFile(file, "w") as packed:
        for number in range(50):
            packed.writestr(str(number), "")
    with pytest.raises(BadFile, match="it holds 50 files"):
        read(file)
    monkeypatch.setattr(files, "_MOST_DIRECTORY_BYTES", 2_000)
    with pytest.raises(BadFile, match="its directory is too long"):
        read(file)


def test_files_that_have_too_many_candles_together_are_not_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = read(archived(tmp_path, klines(3)))
    monkeypatch.setattr("datasets.archives.candles.MAX_ROWS", 7)
    left = iter([part] * 5)
    with pytest.raises(BadFile, match="with it, the files have 9 candles, over 7"):
        together(left)
    assert len([*left]) == 2


def test_the_old_feather_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "BTC_USDT-1m.feather"
    file.write_bytes(b"FEA1" + bytes(200) + b"FEA1")
    with pytest.raises(BadFile, match="it has the format Feather V1"):
        read(file, BTC, "freqtrade")


def test_a_feather_file_that_states_more_bytes_than_it_has_is_refused(tmp_path: Path) -> None:
    file = sound(tmp_path, "freqtrade")
    content = bytearray(file.read_bytes())
    for size in (2**31 - 8, 2**16):
        content[12:16] = size.to_bytes(4, "little")
        file.write_bytes(content)
        with pytest.raises(BadFile, match="not a valid feather file"):
            read(file, BTC, "freqtrade")
