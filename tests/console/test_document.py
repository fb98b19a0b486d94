"""The document is accurate: schemathesis checks that every allowed call is answered as described, without a failure."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.app import OPERATIONS
from iceberg import create_tables, open_catalog
from tests.console.test_stream import serving
from tests.relay.conftest import Start, start_relay  # noqa: F401

#: schemathesis reads an answer to its end, which a stream does not have: the test after it reads the beginning of each.
EXCLUDED = ("stream",)
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


TOPICS = ("TICKS:BTC/USDT.BINANCE", "OHLC:BTC/USDT.BINANCE:60", "TRIGGER:none", "HISTORY_READY:none", "SNAPSHOT:A/B.X")
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_TOPIC = st.sampled_from(TOPICS) | st.builds("{}:{}".format, st.sampled_from(["TICKS", "OHLC", "RESPONSE", "X"]), _TEXT)
_NUMBER = st.integers().map(str) | st.sampled_from(["1", "7", "1.0", "1e3", "²", "9" * 5_000]) | _TEXT
_QUERY = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.lists(_TOPIC | _TEXT, max_size=4) | st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4),
        "from_sequence": _NUMBER,
        "cursor": _TEXT,
        "unknown": _TEXT,
    },
)
_LAST_ID = st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60)


@pytest.mark.timeout(300)
async def test_every_stream_begins_as_the_document_says_or_is_a_problem(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    async with serving(start_relay(), tmp_path, requests_per_second=10_000) as server:
        begun = []
        with httpx.Client(timeout=30) as client:
            document = await asyncio.to_thread(lambda: client.get(f"http://{server.place}/openapi.json").json())
            answers = document["paths"]["/api/v1/stream"]["get"]["responses"]

            @example({"topic": [TOPICS[0]]}, None)
            @given(_QUERY, _LAST_ID)
            def check(query: dict[str, Any], last_id: str | None) -> None:
                headers = {} if last_id is None else {"Last-Event-ID": last_id}
                with client.stream("GET", f"http://{server.place}/stream", params=query, headers=headers) as answer:
                    assert str(answer.status_code) in answers and answer.status_code < 500
                    media = answer.headers["content-type"].partition(";")[0]
                    assert media in answers[str(answer.status_code)]["content"]
                    if answer.status_code == 200:
                        assert next(answer.iter_lines()).startswith("retry: ")
                        begun.append(query)
                    else:
                        problem = json.loads(answer.read())
                        assert problem["status"] == answer.status_code and problem["detail"] and problem["title"]

            await asyncio.to_thread(check)
    assert begun


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
