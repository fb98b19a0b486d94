"""A signed data set: what its manifest proves, and that no change goes unnoticed."""

import hashlib
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from typer.testing import CliRunner

from bars import exact
from candlewright.cli.app import app
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.settings import Settings
from datasets.manifest import DataSet, check, public_key, write
from datasets.manifest.contents import digest
from datasets.manifest.document import File, Manifest, ManifestFault
from datasets.manifest.merkle import root_of
from datasets.manifest.signing import KEY_FILE, sign
from datasets.quality import bars_of
from datasets.stored import stored_series
from iceberg import OHLC, TICKS, create_tables, open_catalog
from tests.datasets.conftest import MINUTE_US, START_US, stored_candles
from tests.rounds import rounds

BTC = "BTC/USDT.BINANCE"
TRADED = "SOL/USDT.BINANCE"
WRONG_MINUTE = 12
Change = Callable[[Path], object]


def trades() -> pa.Table:
    """Every 20 s for 25 minutes, across midnight."""
    random = np.random.default_rng(4)
    times = START_US + np.arange(75) * 20_000_000
    columns = {
        "ticker": [TRADED] * len(times),
        "trade_id": [str(number + 95) for number in range(len(times))],
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "ts_ns": times * 1_000,
        "price": np.round(100 + random.normal(0, 1, len(times)).cumsum(), 2),
        "size": np.round(random.gamma(2, 3, len(times)), 3),
        "side": ["buy"] * len(times),
        "received_at": pa.array(times + 5_000, pa.timestamp("us", "UTC")),
    }
    schema = TICKS.arrow_schema
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


def candles_of(rows: pa.Table) -> pa.Table:
    """The exchange's candles, one of which has a different close."""
    made = bars_of(rows, 60)
    count = len(made.open_time)
    close = made.close.copy()
    close[WRONG_MINUTE] += 0.5
    columns = {
        "ticker": [TRADED] * count,
        "period_seconds": [60] * count,
        "open_time": pa.array(made.open_time // 1_000, pa.timestamp("us", "UTC")),
        "open": made.open,
        "high": np.maximum(made.high, close),
        "low": made.low,
        "close": close,
        "volume": exact.to_doubles(made.volume),
        "quote_volume": [None] * count,
        "trade_count": [3] * count,
        "source": ["exchange"] * count,
        "complete": [True] * count,
        "updated_at": pa.array(made.open_time // 1_000, pa.timestamp("us", "UTC")),
    }
    schema = OHLC.arrow_schema
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


@pytest.fixture(scope="module")
def traded(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = Settings(data_dir=tmp_path_factory.mktemp("traded"))
    catalog = open_catalog(settings)
    create_tables(catalog)
    catalog.load_table(TICKS.identifier).append(trades())
    catalog.load_table(OHLC.identifier).append(candles_of(trades()))
    return settings


@pytest.fixture(scope="module")
def original(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    write(settings, DataSet(stored_series(settings, [BTC], [60])), folder, manifest=folder / "manifest.json")
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "copy")


def faults(folder: Path, key: str | None = None) -> list[str]:
    try:
        return check(folder / "manifest.json", folder, key).faults
    except ManifestFault as error:
        return [str(error)]


def manifest_of(folder: Path) -> Manifest:
    return Manifest.model_validate_json((folder / "manifest.json").read_bytes())


def signed_again(settings: Settings, folder: Path, *files: File) -> None:
    """A manifest with true hashes and a valid signature that describes the files differently."""
    known = manifest_of(folder).body
    body = known.model_copy(update={"files": list(files), "root": root_of(files)})
    key, signature = sign(settings.data_dir, body.encoded())
    (folder / "manifest.json").write_bytes(Manifest(body=body, key=key, signature=signature).encoded())


CANDLES = "BINANCE/BTC_USDT-1m.parquet"


def test_a_written_data_set_is_proven_and_described(settings: Settings, original: Path) -> None:
    found = check(original / "manifest.json", original, public_key(settings.data_dir))
    assert found.faults == []
    (file,) = found.manifest.body.files
    assert (file.path, file.rows, file.incomplete, file.sources) == (CANDLES, 27, 1, {"exchange": 27})
    assert [(each.name, each.rows) for each in file.partitions] == [("2024-01", 27)]
    assert [(hole.candles, hole.reason) for hole in file.holes] == [(2, "venue"), (1, "not_stored")]
    assert stat.S_IMODE((settings.data_dir / KEY_FILE).stat().st_mode) == 0o600


def _lose(folder: Path) -> None:
    (folder / CANDLES).unlink()


def _add(folder: Path) -> None:
    (folder / "BINANCE" / "more.parquet").write_bytes(b"")


def _rewrite(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(folder / CANDLES)), folder / CANDLES)


def _reorder(folder: Path) -> None:
    _rewrite(folder, lambda rows: rows.take(pa.array([1, 0, *range(2, rows.num_rows)])))


def _encode_anew(folder: Path) -> None:
    _rewrite(folder, lambda rows: rows)


def _drop_row(folder: Path) -> None:
    _rewrite(folder, lambda rows: rows.slice(0, rows.num_rows - 1))


def _replace(old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        file = folder / "manifest.json"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_lose, f"{CANDLES} is missing"),
        (_add, "BINANCE/more.parquet was added"),
        (_reorder, f"{CANDLES}: its bytes differ from those that were signed: rows of 2024-01 differ"),
        (_drop_row, f"{CANDLES}: its bytes differ from those that were signed: rows of 2024-01 differ"),
        (
            _encode_anew,
            f"{CANDLES}: its bytes differ from those that were signed; its rows are the same, in another encoding",
        ),
        (_replace('"reason": "not_stored"', '"reason": "venue"'), "the signature does not belong to this text"),
        (_replace('"candles": 2', '"candles": 3'), "the signature does not belong to this text"),
        (_replace('"candles": 2', '"candles": 2.0'), "this is not a valid manifest"),
        (_replace('"reason": "venue"', '"reason":  "venue"'), "the manifest's text was changed"),
        (_replace('"reason": "venue"', '"reason": "sun spots"'), "this is not a valid manifest"),
    ],
)
def test_a_change_is_found_and_named(copy: Path, change: Change, said: str) -> None:
    change(copy)
    assert len(faults(copy)) == 1 and said in faults(copy)[0]


