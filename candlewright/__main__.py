"""`candlewright …`, or `python -m candlewright …`."""

import sys
import warnings
from importlib.abc import MetaPathFinder

#: Commands that do not use pandas. pyarrow loads it for its own type checks wherever it is installed, which takes a
#: third of the time that these commands need to load.
_WITHOUT_PANDAS = ("history", "load")


class _NoPandas(MetaPathFinder):
    """With it, an import of pandas fails as if it were not installed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("this command does without pandas", name=fullname)


def main() -> None:
    """Run one command. Exit code: 0 done, 1 the platform refused (message on stderr), 2 wrong usage."""
    from candlewright.cli.app import app
    from candlewright.wire.errors import CandlewrightError

    if len(sys.argv) > 1 and sys.argv[1] in _WITHOUT_PANDAS:
        sys.meta_path.insert(0, _NoPandas())
    warnings.formatwarning = lambda message, *_, **__: f"candlewright: warning: {message}\n"
    try:
        app(prog_name="candlewright")
    except CandlewrightError as error:
        print(f"candlewright: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
