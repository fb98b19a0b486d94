"""The Python source of the project, as syntax trees."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Tests and tools have no metrics of a running platform.
OUTSIDE = {"benchmarks", "documentation", "examples", "tests"}


def modules(containing: str) -> Iterator[tuple[Path, ast.Module]]:
    """Every module of the platform in whose text the pattern is found, by its path below the root."""
    for folder in sorted(path.parent for path in ROOT.glob("*/__init__.py")):
        if folder.name not in OUTSIDE:
            for path in sorted(folder.rglob("*.py")):
                if not path.stem.endswith("_pb2") and re.search(containing, text := path.read_text()):
                    yield path.relative_to(ROOT), ast.parse(text)


def comments_of_assignments(path: Path) -> dict[str, str]:
    """The `#:` comment above each assignment of a module, by the name that is assigned."""
    lines = path.read_text().splitlines()
    found = {}
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            above: list[str] = []
            line = node.lineno - 2
            while line >= 0 and lines[line].startswith("#:"):
                above.insert(0, lines[line].lstrip("#: "))
                line -= 1
            if above:
                found[node.targets[0].id] = " ".join(above)
    return found
