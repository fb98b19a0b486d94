"""`candlewright bench NAME`: each benchmark is a module of `benchmarks/`, run in a separate process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import typer

from candlewright.cli.output import say
from candlewright_platform.supervisor.processes import LIBRARIES

#: The prefix of a name that is also a package's; without it, benchmarks of the same folder could not import the
#: package.
_PREFIX = "bench_"


def modules() -> dict[str, str]:
    """The module of each benchmark: `triggers.trigger_memory` of `trigger-memory`, `servers.bench_http` of `http`."""
    found = find_spec("benchmarks")
    folders = [Path(place) for place in (found.submodule_search_locations or ())] if found else []
    return {
        file.stem.removeprefix(_PREFIX).replace("_", "-"): ".".join(file.relative_to(folder).with_suffix("").parts)
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
        if not file.stem.startswith("_") and "\ndef main(" in "\n" + file.read_text()
    }


def run(name: str | None, arguments: Sequence[str]) -> None:
    found = modules()
    known = sorted(found)
    name = name and name.replace("_", "-")
    if name in (None, "--help", "-h"):
        say(f"usage: candlewright bench NAME [options]; NAME is one of: {', '.join(known) or '(none here)'}")
        raise typer.Exit(0 if name else 2)
    if name not in known:
        raise typer.BadParameter(f"no benchmark {name}; there are: {', '.join(known) or 'none here'}")
    command = [sys.executable, "-m", f"benchmarks.{found[name]}", *arguments]
    # Code that it measures in its own process is that of a part, and allocates memory as a part does.
    raise typer.Exit(subprocess.call(command, env={**LIBRARIES, **os.environ}))
