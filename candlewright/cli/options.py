"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from candlewright.cli.output import FileOutput, Output

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: candlewright.toml).")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Data directory (default: ./data).")]
OutputOption = Annotated[Output, typer.Option("--output", help="table, or json: JSON lines and nothing else.")]
FileOutputOption = Annotated[FileOutput, typer.Option("--output", help="How to write the rows.")]
FileOption = Annotated[Path | None, typer.Option("--file", help="Write there instead of to stdout.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer of the platform.")]
SqlOption = Annotated[str | None, typer.Option("--sql", help="The trigger's text.")]
SqlFileOption = Annotated[Path | None, typer.Option("--file", help="File with the trigger's text.")]
ViewSqlOption = Annotated[
    str | None, typer.Option("--sql", help="The view's text: SELECT …, or CREATE VIEW name AS SELECT …")
]
ViewFileOption = Annotated[Path | None, typer.Option("--file", help="File with the view's text.")]
ParamOption = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Value of :NAME in the text; may be repeated.")
]
