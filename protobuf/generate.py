"""Regenerates the classes from the `.proto` files: `python -m protobuf.generate [OUTPUT_DIR]`.

Messages that clients exchange with the platform become modules of `candlewright.wire`; the others stay here.

If there is a NAME_superset.proto for NAME.proto, classes are made only from the superset, because both declare the same
names.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Files whose path below `protobuf` is part of their contract, because other files import them by it.
PLACED = "apache/rocketmq/v1"
#: Modules of the client library.
PUBLIC = ("candlewright_pb2", "ingestor_pb2")
WIRE = "candlewright/wire"


def generate(output: Path) -> None:
    """Write the modules and their `.pyi` below `output`; raises RuntimeError if the compiler refuses a file."""
    import google.rpc

    found = sorted((ROOT / "protobuf").glob("*.proto"))
    _compile(ROOT, [], [file for file in found if file.with_stem(f"{file.stem}_superset") not in found], output)
    _publish(output)
    (google_rpc,) = google.rpc.__path__
    placed = output / "protobuf"
    placed.mkdir(exist_ok=True)
    _compile(
        ROOT / "protobuf", [Path(google_rpc).parent.parent], sorted((ROOT / "protobuf" / PLACED).iterdir()), placed
    )
    package = PLACED.replace("/", ".")
    for file in (placed / PLACED).glob("*_pb2.py*"):
        file.write_text(file.read_text().replace(f"from {package} import", f"from protobuf.{package} import"))


def _publish(output: Path) -> None:
    """Move the public modules, and have the others import them from there."""
    wire = output / WIRE
    wire.mkdir(parents=True, exist_ok=True)
    for name in PUBLIC:
        for ending in (".py", ".pyi"):
            (output / "protobuf" / f"{name}{ending}").replace(wire / f"{name}{ending}")
    for file in (*wire.glob("*_pb2.py*"), *(output / "protobuf").glob("*_pb2.py*")):
        text = file.read_text()
        for name in PUBLIC:
            text = text.replace(f"from protobuf import {name}", f"from {WIRE.replace('/', '.')} import {name}")
        file.write_text(text)


def _compile(root: Path, includes: Sequence[Path], files: Sequence[Path], output: Path) -> None:
    from grpc_tools import protoc

    names = [str(file.relative_to(root)) for file in files if file.suffix == ".proto"]
    paths = [f"-I{path}" for path in (root, *includes)]
    # The path of google/protobuf, which the compiler finds by itself only when run as a command.
    own = f"-I{Path(protoc.__file__).parent / '_proto'}"
    if protoc.main(["protoc", *paths, own, f"--python_out={output}", f"--pyi_out={output}", *names]) != 0:
        raise RuntimeError(f"protoc refused one of {names}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
