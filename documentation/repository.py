"""Documents outside docs/ as pages of the site: the README of each folder, and those at the root."""

import re
from pathlib import Path, PurePosixPath

from documentation.source import ROOT

TOP = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
FOLDER = PurePosixPath("repository")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]*)(#[^)\s]*)?\)")


def sources() -> dict[PurePosixPath, PurePosixPath]:
    """Where each document of the repository is on the site: path below the root to path below docs/."""
    readmes = sorted(
        (*ROOT.glob("[a-z]*/README.md"), *ROOT.glob("gateways/*/README.md"), *ROOT.glob("triggers/*/README.md"))
    )
    found = {PurePosixPath(name): FOLDER / page for name, page in TOP.items()}
    for path in readmes:
        below = PurePosixPath(path.relative_to(ROOT).as_posix())
        found[below] = FOLDER / ("-".join(below.parent.parts) + ".md")
    return found


def pages() -> dict[PurePosixPath, str]:
    places = sources()
    found = {place: moved(source, (ROOT / source).read_text(), places) for source, place in places.items()}
    example = (ROOT / "examples" / "ingestor.py").read_text()
    found[FOLDER / "ingestor-example.md"] = f"# An ingestor of your own\n\n```python\n{example}```\n"
    return found


def moved(source: PurePosixPath, text: str, places: dict[PurePosixPath, PurePosixPath]) -> str:
    """`text` with the links of `source` as its page needs them. A link to a file that the site lacks becomes text."""

    def replaced(found: re.Match[str]) -> str:
        label, link, anchor = found[1], found[2], found[3] or ""
        place = target(source, link, places) if link else ""
        return found[0] if not link else f"[{label}]({place}{anchor})" if place else label

    return _LINK.sub(replaced, text)


def target(source: PurePosixPath, link: str, places: dict[PurePosixPath, PurePosixPath]) -> str:
    """Where a link of `source` leads on the site, from the folder of these pages; empty if nowhere."""
    path = PurePosixPath(*_normalised(source.parent / link))
    if path.parts == ("docs", "decisions"):
        return "../decisions/overview.md"
    if path.parts[:1] == ("docs",) and path.suffix:
        return "../" + "/".join(path.parts[1:])
    place = places.get(path) or places.get(path / "README.md")
    return place.name if place else ""


def _normalised(path: PurePosixPath) -> list[str]:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return parts


def decisions() -> str:
    """The index of the decisions, by number and title."""
    lines = ["# Decisions\n", "Why things are as they are. A decision is never edited, only superseded.\n"]
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text().splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({Path(path).name})")
    return "\n".join(lines) + "\n"
