"""`candlewright …`, or `python -m candlewright …`."""

import sys
import warnings


def main() -> None:
    """Run one command. Exit code: 0 done, 1 the platform refused (message on stderr), 2 wrong usage."""
    from candlewright.cli.app import app
    from candlewright.wire.errors import CandlewrightError

    warnings.formatwarning = lambda message, *_, **__: f"candlewright: warning: {message}\n"
    try:
        app(prog_name="candlewright")
    except CandlewrightError as error:
        print(f"candlewright: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
