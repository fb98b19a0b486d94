"""`candlewright up`, `relocate` and `config show`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from candlewright.cli.output import Output, json_line, print_table, say
from candlewright.wire.errors import ConfigurationError
from candlewright.wire.nearest import did_you_mean, near_venues
from candlewright_platform.cli.machine.loading import settings_for
from core.background import exit_on_failure
from core.log import configure_logging

_SECRET_WORDS = ("password", "secret", "token", "credential", "access-key")


def up(
    data_dir: Path | None,
    config: Path | None,
    *,
    sandbox: bool,
    exchange_urls: list[str],
    ingestors: int,
    parts: str | None,
) -> None:
    from candlewright_platform.supervisor.parts import Choice
    from candlewright_platform.supervisor.up import run_up

    exchange = dict(map(_exchange_url, exchange_urls))
    settings = settings_for(config, data_dir, **({"exchange": exchange} if exchange else {}))
    names = tuple(name.strip() for name in parts.split(",") if name.strip()) if parts is not None else None
    if names == ():
        raise typer.BadParameter("--parts needs at least one name")
    choice = Choice(names, sandbox, ingestors, config)
    try:
        choice.names(settings)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
    # Logs only problems, on stderr, and not the start and stop of a bus.
    configure_logging("up", "error")
    exit_on_failure()
    raise typer.Exit(run_up(settings, choice))


def relocate(data_dir: Path | None, config: Path | None) -> None:
    from candlewright_platform.supervisor.relocate import run_relocate

    settings = settings_for(config, data_dir)
    found = run_relocate(settings)
    if found is None:
        say(f"the tables of {settings.data_dir} are where their catalog says: nothing to do")
        return
    say(f"relocated the tables from {found.before} to {found.now}: {found.files} files rewritten")


def _exchange_url(text: str) -> tuple[str, dict[str, str]]:
    # Imported only here, because nothing should delay the first start of a process.
    from ingestor.venues import described
    from venues.catalogue import CCXT_EXCHANGES, is_known

    venue, separator, url = text.partition("=")
    if not separator or not venue.strip() or not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"--exchange-url {text!r}: write VENUE=URL, such as BINANCE=http://127.0.0.1:9001")
    name = venue.strip().upper()
    if not is_known(name) and name not in described():
        near = did_you_mean(near_venues(venue.strip(), (*(each.upper() for each in CCXT_EXCHANGES), *described())))
        raise typer.BadParameter(f"--exchange-url {text!r}: ccxt has no exchange {venue.strip()!r}{near}")
    return name, {"url": url.rstrip("/")}


def config_show(output: Output, data_dir: Path | None, config: Path | None) -> None:
    values = _hide(settings_for(config, data_dir).model_dump(mode="json"))
    if output is Output.json:
        print(json_line(values))
    else:
        print_table(("setting", "value"), [(name, json.dumps(value)) for name, value in flatten(values)])


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`broker.bind` and its value, for each setting."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _hide(values: dict[str, Any]) -> dict[str, Any]:
    """The value without passwords and keys."""
    hidden: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            hidden[name] = _hide(value)
        elif isinstance(value, str) and value and any(word in name.lower() for word in _SECRET_WORDS):
            hidden[name] = "(hidden)"
        elif isinstance(value, str) and "@" in value and "://" in value:
            scheme, _, rest = value.partition("://")
            hidden[name] = f"{scheme}://(hidden)@{rest.rpartition('@')[2]}"
        else:
            hidden[name] = value
    return hidden
