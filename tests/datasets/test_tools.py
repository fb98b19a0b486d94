"""The real freqtrade, nautilus_trader and backtrader load the output of `export`, each in a separate environment."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.settings import Settings
from datasets.layouts import LAYOUTS
from datasets.stored import read_candles
from tests.distributions.test_wheels import environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

HERE = Path(__file__).parent


def loaded(tmp_path: Path, tool: str, *arguments: str) -> list[list[str]]:
    package = {"nautilus": "nautilus_trader"}.get(tool, tool)
    python = environment(tmp_path / "environment", tmp_path, package)
    done = subprocess.run(
        [python, HERE / f"check_{tool}.py", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line.split(",") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("tool", ["freqtrade", "nautilus", "backtrader"])
def test_the_tool_loads_every_whole_candle_and_no_other(tool: str, settings: Settings, tmp_path: Path) -> None:
    candles = read_candles(settings, "BTC/USDT.BINANCE", 60)
    folder = tmp_path / "export"
    [file] = LAYOUTS[tool].write(candles, folder)
    arguments = {"freqtrade": [str(file.parent), "BTC/USDT"], "nautilus": [str(folder)], "backtrader": [str(file)]}
    rows = loaded(tmp_path, tool, *arguments[tool])
    if tool == "nautilus":
        found = [(int(row[1]) / 1e9 - 60, *map(float, row[2:])) for row in rows]
    elif tool == "backtrader":
        # Its times are days as doubles, exact to some microseconds.
        times = [datetime.fromisoformat(row[0]).replace(tzinfo=UTC).timestamp() for row in rows]
        found = [(float(round(time)), *map(float, row[1:])) for time, row in zip(times, rows, strict=True)]
    else:
        found = [tuple(map(float, row)) for row in rows]
    expected = [
        (row["open_time"].timestamp(), row["open"], row["high"], row["low"], row["close"], row["volume"])
        for row in candles.whole.to_pylist()
    ]
    assert found == expected
