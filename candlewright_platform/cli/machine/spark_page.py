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

__all__ = ["DRIVER_NAME", "free_workers", "in_use", "lost_workers"]

#: The name of the pipeline's driver on that page.
DRIVER_NAME = "candlewright"
#: Spark's name for the port of the page, and its default.
_PORT, _DEFAULT_PORT = "spark.master.ui.port", "8080"
#: The size of a page with ten thousand workers and applications.
_MOST_BYTES = 8 << 20
_MEMORY = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_NO_WORKERS: Mapping[str, Any] = {"workers": []}
_MEBIBYTES = {"k": 1 / 1024, "": 1, "m": 1, "g": 1 << 10, "t": 1 << 20}


def in_use(settings: Settings, memory: str) -> tuple[str, bool] | None:
    """Why an executor with one core and this memory (as Spark writes it) would not start, and whether the driver is
    among those that have what it needs. None if it would start, or if the page does not answer.
    """
    page = _first_page(settings)
    if page is None:
        return None
    workers = _alive(page)
    if not workers:
        return "the Spark master has no worker", False
    if any(_has_room(worker, memory) for worker in workers):
        return None
    apps = [app for app in page["activeapps"] if app["cores"]]
    cores = sum(worker["cores"] for worker in workers)
    used = sum(worker["coresused"] for worker in workers)
    text = f"no worker has a free core and {memory} of memory; {used} of {cores} cores are in use{_by(apps)}"
    return text, any(app["name"] == DRIVER_NAME for app in apps)


def free_workers(settings: Settings, memory: str) -> tuple[list[str], list[str]]:
    """Workers on which such an executor would start, and the other living ones, each by the address of its page. None
    if the master's page does not answer.
    """
    found: tuple[list[str], list[str]] = [], []
    for worker in _alive(_first_page(settings) or _NO_WORKERS):
        found[not _has_room(worker, memory)].append(urlsplit(worker["webuiaddress"]).netloc)
    return found


def lost_workers(settings: Settings) -> list[str]:
    """`host:port` of each worker that the master has lost and still lists; none if the page does not answer."""
    workers = (_first_page(settings) or _NO_WORKERS)["workers"]
    return sorted(f"{worker['host']}:{worker['port']}" for worker in workers if worker["state"] == "DEAD")


def _alive(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [worker for worker in page["workers"] if worker["state"] == "ALIVE"]


def _has_room(worker: Mapping[str, Any], memory: str) -> bool:
    return bool(worker["coresfree"] and worker["memoryfree"] >= _mebibytes(memory))


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


def _first_page(settings: Settings) -> dict[str, Any] | None:
    return next(filter(None, map(_page, _pages(settings))), None)


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
