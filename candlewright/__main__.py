"""`candlewright …`, or `python -m candlewright …`."""

import sys
import warnings

#: Commands that do not use pandas. pyarrow loads it for its own type checks wherever it is installed, which takes a
#: third of the time of all that these load.
_WITHOUT_PANDAS = ("history", "load")


def main() -> None:
    """Run one command. Exit code: 0 done, 1 the platform refused (message on stderr), 2 wrong usage."""
    from candlewright.cli.app import app
    from candlewright.wire.errors import CandlewrightError

    if len(sys.argv) > 1 and sys.argv[1] in _WITHOUT_PANDAS:
        # From now on its import fails, as if it were not installed.
        sys.modules["pandas"] = None  # type: ignore[assignment]
    warnings.formatwarning = lambda message, *_, **__: f"candlewright: warning: {message}\n"
    try:
        app(prog_name="candlewright")
    except CandlewrightError as error:
        print(f"candlewright: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
