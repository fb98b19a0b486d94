"""A supervisor over fake parts: `fake_up.py DATA_DIR PART[:OPTION…] …`."""
# ruff: noqa: T201

import asyncio
import os
import sys
from pathlib import Path

from candlewright.wire.errors import ConfigurationError
from candlewright_platform.supervisor.lock import DataDirectoryLock
from candlewright_platform.supervisor.probes import StatusPage
from candlewright_platform.supervisor.processes import kill_marked
from candlewright_platform.supervisor.server import PartSpec, Supervisor
from candlewright_platform.supervisor.state import PartPlan

FAKE = Path(__file__).with_name("fake_part.py")


def spec(data_dir: Path, text: str, stage: int) -> PartSpec:
    name, *options = text.split(":")
    port_file = data_dir / "run" / f"{name}.http"
    return PartSpec(
        plan=PartPlan(name, stage, stop_seconds=0.5),
        command=(sys.executable, str(FAKE), name, *(f"--{option}" for option in options)),
        environment={**os.environ, "CANDLEWRIGHT_HTTP_PORT_FILE": str(port_file)},
        probe=StatusPage(port_file),
        port_file=port_file,
    )


def main() -> int:
    data_dir = Path(sys.argv[1])
    try:
        lock = DataDirectoryLock.acquire(data_dir)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 1
    if lock.previous_run:
        kill_marked(lock.previous_run)
    run = f"test-{os.getpid()}"
    lock.announce(run)
    specs = [spec(data_dir, text, stage) for stage, text in enumerate(sys.argv[2:], start=1)]
    supervisor = Supervisor(
        specs,
        run,
        data_dir,
        http_bind="127.0.0.1:0",
        tell=lambda line: print(line, file=sys.stderr, flush=True),
        announce=lambda word: print(word, flush=True),
    )
    return asyncio.run(supervisor.run())


if __name__ == "__main__":
    sys.exit(main())
