"""Reads the workers from the Spark master's page, so that `doctor` does not wait for a task that cannot start."""

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from core.reach import SECONDS
from core.settings import Settings

__all__ = ["DRIVER_NAME", "in_use", "lost_workers"]

#: What the pipeline's driver is called there.
DRIVER_NAME = "candlewright"
#: Spark's name for the port of the page, and its default.
_PORT, _DEFAULT_PORT = "spark.master.ui.port", "8080"
#: The size of a page with ten thousand workers and applications.
_MOST_BYTES = 8 << 20
_MEMORY = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_MEBIBYTES = {"k": 1 / 1024, "": 1, "m": 1, "g": 1 << 10, "t": 1 << 20}


def in_use(settings: Settings, memory: str) -> tuple[str, bool] | None:
    """Why an executor with one core and this memory (as Spark writes it) would not start, and whether the driver is
    among those that have what it needs. None if it would start, or if the page does not answer.
    """
    page = next(filter(None, map(_page, _pages(settings))), None)
    if page is None:
        return None
    workers = [worker for worker in page["workers"] if worker["state"] == "ALIVE"]
    if not workers:
        return "the Spark master has no worker", False
    needed = _mebibytes(memory)
    if any(worker["coresfree"] and worker["memoryfree"] >= needed for worker in workers):
        return None
    apps = [app for app in page["activeapps"] if app["cores"]]
    cores = sum(worker["cores"] for worker in workers)
    used = sum(worker["coresused"] for worker in workers)
    text = f"no worker has a free core and {memory} of memory; {used} of {cores} cores are in use{_by(apps)}"
    return text, any(app["name"] == DRIVER_NAME for app in apps)


def lost_workers(settings: Settings) -> list[str]:
    """`host:port` of each worker that the master has lost and still remembers; none where the page does not answer."""
    page = next(filter(None, map(_page, _pages(settings))), None) or {"workers": []}
    return sorted(f"{worker['host']}:{worker['port']}" for worker in page["workers"] if worker["state"] == "DEAD")


def _by(apps: Iterable[Mapping[str, Any]]) -> str:
    shares = [f"{app['name']} ({app['cores']}, {app['memoryperexecutor']} MiB an executor)" for app in apps]
    return f", by {', '.join(shares)}" if shares else ""


def _mebibytes(memory: str) -> float:
    """0 for text that Spark does not accept either."""
    found = _MEMORY.fullmatch(memory.strip())
    return int(found[1]) * _MEBIBYTES[found[2].lower()] if found else 0


def _pages(settings: Settings) -> Iterable[tuple[str, int]]:
    """Address of the page and port of the master, for each master."""
    page_port = settings.spark.conf.get(_PORT, _DEFAULT_PORT)
    for address in settings.spark.master.removeprefix("spark://").split(","):
        parts = urlsplit(f"spark://{address}")
        with contextlib.suppress(ValueError):
            yield f"http://{parts.hostname}:{page_port}/json/", parts.port or 0


def _page(place: tuple[str, int]) -> dict[str, Any] | None:
    """None if something else answers, or a standby master."""
    url, port = place
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as reply:
            page = json.loads(reply.read(_MOST_BYTES))
        is_master = page["status"] == "ALIVE" and urlsplit(page["url"]).port == port
    except (OSError, HTTPException, ValueError, TypeError, KeyError):
        return None
    return dict(page) if is_master else None
