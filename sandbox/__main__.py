"""`python -m sandbox`: serve until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import sys

from core.background import exit_on_failure
from core.part import call_to_stop
from sandbox.serving.server import Sandbox
from sandbox.settings import SandboxSettings, read_settings


async def serve(settings: SandboxSettings) -> None:
    """Serve until the process is asked to stop."""
    stop = asyncio.Event()
    call_to_stop(stop.set)
    async with Sandbox(**settings.model_dump()) as sandbox:
        print(f"sandbox exchange listens on {sandbox.url}", flush=True)
        await stop.wait()


def main() -> int:
    """Exit code: 0 after a clean stop, 1 if it cannot start (the reason is on stderr)."""
    exit_on_failure()
    try:
        asyncio.run(serve(read_settings()))
    except (OSError, ValueError) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
