"""A data directory is moved between two starts: everything in it is there again after `candlewright relocate`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.table import Table

import candlewright as cw
from candlewright.wire.errors import DirectoryMoved
from candlewright_platform.supervisor.private import PrivatePlatform
from core.settings import Settings
from iceberg import OHLC, TABLES, open_catalog
from tests.faults.harness import START_SECONDS, until

TICKER = "BTC/USDT.BINANCE"


def command(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "candlewright", *arguments, "--data-dir", str(folder)],
        env={name: value for name, value in os.environ.items() if not name.startswith("CANDLEWRIGHT_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(folder: Path, *arguments: str) -> tuple[int, str]:
    with command(folder, *arguments) as running:
        _, said = running.communicate(timeout=120)
    return running.returncode, said


def killed_at_its_first_file(folder: Path) -> None:
    before = {file: file.stat().st_ino for file in folder.glob("warehouse/**/*.avro")}
    with command(folder, "relocate") as running:
        until(
            lambda: running.poll() is not None or any(file.stat().st_ino != own for file, own in before.items()),
            60,
            "a file is rewritten",
        )
        running.send_signal(signal.SIGKILL)


def table(folder: Path, name: str = OHLC.name) -> Table:
    return open_catalog(Settings(data_dir=folder)).load_table(("market", name))


def contents(folder: Path) -> dict[str, list[str]]:
    """Rows of each table at each snapshot that it keeps."""
    found = {}
    for definition in TABLES:
        own = table(folder, definition.name)
        for snapshot in own.metadata.snapshots:
            rows = own.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
            found[f"{definition.name} {snapshot.snapshot_id}"] = sorted(map(repr, rows))
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_moved_data_directory_continues_after_relocate(tmp_path: Path) -> None:
    platform = PrivatePlatform(tmp_path / "before", ("--sandbox",))
    try:
        platform.start(START_SECONDS)
        with cw.connect(settings=platform.settings, timeout=60.0) as client:
            for day in ("02", "03", "04"):
                client.history(TICKER, "1m", start=f"2024-03-{day}", end=f"2024-03-{day}T02:00")
            with client.realtime(TICKER, ohlc_periods=[1]):
                client.triggers.add("close > 0", tickers=[TICKER], parameters={"period_seconds": "1"}, trigger_id="all")
                until(lambda: table(platform.data_dir, "ticks").scan().count(), 60, "trades are stored")
                until(lambda: table(platform.data_dir, "trigger_events").scan().count(), 60, "events are stored")
        assert outcome(platform.data_dir, "relocate")[0] == 1, "it runs"
        assert platform.stop() == 0

        rows = contents(platform.data_dir)
        assert len(table(platform.data_dir).metadata.snapshots) >= 3
        moved = tmp_path / "another place" / "after"
        moved.parent.mkdir()
        platform.data_dir.rename(moved)
        platform.data_dir = moved
        with pytest.raises(DirectoryMoved):
            table(moved)
        code, said = outcome(moved, "up", "--sandbox")
        assert (code, f"candlewright relocate --data-dir '{moved}'" in said) == (1, True), said

        killed_at_its_first_file(moved)
        assert outcome(moved, "relocate")[0] == 0
        assert contents(moved) == rows
        code, said = outcome(moved, "relocate")
        assert (code, "nothing to do" in said) == (0, True), said

        platform.start(START_SECONDS)
        with cw.connect(settings=platform.settings, timeout=60.0) as client:
            assert client.load(TICKER, "1m", "2024-03-03", "2024-03-03T02:00").to_arrow().num_rows == 120
            fetched = client.history(TICKER, "1m", start="2024-03-05", end="2024-03-05T02:00")
            assert fetched.to_arrow().num_rows == 120
            with client.realtime(TICKER, ohlc_periods=[1]):
                assert next(iter(client.triggers.events("all", timeout=60))).rows
        assert platform.stop() == 0
        after = contents(moved)
        kept = rows.keys() & after.keys()
        assert any(name.startswith(f"{OHLC.name} ") for name in kept)
        assert {name: after[name] for name in kept} == {name: rows[name] for name in kept}
    finally:
        platform.stop()
