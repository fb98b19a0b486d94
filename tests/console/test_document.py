"""The document is accurate: every call that it allows is answered as it says, and nothing fails. By schemathesis."""

import asyncio
import os
import re
import sys
from pathlib import Path

import httpx
import pytest

from console.app import OPERATIONS
from iceberg import create_tables, open_catalog
from tests.console.test_stream import serving
from tests.relay.conftest import Start, start_relay  # noqa: F401

#: Streams do not end; a registration waits for the pipeline, which is not part of this test.
EXCLUDED = ("stream", "add_trigger")
SECONDS = 10
LONG_SECONDS = 120


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(LONG_SECONDS, marks=pytest.mark.long)])
async def test_every_answer_is_one_that_the_document_names(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    seconds: int,
) -> None:
    (tmp_path / "schemathesis.toml").write_text(
        """[checks]
positive_data_acceptance.expected-statuses = ["2xx", "304", "400", "401", "403", "404", "409", "410"]
"""
    )
    async with serving(start_relay(), tmp_path / "data", requests_per_second=10_000) as server:
        await asyncio.to_thread(create_tables, open_catalog(server.settings))
        command = [
            str(Path(sys.executable).with_name("st")),
            "--config-file",
            str(tmp_path / "schemathesis.toml"),
            "run",
            f"http://{server.place}/openapi.json",
            "--max-time",
            str(seconds),
            "--phases",
            "coverage,fuzzing",
            "--generation-deterministic",
            "--no-color",
            *(word for name in EXCLUDED for word in ("--exclude-operation-id", name)),
        ]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONWARNINGS": ""},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0, said
        tested = re.search(r"Tested: (\d+)", said)
        # The document itself is not counted. On a busy machine the short form does not reach every call.
        every = len(OPERATIONS) - len(EXCLUDED) - 1
        assert tested is not None and int(tested[1]) >= (1 if seconds == SECONDS else every), said


@pytest.mark.timeout(60)
async def test_every_call_is_documented_with_its_problems(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    async with serving(start_relay(), tmp_path) as server, httpx.AsyncClient() as client:
        paths = (await client.get(f"http://{server.place}/openapi.json")).json()["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(names) == len(set(names)) >= 20
    for path in paths.values():
        for operation in path.values():
            assert {"400", "421", "429"} <= operation["responses"].keys()
            assert operation["summary"] and operation["tags"]
