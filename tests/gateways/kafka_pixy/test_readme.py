"""The client of the README, in a separate process, with classes made as it says."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from grpc_tools import protoc

from tests.conftest import ROOT
from tests.gateways.kafka_pixy.conftest import Client, Serve

pytestmark = pytest.mark.processes


def test_the_client_of_the_readme_gets_its_message_back(serve: Serve, tmp_path: Path) -> None:
    text = (ROOT / "gateways" / "kafka_pixy" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"python -m grpc_tools\.(protoc .*)\n", text)
    arguments = command.replace("-Iprotobuf", f"-I{ROOT / 'protobuf'}").replace("_out=.", f"_out={tmp_path}").split()
    assert protoc.main(arguments) == 0

    async def scenario(client: Client) -> None:
        (tmp_path / "client.py").write_text(code.replace("127.0.0.1:19091", client.address))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "client.py", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert (process.returncode, out) == (0, b"3 0 b'buy 1'\n")

    serve(scenario)
