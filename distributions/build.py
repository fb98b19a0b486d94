"""`./run build`: the three wheels, the npm package and the bill of materials; the same sources give the same bytes.

python distributions/build.py [FOLDER]      (default: dist)
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from inventory import ROOT, write_bill_of_materials
from pages import bundle
from typescript import pack

PROJECTS = (ROOT, ROOT / "distributions" / "candlewright", ROOT / "distributions" / "candlewright-cep")


def build(folder: Path) -> list[Path]:
    """Replaces the contents of the folder."""
    bundle()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for project in PROJECTS:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder.absolute())]
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)
    pack(folder / "npm")
    wheels = sorted(folder.glob("*.whl"))
    write_bill_of_materials(folder, wheels[0].name.split("-")[1])
    return sorted(file for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="run build", description="Builds the wheels, the npm package and the bill of materials."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=ROOT / "dist", help="its contents are replaced (default: dist)"
    )
    for file in build(parser.parse_args().folder):
        print(file)
