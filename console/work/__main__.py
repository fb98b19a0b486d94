"""`python -m console.work`: reads the settings from the first line of stdin, then tasks until stdin ends."""

import sys

from console.work.worker import serve
from core.absent import leave_out
from core.settings import Settings


def main() -> int:
    leave_out("pandas")
    source = sys.stdin.buffer
    serve(Settings.model_validate_json(source.readline()), source, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
