"""Commands: help texts, arguments and options of `candlewright`, from its own parser."""

from collections.abc import Iterator
from typing import Any

import typer.main

from candlewright.cli.app import app
from documentation.markdown import code, page, table

INTRODUCTION = """
`./run X …` is `candlewright X …` in the environment of the checkout. Rows go to stdout, everything else to stderr;
`--output json` prints JSON lines and nothing else. Exit codes: 0 done, 1 the platform refused or failed, 2 wrong usage.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be run, by its full name."""
    yield from _below("candlewright", typer.main.get_command(app))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if command.hidden:
        return
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for part, each in sorted(below.items()):
        yield from _below(f"{name} {part}", each)


def markdown() -> str:
    blocks = [INTRODUCTION]
    for name, command in commands():
        context = typer.Context(command, info_name=name)
        blocks.append(f"## `{name}`")
        blocks.append(f"```text\n{name} {' '.join(command.collect_usage_pieces(context))}\n```")
        blocks.append(paragraphs(command.help or ""))
        records = [parameter.get_help_record(context) for parameter in command.params]
        rows = [(code(name), text) for name, text in filter(None, records)]
        if rows:
            blocks.append(table(("argument or option", "meaning"), rows))
    return page("Commands", *blocks)


def paragraphs(text: str) -> str:
    """Help text whose line breaks count, such as an example, is shown as it is."""
    blocks = []
    for block in text.strip().split("\n\n"):
        is_literal = block.startswith(("\b", "Example: "))
        block = block.removeprefix("\b").strip("\n")
        blocks.append(f"```text\n{block}\n```" if is_literal else block)
    return "\n\n".join(blocks)