def test_another_key_is_not_the_platforms(copy: Path, tmp_path: Path) -> None:
    assert ", not by" in faults(copy, "00" * 32)[0]
    stranger = Settings(data_dir=tmp_path)
    theirs = public_key(stranger.data_dir)
    signed_again(stranger, copy, *manifest_of(copy).body.files)
    assert faults(copy) == []
    assert "is signed by " + theirs in faults(copy, "11" * 32)[0]


@given(data=st.data())
@examples(max_examples=rounds(80), deadline=None)
def test_every_flipped_bit_is_detected(original: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([CANDLES, "manifest.json"]))
    content = bytearray((original / name).read_bytes())
    place = data.draw(st.integers(0, len(content) * 8 - 1))
    content[place // 8] ^= 1 << place % 8
    folder = original.parent / "flipped"
    shutil.copytree(original, folder, dirs_exist_ok=True)
    (folder / name).write_bytes(content)
    assert faults(folder)


def test_holes_that_are_not_named_are_found_although_signed(settings: Settings, copy: Path) -> None:
    (file,) = manifest_of(copy).body.files
    signed_again(settings, copy, file.model_copy(update={"holes": file.holes[:1]}))
    assert faults(copy) == [f"{CANDLES}: the manifest lacks a hole of 1 candles from 2024-01-02T00:10:00Z"]
    longer = file.holes[0].model_copy(update={"start": file.holes[0].start - MINUTE_US * 1_000, "candles": 3})
    signed_again(settings, copy, file.model_copy(update={"holes": [longer, file.holes[1]]}))
    assert any("that does not exist" in each for each in faults(copy))


def test_a_path_outside_of_the_folder_is_refused(settings: Settings, copy: Path) -> None:
    (file,) = manifest_of(copy).body.files
    for path in ("../secret", "/etc/passwd", "a/../../b"):
        signed_again(settings, copy, file.model_copy(update={"path": path}))
        assert "outside the folder" in faults(copy)[0]


def test_candles_follow_from_their_trades_if_the_manifest_claims_it(traded: Settings, tmp_path: Path) -> None:
    wanted = DataSet(stored_series(traded), with_trades=True)
    signed = write(traded, wanted, tmp_path, manifest=tmp_path / "manifest.json")
    candles, of_trades = signed.body.files
    assert of_trades.is_trades and [each.name for each in of_trades.partitions] == ["2024-01-01", "2024-01-02"]
    assert candles.from_trades is not None
    assert (candles.from_trades.compared, candles.from_trades.differing) == (23, 1)
    assert candles.from_trades.opens == [(START_US + WRONG_MINUTE * MINUTE_US) * 1_000]
    assert faults(tmp_path) == []
    said = candles.from_trades.model_copy(update={"differing": 0, "opens": []})
    signed_again(traded, tmp_path, candles.model_copy(update={"from_trades": said}), of_trades)
    assert faults(tmp_path) == [
        f"{candles.path}: comparing its candles with its trades gives another result than the manifest, "
        "first at 2024-01-02T00:02:00Z"
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 13])
def test_the_root_is_that_of_the_rfc(original: Path, count: int) -> None:
    (file,) = manifest_of(original).body.files
    files = [file.model_copy(update={"path": str(number), "partitions": []}) for number in range(count)]

    def tree(leaves: list[File]) -> bytes:
        """As defined in RFC 6962, section 2.1."""
        if len(leaves) == 1:
            entry = [leaves[0].path, leaves[0].bytes, leaves[0].sha256]
            return hashlib.sha256(b"\0" + json.dumps(entry, separators=(",", ":")).encode()).digest()
        half = 1 << (len(leaves) - 1).bit_length() - 1
        return hashlib.sha256(b"\1" + tree(leaves[:half]) + tree(leaves[half:])).digest()

    assert root_of(files) == tree(files).hex()


