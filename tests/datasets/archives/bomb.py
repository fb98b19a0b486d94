"""A zip archive that unpacks to a thousand times its size."""

import zipfile
from pathlib import Path

BOMB_BYTES = 8 << 20


def write_bomb(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.csv", b"0" * BOMB_BYTES)
