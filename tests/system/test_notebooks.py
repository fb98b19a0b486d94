"""The notebooks in `examples/` run to their ends: in kernels, or as scripts, which is quicker."""

import runpy
from pathlib import Path

import jupytext
import nbclient
import pytest

from tests.conftest import ROOT
from tests.system.conftest import System

NOTEBOOKS = sorted((ROOT / "examples").glob("notebook_*.py"))
LIVE = ROOT / "examples" / "notebook_live.py"


@pytest.fixture(autouse=True)
def _of_this_platform(system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in system.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


def executed(path: Path) -> list[dict[str, str]]:
    """The output of each cell, by MIME type."""
    notebook = jupytext.read(path)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "execute_result"
    ]


@pytest.mark.parametrize("path", [each for each in NOTEBOOKS if each != LIVE], ids=lambda path: path.stem)
def test_a_notebook_runs_as_a_script(path: Path) -> None:
    runpy.run_path(str(path))


def test_a_kernel_shows_the_chart_and_the_events() -> None:
    chart, trigger, events, _ = executed(LIVE)
    assert "application/vnd.jupyter.widget-view+json" in chart
    assert "notebook-higher" in trigger["text/html"]
    assert "3 events" in events["text/html"]


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_kernel(path: Path) -> None:
    assert executed(path)
