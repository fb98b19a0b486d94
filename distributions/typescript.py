"""Makes the npm package of the TypeScript client, with the compiler that checks the console's pages.

python distributions/typescript.py [FOLDER]     # FOLDER/candlewright-VERSION.tgz (default: dist/npm)
python distributions/typescript.py --check      # only its types
"""

import shutil
import sys
import tempfile
from pathlib import Path

from inventory import ROOT
from pages import COMPILER, NPM, Failed, install, node

CLIENT = ROOT / "clients" / "typescript"


def check() -> None:
    install(with_tools=True)
    node(COMPILER, "--project", CLIENT, "--noEmit")


def pack(folder: Path) -> None:
    """The same sources give the same bytes."""
    install(with_tools=True)
    with tempfile.TemporaryDirectory() as place:
        package = Path(place)
        node(COMPILER, "--project", CLIENT, "--outDir", package / "dist")
        for file in (CLIENT / "package.json", CLIENT / "README.md", ROOT / "LICENSE"):
            shutil.copy(file, package)
        folder.mkdir(parents=True, exist_ok=True)
        node(NPM, "pack", package, "--pack-destination", folder.absolute(), "--silent")


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--check"]:
            check()
        else:
            pack(Path(sys.argv[1] if sys.argv[1:] else ROOT / "dist" / "npm"))
    except Failed as error:
        sys.exit(f"typescript: {error}")
