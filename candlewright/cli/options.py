"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from candlewright.cli.output import FileOutput, Output

GIVE_ONCE = "give the text once: as an argument, with --sql TEXT, or with --file F"
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: candlewright.toml).")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Data directory (default: ./data).")]
OutputOption = Annotated[Output, typer.Option("--output", help="table, or json: JSON lines and nothing else.")]
FileOutputOption = Annotated[FileOutput, typer.Option("--output", help="How to write the rows.")]
FileOption = Annotated[Path | None, typer.Option("--file", help="Write there instead of to stdout.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer from the platform.")]
TextArgument = Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The trigger's text.")]
SqlOption = Annotated[str | None, typer.Option("--sql", help="The trigger's text, as an option.")]
SqlFileOption = Annotated[Path | None, typer.Option("--file", help="File with the trigger's text.")]
ViewSqlOption = Annotated[
    str | None, typer.Option("--sql", help="The view's text: SELECT …, or CREATE VIEW name AS SELECT …")
]
ViewFileOption = Annotated[Path | None, typer.Option("--file", help="File with the view's text.")]
ParamOption = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Value of :NAME in the text; may be repeated.")
]


def one_text(argument: str | None, option: str | None) -> str | None:
    """A text that is given in one of two ways. Raises typer.BadParameter (exit code 2) if both give one."""
    if argument is not None and option is not None:
        raise typer.BadParameter(GIVE_ONCE)
    return argument if argument is not None else option
