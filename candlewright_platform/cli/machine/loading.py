"""Settings of a command, from its options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from candlewright.wire.errors import ConfigurationError
from core.settings import Settings, load_settings


def settings_for(config: Path | None, data_dir: Path | None = None, **overrides: Mapping[str, Any]) -> Settings:
    """Raises typer.BadParameter (exit code 2) when the file, the environment or an option is wrong."""
    values: dict[str, Any] = dict(overrides)
    if data_dir is not None:
        values["data_dir"] = data_dir
    try:
        return load_settings(config, values)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
