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


def test_external_links_are_well_formed() -> None:
    """Checks links in Markdown and in angle brackets without asking their targets: the site is built and tested
    offline.
    """
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    links = [
        (path.relative_to(ROOT).as_posix(), link)
        for path in pages
        for link in re.findall(r"(?:\]\(|<)(https?:[^)>]*)[)>]", _prose(path.read_text()))
    ]
    assert len(links) > 20
    assert [(page, link) for page, link in links if not _is_well_formed(link)] == []


@pytest.mark.parametrize(
    "link",
    ["http://example.com", "https://example", "https://a b.com/", "https://example.com/#two words", "https://e.com/a#"],
)
def test_a_malformed_link_is_seen(link: str) -> None:
    assert not _is_well_formed(link)


def _prose(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def _is_well_formed(link: str) -> bool:
    if link.startswith("http://127.0.0.1:"):  # a running platform
        return True
    return re.fullmatch(r"https://[\w-]+(\.[\w-]+)+(:\d+)?(/[^\s#<>]*)?(#[\w%.:/()~-]+)?", link) is not None


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
