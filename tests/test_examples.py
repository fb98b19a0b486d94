"""The code generates exactly the pictures and examples in the repository."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_in_the_readme_equals_the_output_of_its_example(tmp_path: Path) -> None:
    drawn = tmp_path / "pattern.svg"
    example("pattern_chart").main(drawn)
    assert drawn.read_text() == (ROOT / "docs" / "images" / "pattern.svg").read_text()
    assert "docs/images/pattern.svg" in (ROOT / "README.md").read_text()
    assert drawn.read_text().count('class="match"') == 1


def test_pictures_can_be_read_on_a_light_page_and_on_a_dark_one() -> None:
    """A page may be dark where the browser prefers light, so a picture must not follow the browser's preference."""
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    assert len(pictures) > 30
    assert [path.name for path in pictures if "prefers-color-scheme" in path.read_text()] == []
