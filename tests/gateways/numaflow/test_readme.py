"""The client of the README in a separate process, over stubs under the SDK's names."""

import asyncio
import re
import sys
from importlib import resources
from pathlib import Path

import pytest
from grpc_tools import protoc

from gateways.numaflow.server import NumaflowSource
from tests.conftest import ROOT
from tests.gateways.numaflow.conftest import Serve, ShakyBus, publish

pytestmark = pytest.mark.processes


async def _printed(folder: Path, gateway: NumaflowSource) -> list[bytes]:
    text = (ROOT / "gateways" / "numaflow" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (folder / "client.py").write_text(code.replace("/var/run/numaflow/source.sock", str(gateway.details()["socket"])))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "client.py", cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.splitlines()


async def test_the_client_of_the_readme_reads_and_acknowledges(bus: ShakyBus, serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "pynumaflow" / "proto" / "sourcer"
    folder.mkdir(parents=True)
    (folder / "source.proto").write_text((ROOT / "protobuf" / "source_superset.proto").read_text())
    known = resources.files("grpc_tools") / "_proto"
    target = [f"-I{tmp_path}", f"-I{known}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    assert protoc.main(["protoc", *target, str(folder / "source.proto")]) == 0
    publish(bus, b"a", b"b")
    gateway = await serve()
    assert await _printed(tmp_path, gateway) == [b"2 pending", b"t b'a'", b"t b'b'"]
    assert bus.pending("t", "numaflow") == {0: 0, 1: 0}
