"""Reads settings of any shape.

Order, strongest first: command line (`overrides`), environment (`CANDLEWRIGHT_BROKER__LEASE_SECONDS=2`), the TOML file
(`candlewright.toml`, or the path given), defaults.
"""

import json
import os
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, TomlConfigSettingsSource

from candlewright.settings import environment
from candlewright.wire.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_FILE = "candlewright.toml"
PREFIX = "CANDLEWRIGHT_"
Shape = TypeVar("Shape", bound=BaseSettings)


def load(
    shape: type[Shape], file: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Shape:
    """Read settings of this shape.

    `file`: a TOML file; by default the one that CANDLEWRIGHT_CONFIG names, else `candlewright.toml` if it exists.
    `overrides`: nested values from the command line.
    Raises ConfigurationError with one sentence per problem. If the shape refuses unknown keys, an environment variable
    that must be meant as a setting is an error, and any other with our prefix a warning.
    """
    if shape.model_config.get("extra") == "forbid":
        errors, doubts = environment.problems(os.environ, PREFIX, shape)
        if errors:
            raise ConfigurationError(f"settings: {'; '.join(errors)}")
        for doubt in doubts:
            warnings.warn(doubt, stacklevel=3)
    chosen = file or os.environ.get(f"{PREFIX}CONFIG")
    if chosen and not Path(chosen).is_file():
        raise ConfigurationError(f"no such settings file: {chosen}")
    path = Path(chosen or DEFAULT_FILE)

    class FileSettings(shape):  # type: ignore[misc, valid-type]
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)

    try:
        found: Shape = FileSettings(**(overrides or {}))
        return found
    except ValidationError as error:
        problems = (_problem(each, shape) for each in error.errors())
        raise ConfigurationError(f"settings: {'; '.join(problems)}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"settings: {path} is not valid TOML: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"settings: {_not_json(error.__cause__) or error}") from error


def _not_json(cause: BaseException | None) -> str:
    """Names the variables whose text should be JSON, which pydantic's own error does not."""
    if not isinstance(cause, json.JSONDecodeError):
        return ""
    named = [name for name, text in os.environ.items() if name.upper().startswith(PREFIX) and text == cause.doc]
    return f'{", ".join(sorted(named))}: not JSON; write a list as ["A", "B"] and a map as {{"A": 1}}'


def _problem(found: "ErrorDetails", shape: type[BaseSettings]) -> str:
    name = ".".join(map(str, found["loc"]))
    if found["type"] != "extra_forbidden":
        return f"{name}: {found['msg'].removeprefix('Value error, ')}"
    nearest = environment.nearest_setting(name, shape)
    return f"{name}: no such setting" + (f"; did you mean {nearest}?" if nearest else ", and none with a similar name")
