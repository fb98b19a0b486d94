"""Archives of trades: their contents, and their possible faults."""

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from candlewright.wire.ticker import Ticker
from datasets.archives import BadFile, Wanted, files, trades
from datasets.archives.trades import TRADE_FORMATS, Last, in_turn
from tests.datasets.archives.bomb import BOMB_BYTES, write_bomb
from tests.rounds import rounds

BTC = Wanted(Ticker.parse("BTC/USDT.BINANCE"))
XBT = Wanted(Ticker.parse("BTC/USD.KRAKEN"))
START = 1_735_689_600
NAMES = {
    "binance-trades": "BTCUSDT-trades-2025-01-01",
    "binance-aggtrades": "BTCUSDT-aggTrades-2025-01-01",
    "kraken-trades": "XBTUSD",
}


def raw(*ids: int, unit: int = 1_000_000) -> list[list[str]]:
    return [[str(each), "100.5", "0.25", "25.125", str(START * unit + each), "True", "True"] for each in ids]


def written(folder: Path, rows: Sequence[Sequence[str]], of: str = "binance-trades", *, day: int = 1) -> Path:
    name = NAMES[of].replace("01-01", f"01-0{day}")
    file = folder / f"{name}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(f"{name}.csv", "".join(",".join(row) + "\n" for row in rows))
    return file


def read(
    *given: Path, of: str = "binance-trades", wanted: Wanted = BTC, last: Last | None = None
) -> list[dict[str, Any]]:
    last = last or Last()
    parts = [part for file in given for part in TRADE_FORMATS[of].read(file, wanted, last)]
    return list(pa.concat_tables(parts).to_pylist())


@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_binance_trades(tmp_path: Path, unit: int) -> None:
    rows = read(written(tmp_path, raw(7, 8, unit=unit)))
    assert rows[1] == {
        "ticker": "BTC/USDT.BINANCE", "trade_id": "8", "ts_ns": (START * unit + 8) * 10**9 // unit, "price": 100.5,
        "size": 0.25, "side": "sell",
    }  # fmt: skip


def test_an_aggregate_has_the_ids_of_its_trades(tmp_path: Path) -> None:
    row = ["1", "100.5", "0.25", "{}", "{}", str(START * 1_000), "False", "True"]
    made = [
        [each.format(number) for each in row[:4]] + [each.format(to) for each in row[4:]]
        for number, to in ((5, 5), (6, 9))
    ]
    rows = read(written(tmp_path, made, "binance-aggtrades"), of="binance-aggtrades")
    assert [(each["trade_id"], each["side"]) for each in rows] == [("5", "buy"), ("6-9", "buy")]
    made[1][4] = "5"
    with pytest.raises(BadFile, match="line 2: its last trade is before its first"):
        read(written(tmp_path, made, "binance-aggtrades"), of="binance-aggtrades")


def test_krakens_trades_are_known_by_their_time_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK_BYTES", 64)
    file = tmp_path / "XBTUSD.csv"
    file.write_text("".join(f"{START + each // 7},1.5,{each + 1}\n" for each in range(30)) + f"{START + 9}.25,1,1\n")
    rows = read(file, of="kraken-trades", wanted=XBT)
    assert len({each["trade_id"] for each in rows}) == 31
    assert [each["trade_id"] for each in rows[5:9]] == [
        f"t{START + each // 7}000000000.{each % 7}" for each in range(5, 9)
    ]
    assert (rows[-1]["ts_ns"], rows[-1]["side"]) == (START * 10**9 + 9_250_000_000, "unknown")


def test_kraken_files_inside_the_whole_archive(tmp_path: Path) -> None:
    file = tmp_path / "Kraken_Trading_History.zip"
    with zipfile.ZipFile(file, "w") as packed:
        for name in ("../../etc/XBTUSD.csv", "ETHUSD.csv", "__MACOSX/._XBTUSD.csv"):
            packed.writestr(name, f"{START},1.5,2\n")
    assert len(read(file, of="kraken-trades", wanted=XBT)) == 1
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    with pytest.raises(BadFile, match=r"none of its 3 files is SOLUSD\.csv"):
        read(file, of="kraken-trades", wanted=Wanted(Ticker.parse("SOL/USD.KRAKEN")))
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr("more/xbtusd.csv", f"{START},1.5,2\n")
    with pytest.raises(BadFile, match=r"2 of its 4 files are XBTUSD\.csv or BTCUSD\.csv"):
        read(file, of="kraken-trades", wanted=XBT)


