"""The site builds strictly, loads nothing from other hosts, and its links lead to existing pages."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_relative_links_of_the_pages_lead_to_files() -> None:
    made = ("reference/", "repository/", "decisions/overview.md")
    broken = []
    for path in DOCS.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)", path.read_text()):
            target = (path.parent / link).resolve()
            is_made = target.is_relative_to(DOCS) and target.relative_to(DOCS).as_posix().startswith(made)
            if not is_made and not target.exists():
                broken.append(f"{path.relative_to(ROOT)}: {link}")
    assert broken == []


@pytest.mark.timeout(300)
def test_the_site_builds_strictly_and_offline(tmp_path: Path) -> None:
    shown = subprocess.run(
        [ROOT / "run", "docs", "--site-dir", tmp_path / "site"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert "aconnect" in (tmp_path / "site" / "reference" / "client" / "index.html").read_text()
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 50
    loaded = [
        found
        for page in pages
        for found in re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text())
    ]
    assert loaded == []
    index = (tmp_path / "site" / "search" / "search_index.json").read_text()
    assert "MATCH_RECOGNIZE" in index
    shutil.rmtree(tmp_path / "site")
