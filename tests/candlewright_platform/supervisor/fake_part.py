"""A minimal part for the supervisor's tests: `fake_part.py NAME [--stubborn] [--child] [--refuse] [--count]`."""
# ruff: noqa: T201

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from core.http import Status, StatusServer


def main() -> None:
    if "--refuse" in sys.argv:
        print(f"{sys.argv[1]}.url: no such service", file=sys.stderr)
        sys.exit(2)
    stop = threading.Event()
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if "--child" in sys.argv:
        # A grandchild that left the process group, as Spark's workers do.
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], process_group=0)
    name = sys.argv[1]

    def status() -> Status:
        if "--count" in sys.argv:
            print("asked", flush=True)
        return Status(part=name, is_ready=True)

    page = StatusServer(
        "127.0.0.1:0",
        status,
        port_file=Path(os.environ["CANDLEWRIGHT_HTTP_PORT_FILE"]),
    )
    print(f"{name} runs", flush=True)
    stop.wait()
    print(f"{name} stops", flush=True)
    page.close()


if __name__ == "__main__":
    main()
