"""`candlewright status`."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, print_rows, print_table, say
from candlewright.settings import ClientConfig
from candlewright.wire.errors import CandlewrightError

_STATUS_TIMEOUT_SECONDS = 5.0


def fetch_status(settings: ClientConfig) -> dict[str, Any]:
    """The supervisor's status page; raises CandlewrightError if nothing answers."""
    host, _, port = settings.http.bind.rpartition(":")
    url = f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '*', '[::]') else host}:{port}/status"
    try:
        with urllib.request.urlopen(url, timeout=_STATUS_TIMEOUT_SECONDS) as answer:
            page = json.load(answer)
    except (OSError, ValueError) as error:
        raise CandlewrightError(f"no platform answers at {url}: start one with `candlewright up`") from error
    if not isinstance(page, dict):
        raise CandlewrightError(f"what answers at {url} is not candlewright")
    return page


def running_elsewhere(settings: ClientConfig) -> str:
    """A sentence where the running platform has another data directory than these settings name; else empty."""
    try:
        found = str(fetch_status(settings).get("data_dir") or "")
    except CandlewrightError:
        return ""
    is_another = found and Path(found) != Path(settings.data_dir).absolute()
    return f"the running platform keeps its data in {found}: add --data-dir {found}" if is_another else ""


def status(output: Output, config: Path | None) -> None:
    page = fetch_status(settings_for(config))
    rows = [
        {
            "part": name,
            "state": next((state for state in ("ready", "standby") if part.get(state)), part.get("phase")),
            "pid": part.get("pid"),
            "restarts": part.get("restarts"),
            "problems": part.get("problems", []),
            "warnings": part.get("warnings", []),
            "status": part.get("status", {}),
        }
        for name, part in page.get("parts", {}).items()
    ]
    roles = [{"role": name, **state} for name, state in page.get("roles", {}).items()]
    print_rows(rows, output, ["part", "state", "pid", "restarts", "problems"], "no parts")
    if roles:
        print_rows(roles, output, ["role", "holder", "epoch", "standbys"], "")
    if output is Output.table:
        ages = {t: age for row in rows for t, age in row["status"].get("last_frame_seconds_ago", {}).items()}
        if ages:
            print_table(("live ticker", "last frame"), [(ticker, f"{ages[ticker]} s ago") for ticker in sorted(ages)])
        for warning in page.get("warnings", []):
            say(f"warning: {warning}")
    is_standby = any(part.get("standby") for part in page.get("parts", {}).values())
    if not page.get("healthy") or not (page.get("ready") or is_standby):
        if output is Output.table:
            say("the platform is not well" if page.get("ready") else "the platform is not ready")
        raise typer.Exit(1)
