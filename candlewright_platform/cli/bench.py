"""`candlewright bench NAME`: each benchmark is a module of `benchmarks/`, run as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import typer

from candlewright.cli.output import say
from candlewright_platform.supervisor.processes import MEMORY


def names() -> list[str]:
    """The benchmarks that there are; a module `trigger_latency` is the benchmark `trigger-latency`."""
    found = find_spec("benchmarks")
    folders = [Path(place) for place in (found.submodule_search_locations or ())] if found else []
    return sorted(
        {
            file.stem.replace("_", "-")
            for folder in folders
            for file in folder.glob("*.py")
            if not file.stem.startswith("_") and "\ndef main(" in "\n" + file.read_text()
        }
    )


def run(name: str | None, arguments: Sequence[str]) -> None:
    known = names()
    name = name and name.replace("_", "-")
    if name in (None, "--help", "-h"):
        say(f"usage: candlewright bench NAME [options]; NAME is one of: {', '.join(known) or '(none here)'}")
        raise typer.Exit(0 if name else 2)
    if name not in known:
        raise typer.BadParameter(f"no benchmark {name}; there are: {', '.join(known) or 'none here'}")
    command = [sys.executable, "-m", f"benchmarks.{name.replace('-', '_')}", *arguments]
    # What it measures in its own process is what a part does, and allocates as a part.
    raise typer.Exit(subprocess.call(command, env={**MEMORY, **os.environ}))
