"""No two modules import each other, directly or through others, even for types alone: what both need is in a third."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
PAGES = ROOT / "console/web/src"
FROM = re.compile(r'(?:\bfrom|\bimport)\s*\(?\s*"(\.[^"]+)"')


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def of_python() -> dict[str, set[str]]:
    # Imports under TYPE_CHECKING and inside functions are included.
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def targets(file: Path, text: str) -> Iterator[str]:
    for name in FROM.findall(text):
        for suffix in (".ts", ".tsx"):
            target = (file.parent / (name + suffix)).resolve()
            if target.exists():
                yield str(target.relative_to(PAGES))


def of_pages() -> dict[str, set[str]]:
    files = [*PAGES.rglob("*.ts"), *PAGES.rglob("*.tsx")]
    return {str(file.relative_to(PAGES)): set(targets(file, file.read_text())) for file in files}


def test_modules_import_each_other_in_one_direction() -> None:
    graph = of_python()
    assert "bus.lives" in graph["bus.api"]
    assert circle(graph) == []


def test_modules_of_the_console_import_each_other_in_one_direction() -> None:
    graph = of_pages()
    assert "chart/candles.ts" in graph["chart/stretch.ts"]
    assert circle(graph) == []


@pytest.mark.parametrize(("graph", "size"), [({"a": {"b"}, "b": {"c"}, "c": set()}, 0), ({"a": {"b"}, "b": {"a"}}, 3)])
def test_a_circle_is_found(graph: Mapping[str, set[str]], size: int) -> None:
    assert len(circle(graph)) == size
