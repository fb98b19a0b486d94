"""The output in terminals of 80 and 140 columns: no broken words, no hidden fields of a single row, complete
summaries.
"""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.cli.output import fitting, print_table, say, wrapped
from candlewright.cli.status import running_elsewhere
from candlewright.settings import ClientConfig
from candlewright.settings.client import HttpSettings

Terminal = Callable[[int], None]
NOTE = "not enough room for start, end, expected, got, holes, status, closed_until: a wider terminal shows all of them"
SNAPSHOT = {
    "ticker": "BTC/USDT.BINANCE",
    "exchange_time": "2026-11-23T01:54:04.124Z",
    "last": "134607.48",
    "bid": "134607.47",
    "bid_size": "0.00717",
    "ask": "134607.49",
    "ask_size": "0.01",
    "volume_24h": "1234.5",
}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    def of(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", "24")
        for stream in ("stdout", "stderr"):
            monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)

    return of


@pytest.mark.parametrize(("columns", "lines"), [(80, 2), (140, 1)])
def test_a_note_breaks_between_words(
    terminal: Terminal, capsys: pytest.CaptureFixture[str], columns: int, lines: int
) -> None:
    terminal(columns)
    say(NOTE)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all(len(line) <= columns for line in said)
    assert " ".join(" ".join(said).split()) == NOTE


def test_a_long_path_and_the_place_of_an_error_stay_as_they_are(terminal: Terminal) -> None:
    terminal(80)
    path = "/a/path" * 20
    assert path in wrapped(f"no requests yet in {path}", sys.stderr)
    place = "SELECT 1 FRM x\n         ^"
    assert wrapped(place, sys.stderr) == place


def test_a_pipe_gets_notes_whole(capsys: pytest.CaptureFixture[str]) -> None:
    say(NOTE * 3)
    assert capsys.readouterr().err == f"{NOTE * 3}\n"


@pytest.mark.parametrize(("columns", "lines"), [(80, len(SNAPSHOT)), (140, 3)])
def test_a_row_without_room_is_shown_one_field_a_line(
    terminal: Terminal, capsys: pytest.CaptureFixture[str], columns: int, lines: int
) -> None:
    terminal(columns)
    print_table(list(SNAPSHOT), [list(SNAPSHOT.values())])
    shown, said = capsys.readouterr()
    assert said == ""
    assert all(name in shown and value in shown for name, value in SNAPSHOT.items())
    assert len([line for line in shown.splitlines() if line.strip()]) == lines
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()) <= columns for line in shown.splitlines())


def test_longer_lists_leave_out_columns_and_report_it(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(80)
    print_table(list(SNAPSHOT), [list(SNAPSHOT.values())] * 2)
    shown, said = capsys.readouterr()
    assert "ask_size" not in shown
    assert "not enough room for ask, ask_size, volume_24h" in said


@pytest.mark.processes
@pytest.mark.parametrize("group", ["", "trigger", "dead-letters", "keys", "alerts", "config"])
@pytest.mark.parametrize("columns", [80, 140])
def test_no_summary_in_the_help_is_cut(group: str, columns: int) -> None:
    shown = CliRunner().invoke(app, [*group.split(), "--help"], terminal_width=columns, env={"COLUMNS": str(columns)})
    commands = shown.output.partition("Commands:")[2].splitlines()
    assert any(commands)
    assert [line for line in commands if line.endswith("...")] == []


def test_sentences_of_the_last_column_wrap_however_long_their_words_are() -> None:
    sentence = f"embedded, {'/a/long/path' * 8}"
    rows = [["door relay notifications", "missing", sentence]]
    assert fitting(["what", "verdict", "text"], rows, 80) == (
        [("what", True), ("verdict", False), ("text", True)],
        [],
    )
    assert fitting(["what", "verdict", "text"], rows, 50)[1] == ["text"]
    # A name is never broken.
    assert fitting(["what", "verdict", "text"], [[*rows[0][:2], "x" * 60]], 80)[1] == ["text"]


@contextmanager
def status_page(content: dict[str, str]) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_empty_list_names_the_directory_of_the_platform_that_runs(tmp_path: Path) -> None:
    with status_page({"data_dir": "/var/lib/candlewright"}) as bind:
        settings = ClientConfig(data_dir=tmp_path, http=HttpSettings(bind=bind))
        assert "add --data-dir /var/lib/candlewright" in running_elsewhere(settings)
        assert running_elsewhere(settings.model_copy(update={"data_dir": Path("/var/lib/candlewright")})) == ""
    assert running_elsewhere(settings) == ""
