"""`candlewright …`, or `python -m candlewright …`."""

import sys


def main() -> None:
    """Run one command. Exit code: 0 done, 1 the platform said no (message on stderr), 2 wrong usage."""
    from candlewright.cli.app import app
    from core.errors import CandlewrightError

    try:
        app(prog_name="candlewright")
    except CandlewrightError as error:
        print(f"candlewright: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
