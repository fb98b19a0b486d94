"""The example of a foreign ingestor, in a separate process, against a real broker."""

import subprocess
import sys
from pathlib import Path

import pytest

from candlewright.wire import ingestor_pb2 as ing
from tests.broker.conftest import Stage
from tests.broker.harness import MINUTE, START

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ingestor.py"


def test_the_example_is_short_and_serves_exact_ranges(stage: Stage) -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 100
    stage.venue("EXAMPLE", candles_per_page=100)
    broker = stage.broker()
    whole = stage.client.submit(rows=2_500, ticker="BTC/USDT.EXAMPLE", start=START + 7)
    limited = stage.client.submit(rows=2_500, ticker="ETH/USDT.EXAMPLE", limit=3)
    command = [sys.executable, str(EXAMPLE), broker.address, "EXAMPLE", "2"]
    process = subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    try:
        first, second = stage.client.end(whole), stage.client.end(limited)
    finally:
        process.kill()
        process.wait()
    assert (first.status, first.rows, first.expected) == (ing.HistoryReadyNotification.OK, 2_500, 2_500)
    assert (second.status, second.rows) == (ing.HistoryReadyNotification.OK, 3)
    opens = sorted(open_time for piece in stage.client.pieces(whole) for open_time in stage.client.rows(piece))
    assert opens == [START + number * MINUTE for number in range(1, 2_501)]