def test_a_checksum_is_verified(tmp_path: Path) -> None:
    file, last = written(tmp_path, raw(1)), Last()
    beside = file.with_name(f"{file.name}.CHECKSUM")
    beside.write_text(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    read(file, last=last)
    assert last.remarks == []
    beside.write_text("0" * 64)
    with pytest.raises(BadFile, match="download it again"):
        read(file)
    beside.unlink()
    read(file, last=(last := Last()))
    assert "was not verified" in last.remarks[0]


def test_files_follow_each_other_and_ids_that_are_missing_are_counted(tmp_path: Path) -> None:
    two, one = written(tmp_path, raw(10, 11), day=2), written(tmp_path, raw(3, 4, 7), day=1)
    last = Last()
    assert in_turn([two, one], TRADE_FORMATS["binance-trades"], BTC) == [one, two]
    assert [each["trade_id"] for each in read(one, two, last=last)] == ["3", "4", "7", "10", "11"]
    assert last.missing == 4
    three = written(tmp_path, raw(11, 12), day=3)
    with pytest.raises(BadFile, match=r"line 1: it begins before .*01-02\.zip ends: pass each trade only once"):
        read(one, two, three)


def changed(row: int, column: int, value: str) -> list[list[str]]:
    rows = raw(1, 2, 3)
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (changed(1, 0, "1"), "line 2: id repeats that of the previous line: '1'"),
        (changed(2, 0, "1"), "line 3: id is before that of the previous line: '1'"),
        (changed(0, 0, "x"), "line 1: id is not a whole number: 'x'"),
        (changed(1, 1, "nan"), "line 2: price is not a number: 'nan'"),
        (changed(1, 2, "0"), "line 2: qty is not above zero"),
        (changed(1, 4, str(START * 1_000)), "line 2: time is not a time in microseconds, as in the first line"),
        (changed(2, 5, "maybe"), "line 3: is_buyer_maker is neither true nor false: 'maybe'"),
        ([row[:5] for row in raw(1)], "line 1: it has 5 columns instead of 7"),
        ([], "it is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, rows: list[list[str]], said: str) -> None:
    with pytest.raises(BadFile, match=said):
        read(written(tmp_path, rows))


def test_a_bad_line_far_into_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK_BYTES", 1_000)
    rows = raw(*range(1, 500))
    rows[400][1] = "-1"
    with pytest.raises(BadFile, match="line 401: price is not above zero: '-1'"):
        read(written(tmp_path, rows))
    with pytest.raises(BadFile, match="line 501: it has 3 columns instead of 7"):
        read(written(tmp_path, [["id", *"abcdef"], *raw(*range(1, 500)), ["1", "2", "3"]]))


@pytest.mark.parametrize(
    ("name", "wanted", "said"),
    [
        ("ETHUSDT-trades-2025-01-01.zip", BTC, "its market is ETHUSDT, not BTC/USDT"),
        ("BTCUSDT-trades-2025-01-01.zip", XBT, "the archive is from BINANCE"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, wanted: Wanted, said: str) -> None:
    file = written(tmp_path, raw(1)).rename(tmp_path / name)
    with pytest.raises(BadFile, match=said):
        read(file, wanted=wanted)


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trades, "MAX_BYTES", 1 << 20)
    file = tmp_path / "BTCUSDT-trades-2025-01-01.zip"
    write_bomb(file)
    with pytest.raises(BadFile, match="it unpacks to 8 MiB, over 1"):
        read(file)
    # An archive whose directory states a wrong size.
    content = file.read_bytes().replace(BOMB_BYTES.to_bytes(4, "little"), (8 << 10).to_bytes(4, "little"))
    file.write_bytes(content)
    with pytest.raises(BadFile):
        read(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=rounds(150))
@given(st.data())
def test_a_file_of_any_content_is_read_or_refused(tmp_path: Path, data: Any) -> None:
    of = data.draw(st.sampled_from([*TRADE_FORMATS]))
    wanted = XBT if of == "kraken-trades" else BTC
    width = len(TRADE_FORMATS[of].columns)
    cell = st.sampled_from([str(START), str(START * 1_000), "1", "2", "3", "0.5", "True", "", "nan", "1e400", '"', "٣"])
    lines = st.lists(st.lists(cell, min_size=width - 1, max_size=width).map(",".join), max_size=4).map("\n".join)
    content = data.draw(st.binary(max_size=200) | lines.map(str.encode))
    file = tmp_path / f"{NAMES[of]}.csv"
    if data.draw(st.booleans()):
        file.write_bytes(content)
    else:
        whole = written(tmp_path, [content.decode("utf-8", "replace").split(",")], of).read_bytes()
        place = data.draw(st.integers(0, len(whole) - 1))
        file = tmp_path / f"{NAMES[of]}.zip"
        file.write_bytes(whole[:place] + data.draw(st.binary(max_size=2)) + whole[place + 1 :])
    try:
        ids = [each["trade_id"] for each in read(file, of=of, wanted=wanted)]
        assert ids and len(set(ids)) == len(ids)
    except BadFile as error:
        assert str(file) in str(error)
