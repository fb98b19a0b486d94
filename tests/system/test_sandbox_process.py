"""The sandbox as a separate process."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PAGE = "/api/v3/klines?symbol=BTCUSDT&interval=1m&startTime=1704067200000&limit=500"


@contextmanager
def sandbox(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running process and its URL."""
    command = [sys.executable, "-m", "sandbox", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line, process.stderr and process.stderr.read()
            yield process, line.split()[-1]
        finally:
            process.kill()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as reply:
        content: bytes = reply.read()
        return content


@pytest.mark.timeout(60)
def test_two_processes_of_one_seed_have_the_same_market() -> None:
    with sandbox("--seed", "5") as (_, one), sandbox("--seed", "5") as (_, same), sandbox("--seed", "6") as (_, other):
        assert get(one + PAGE) == get(same + PAGE) != get(other + PAGE)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_sandbox_ends_cleanly_on_a_signal(number: signal.Signals) -> None:
    with sandbox("--clock", "2024-01-01", "--speed", "0", "--symbols", "FOO/USDT", "--no-rate-limit") as (process, url):
        assert get(url + "/api/v3/time") == b'{"serverTime":1704067200000}'
        assert b'"symbol":"FOOUSDT"' in get(url + "/api/v3/exchangeInfo")
        process.send_signal(number)
        _, errors = process.communicate(timeout=15)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--port", "no"], 2, "--port"),
        (["--port", "0", "--clock", "soon"], 1, "soon"),
        (["--port", "0", "--candles", "BTC/USDT:1m=/does/not/exist.csv"], 1, "exist.csv"),
    ],
)
def test_the_sandbox_reports_why_it_cannot_start(arguments: list[str], code: int, text: str) -> None:
    command = [sys.executable, "-m", "sandbox", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == code
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr
