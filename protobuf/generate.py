"""Regenerates the classes from the `.proto` files: `python -m protobuf.generate [OUTPUT_DIR]`.

Where NAME_superset.proto stands beside NAME.proto, classes are made from the superset alone: both declare
the same names.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Files whose path below `protobuf` is part of their contract, for other files import them by it.
PLACED = "apache/rocketmq/v1"


def generate(output: Path) -> None:
    """Write `protobuf/*_pb2.py` and `.pyi` below `output`; raises RuntimeError when the compiler refuses a file."""
    import google.rpc

    found = sorted((ROOT / "protobuf").glob("*.proto"))
    _compile(ROOT, [], [file for file in found if file.with_stem(f"{file.stem}_superset") not in found], output)
    (google_rpc,) = google.rpc.__path__
    placed = output / "protobuf"
    placed.mkdir(exist_ok=True)
    _compile(
        ROOT / "protobuf", [Path(google_rpc).parent.parent], sorted((ROOT / "protobuf" / PLACED).iterdir()), placed
    )
    package = PLACED.replace("/", ".")
    for file in (placed / PLACED).glob("*_pb2.py*"):
        file.write_text(file.read_text().replace(f"from {package} import", f"from protobuf.{package} import"))


def _compile(root: Path, includes: Sequence[Path], files: Sequence[Path], output: Path) -> None:
    from grpc_tools import protoc

    names = [str(file.relative_to(root)) for file in files if file.suffix == ".proto"]
    paths = [f"-I{path}" for path in (root, *includes)]
    # Of google/protobuf, which the compiler finds by itself only when it is run as a command.
    own = f"-I{Path(protoc.__file__).parent / '_proto'}"
    if protoc.main(["protoc", *paths, own, f"--python_out={output}", f"--pyi_out={output}", *names]) != 0:
        raise RuntimeError(f"protoc refused one of {names}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
