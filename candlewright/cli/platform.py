"""Commands about the platform as a whole: `up`, `status`, `config show`."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, json_line, print_rows, print_table, say
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from candlewright.wire.nearest import did_you_mean, near_venues
from core.background import exit_on_failure
from core.settings import Settings
from venues.catalogue import CCXT_EXCHANGES, is_known

_SECRET_WORDS = ("password", "secret", "token", "credential", "access-key")
_STATUS_TIMEOUT_SECONDS = 5.0


def up(
    data_dir: Path | None,
    config: Path | None,
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
    exit_on_failure()
    raise typer.Exit(run_up(settings, choice))


def _exchange_url(text: str) -> tuple[str, dict[str, str]]:
    venue, separator, url = text.partition("=")
    if not separator or not venue.strip() or not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"--exchange-url {text!r}: write VENUE=URL, such as BINANCE=http://127.0.0.1:9001")
    if not is_known(venue.strip().upper()):
        near = did_you_mean(near_venues(venue.strip(), (name.upper() for name in CCXT_EXCHANGES)))
        raise typer.BadParameter(f"--exchange-url {text!r}: ccxt has no exchange {venue.strip()!r}{near}")
    return venue.strip().upper(), {"url": url.rstrip("/")}


def fetch_status(settings: Settings) -> dict[str, Any]:
    """The supervisor's status page; raises CandlewrightError when nobody answers."""
    host, _, port = settings.http.bind.rpartition(":")
    url = f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '*', '[::]') else host}:{port}/status"
    try:
        with urllib.request.urlopen(url, timeout=_STATUS_TIMEOUT_SECONDS) as answer:
            page = json.load(answer)
    except (OSError, ValueError) as error:
        raise CandlewrightError(f"no platform answers at {url}: start one with `candlewright up`") from error
    if not isinstance(page, dict):
        raise CandlewrightError(f"what answers at {url} is no candlewright")
    return page


def status(output: Output, config: Path | None) -> None:
    page = fetch_status(settings_for(config))
    rows = [
        {
            "part": name,
            "state": "ready" if part.get("ready") else part.get("phase"),
            "pid": part.get("pid"),
            "restarts": part.get("restarts"),
            "problems": part.get("problems", []),
            "warnings": part.get("warnings", []),
            "status": part.get("status", {}),
        }
        for name, part in page.get("parts", {}).items()
    ]
    print_rows(rows, output, ["part", "state", "pid", "restarts", "problems"], "no parts")
    if output is Output.table:
        ages = {t: age for row in rows for t, age in row["status"].get("last_frame_seconds_ago", {}).items()}
        if ages:
            print_table(("live ticker", "last frame"), [(ticker, f"{ages[ticker]} s ago") for ticker in sorted(ages)])
        for warning in page.get("warnings", []):
            say(f"warning: {warning}")
    if not page.get("ready") or not page.get("healthy"):
        if output is Output.table:
            say("the platform is not well" if page.get("ready") else "the platform is not ready")
        raise typer.Exit(1)


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
    """The same without passwords and keys."""
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
