"""The progress bar: lines on stderr, one line on a terminal, a widget in a notebook."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

import candlewright as cw
from candlewright.client.notebook.bar_widget import BarWidget


def notebook(monkeypatch: pytest.MonkeyPatch) -> list[BarWidget]:
    """What the notebook shows; from now on there is a kernel."""
    shown: list[BarWidget] = []
    ipython, displaying = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.__dict__["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    displaying.__dict__["display"] = shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displaying)
    return shown


def test_lines_are_seconds_apart_and_the_end_is_always_one(capsys: pytest.CaptureFixture[str]) -> None:
    bar = cw.ProgressBar()
    for done in (100, 200, 1_440):
        bar(done, 1_440, note="")
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["history: 100 of 1,440 candles", "history: 1,440 of 1,440 candles"]
    assert printed.out == ""


def test_a_terminal_has_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = cw.ProgressBar("load", "rows")
    bar(1, 2, note="waiting for a slot")
    bar(2, 2, note="")
    assert capsys.readouterr().err == "\r\x1b[Kload: 1 of 2 rows (waiting for a slot)\r\x1b[Kload: 2 of 2 rows\n"


def test_a_notebook_has_a_widget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = notebook(monkeypatch)
    bar = cw.ProgressBar()
    bar(3, 10, note="")
    (widget,) = shown
    assert (widget.done, widget.expected, widget.text) == (3, 10, "history: 3 of 10 candles")
    assert capsys.readouterr().err == ""
    widget.close()


def test_a_notebook_without_widgets_has_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notebook(monkeypatch) == []
    monkeypatch.delitem(sys.modules, "candlewright.client.notebook.bar_widget")
    monkeypatch.setitem(sys.modules, "anywidget", None)
    cw.ProgressBar()(3, 10, note="")
    assert capsys.readouterr().err == "history: 3 of 10 candles\n"
