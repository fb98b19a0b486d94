"""Write the pages that are made from the code: `python -m documentation FOLDER`."""

import sys
from pathlib import Path, PurePosixPath

from documentation import candles, commands, errors, functions, messages, metrics, repository, settings, tables

REFERENCE = {
    "candle-patterns": candles.markdown,
    "commands": commands.markdown,
    "errors": errors.markdown,
    "functions": functions.markdown,
    "messages": messages.markdown,
    "metrics": metrics.markdown,
    "settings": settings.markdown,
    "tables": tables.markdown,
}


def pages() -> dict[PurePosixPath, str]:
    """All made pages, by their path below docs/."""
    found = {PurePosixPath("reference", f"{name}.md"): make() for name, make in REFERENCE.items()}
    found[PurePosixPath("decisions/overview.md")] = repository.decisions()
    return found | repository.pages()


def main(folder: Path) -> None:
    for path, text in pages().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
