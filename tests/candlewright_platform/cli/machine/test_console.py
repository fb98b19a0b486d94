"""`candlewright console`: the running platform's console in the browser."""

import threading
import webbrowser
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright_platform.cli.machine.console import open_console
from candlewright_platform.supervisor.ports import free_port


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        bind = f"127.0.0.1:{server.server_port}"
        monkeypatch.setenv("CANDLEWRIGHT_CONSOLE__BIND", bind)
        yield f"http://{bind}/"
        server.shutdown()
        thread.join()


def test_the_chart_is_opened_and_its_address_printed(
    console: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    open_console("BTC/USDT.BINANCE", "1h", is_printed=False, data_dir=tmp_path, config=None)
    assert opened == [f"{console}chart?ticker=BTC/USDT.BINANCE&period=1h"]
    assert capsys.readouterr().out == f"{opened[0]}\n"


def test_with_the_option_the_address_is_only_printed(
    console: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail(address))
    open_console(None, "1m", is_printed=True, data_dir=tmp_path, config=None)
    assert capsys.readouterr().out == f"{console}\n"


def test_without_a_platform_the_command_to_start_one_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_CONSOLE__BIND", f"127.0.0.1:{free_port()}")
    with pytest.raises(CandlewrightError, match="candlewright up"):
        open_console(None, "1m", is_printed=True, data_dir=tmp_path, config=None)


def test_a_disabled_console_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_CONSOLE__BIND", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("CANDLEWRIGHT_CONSOLE__ENABLED", "false")
    with pytest.raises(CandlewrightError, match=r"no console answers at http://127\.0\.0\.1:\d+/: .*enabled"):
        open_console(None, "1m", is_printed=True, data_dir=tmp_path, config=None)


def test_an_invalid_ticker_is_refused(console: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        open_console("BTCUSDT", "1m", is_printed=True, data_dir=tmp_path, config=None)
