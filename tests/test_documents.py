"""Files, settings and metrics that READMEs and guides name exist."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

from candlewright.settings.environment import names_of
from core.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[1]
#: Files of the user.
USERS_FILES = {"candlewright.toml"}


def documents() -> list[Path]:
    folders = sorted((*ROOT.glob("[a-z]*/README.md"), *ROOT.glob("gateways/*/README.md")))
    own = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
    return [*own, *folders, *sorted(ROOT.glob("docs/*.md"))]


@cache
def source_files() -> list[Path]:
    found = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/**/*.md")]
    for folder in ROOT.glob("[a-z]*/README.md"):
        found += (
            path
            for path in folder.parent.rglob("*")
            if path.suffix in (".py", ".lua", ".proto", ".md") and "node_modules" not in path.parts
        )
    return found


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    known = {path.name for path in source_files()} | {path.name for path in ROOT.iterdir()} | USERS_FILES
    named = re.findall(r"`([\w/.-]+\.(?:py|lua|proto|md|yaml|toml))`", document.read_text())
    # NAME stands for any name.
    missing = {name for name in named if Path(name).name not in known and not (ROOT / name).is_file()}
    assert {name for name in missing if "NAME" not in name} == set()


#: Folders with one file for each venue, format or subject, whose README explains the files together.
ALIKE = ("console/routes/", "datasets/archives/", "datasets/layouts/", "ingestor/venues/", "sandbox/venues/")


def unnamed(package: Path) -> list[str]:
    """The modules of a package that no README above them names. A benchmark is named like its command."""
    found = []
    for path in sorted(package.rglob("*.py")):
        below = path.relative_to(ROOT).as_posix()
        if path.stem.startswith("__") or path.stem.endswith("_pb2") or below.startswith(ALIKE):
            continue
        readmes = (folder / "README.md" for folder in path.parents if folder.is_relative_to(package))
        text = "".join(readme.read_text() for readme in readmes if readme.is_file())
        names = {path.stem, path.stem.removeprefix("bench_").replace("_", "-")}
        if not any(re.search(rf"\b{name}\b", text) for name in names):
            found.append(below)
    return found


@pytest.mark.parametrize(
    "package",
    [path.parent for path in documents() if (path.parent / "__init__.py").is_file()],
    ids=lambda path: path.name,
)
def test_every_module_is_named_in_the_readme_of_its_package(package: Path) -> None:
    assert unnamed(package) == []


def test_every_setting_of_the_guide_exists() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    groups = set(Settings.model_fields)
    named = {name for name in re.findall(r"`([a-z]+\.[a-z_]+)`", text) if name.partition(".")[0] in groups}
    known = {name.lower().replace("__", ".") for name in names_of(Settings)} | {"exchange.url"}
    files = {name for name in named if name.endswith((".key", ".toml", ".py"))}
    assert len(named) > 10
    assert named - known - files == set()


def test_every_metric_of_the_guide_is_counted_somewhere() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    code = "".join(path.read_text() for path in source_files() if path.suffix == ".py" and "tests" not in path.parts)
    named = set(re.findall(r"`(candlewright_[a-z_]+)", text))
    assert len(named) > 5
    assert {name for name in named if name not in code and name.removesuffix("_total") not in code} == set()


def test_every_setting_is_in_the_guide() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    missing = []
    names = set(names_of(Settings))
    groups = {name.rpartition("__")[0] for name in names}
    for name in sorted(names - groups):
        above, _, setting = name.lower().rpartition("__")
        group = above.replace("__", ".")
        own = [row for row in rows if f"`[{group}]`" in row] if group != "triggers" else rows
        if group and not any(f"`{setting}`" in row for row in own):
            missing.append(f"{group}.{setting}")
    assert missing == []


def test_every_settings_file_of_the_documents_can_be_read(tmp_path: Path) -> None:
    found = 0
    for path in source_files():
        if path.suffix != ".md":
            continue
        for text in re.findall(r"```toml\n(.*?)```", path.read_text(), re.DOTALL):
            found += 1
            assert tomllib.loads(text), path
            if not text.startswith("# kapacitor.conf"):
                file = tmp_path / f"{found}.toml"
                file.write_text(text)
                load_settings(file)
    assert found >= 3


def test_the_settings_file_of_the_guide_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    file = tmp_path / "candlewright.toml"
    file.write_text(text)
    settings = load_settings(file)
    assert settings.ingestor.venues == ("BINANCE", "KRAKEN")
    assert settings.exchange_url("BINANCE") == "http://127.0.0.1:9001"
    assert settings.iceberg.ticks_retention_days == 30


def test_the_walks_of_the_architecture_name_files_that_exist_at_their_paths() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    walks = re.findall(r"^## (Walk \d)[^\n]*\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert len(walks) == 3
    for title, walk in walks:
        files = re.findall(r"`([\w/]+\.py)`", walk)
        assert len(files) > 10, title
        assert [name for name in files if not (ROOT / name).is_file()] == [], title


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_an_issue_form_has_what_its_host_requires(form: Path) -> None:
    """Without it, the host offers an empty text in place of the form."""
    found = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(found)
    fields = [each for each in found["body"] if each["type"] != "markdown"]
    assert {each["type"] for each in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert all(each["attributes"]["label"] for each in fields)
    assert len({each["id"] for each in fields}) == len(fields) > 0
