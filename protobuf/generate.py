"""Regenerates the classes from the `.proto` files: `python -m protobuf.generate [OUTPUT_DIR]`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def generate(output: Path) -> None:
    """Write `protobuf/*_pb2.py` and `.pyi` below `output`; raises RuntimeError when the compiler refuses a file."""
    from grpc_tools import protoc

    files = [str(file.relative_to(ROOT)) for file in sorted((ROOT / "protobuf").glob("*.proto"))]
    arguments = ["protoc", f"-I{ROOT}", f"--python_out={output}", f"--pyi_out={output}", *files]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"protoc refused one of {files}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