def test_a_folder_with_other_files_is_not_signed(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CandlewrightError, match=r"notes\.txt is not part of this data set"):
        write(settings, DataSet(stored_series(settings, [BTC], [60])), tmp_path, manifest=tmp_path / "manifest.json")
    assert not (tmp_path / "manifest.json").exists()


def test_a_range_without_candles_has_no_manifest(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(CandlewrightError, match="no candles are stored in this range"):
        write(settings, DataSet(stored_series(settings), 0, 1), tmp_path, manifest=tmp_path / "manifest.json")


def test_a_damaged_key_is_an_error_and_not_a_new_key(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("not a key")
    with pytest.raises(ConfigurationError, match="does not hold a signing key"):
        public_key(tmp_path)


def test_the_hash_of_rows_is_of_their_values(settings: Settings) -> None:
    rows = stored_candles(BTC)
    chunked = pa.concat_tables([rows.slice(0, 5), rows.slice(5)])
    assert digest(rows) == digest(chunked) != digest(rows.slice(1))
    assert digest(rows) != digest(rows.rename_columns(["symbol", *rows.column_names[1:]]))
    texts = [pa.table({"a": ["b", "c"]}), pa.table({"a": ["bc", ""]}), pa.table({"a": ["bc", None]})]
    assert len({digest(each) for each in texts}) == 3


def test_a_user_exports_and_another_one_verifies(settings: Settings, tmp_path: Path) -> None:
    run = CliRunner().invoke
    folder, manifest = tmp_path / "set", tmp_path / "set.json"
    export = ["export", "BTC/*", "--dir", str(folder), "--manifest", str(manifest)]
    made = run(app, [*export, "--data-dir", str(settings.data_dir)])
    assert made.exit_code == 0, made.output
    key = public_key(settings.data_dir)
    assert f"signed by {key}" in made.stderr
    proof = ["verify", "--manifest", str(manifest), "--data", str(folder)]
    good = run(app, [*proof, "--key", key])
    assert good.exit_code == 0 and "2 files are as signed on" in good.stdout
    assert "not who signed" in run(app, proof).stderr
    (folder / CANDLES).write_bytes(b"")
    bad = run(app, [*proof, "--output", "json"])
    assert bad.exit_code == 1 and f"{CANDLES}: its bytes differ from those that were signed" in bad.stderr
    assert json.loads(bad.stdout)["proven"] is False
    assert run(app, [*proof, "--key", "abc"]).exit_code == 2
    assert run(app, ["verify", BTC]).exit_code == 2
    assert run(app, ["verify", BTC, "--manifest", str(manifest)]).exit_code == 2
    assert run(app, ["export", BTC, "--to", "csv", "--manifest", str(manifest)]).exit_code == 2
    lost = run(app, ["verify", "--manifest", str(manifest)])
    assert lost.exit_code == 1 and lost.stderr.endswith(
        f"none of them is in {tmp_path}: name their folder with --data\n"
    )
    gone = run(app, ["verify", "--manifest", str(tmp_path / "none.json")])
    assert gone.exit_code == 1 and "cannot be read: No such file" in str(gone.exception)
