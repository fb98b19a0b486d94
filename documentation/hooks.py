"""MkDocs calls this: it adds the pages that are made from the code, by the Python of the project's own environment.

The site's environment holds MkDocs and nothing of the project.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The recipes follow their index; a page of docs/ that the navigation does not name is listed under Reference."""
    assert config.nav is not None
    (cookbook,) = (section["Cookbook"] for section in config.nav if "Cookbook" in section)
    index = (Path(config.docs_dir) / "cookbook" / "index.md").read_text()
    cookbook += [f"cookbook/{page}" for page in dict.fromkeys(re.findall(r"\]\(([\w-]+\.md)\)", index))]
    named = str(config.nav)
    (reference,) = (section["Reference"] for section in config.nav if "Reference" in section)
    reference += [path.name for path in sorted(Path(config.docs_dir).glob("*.md")) if f"'{path.name}'" not in named]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    python = os.environ.get("CANDLEWRIGHT_DOCS_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "documentation", folder], check=True, cwd=ROOT)
        for path in sorted(Path(folder).rglob("*.md")):
            files.append(File.generated(config, path.relative_to(folder).as_posix(), content=path.read_text()))
    return files
