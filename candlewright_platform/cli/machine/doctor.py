"""`candlewright doctor`: checks of this machine and its settings."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

import typer

from candlewright.cli.output import Output, print_rows
from candlewright.cli.status import fetch_status
from candlewright.version import VERSION
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from candlewright_platform.cli.machine.doors import doors_of
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.machine.services import try_services
from candlewright_platform.supervisor import ports
from candlewright_platform.supervisor.parts import STAGES
from core.doors import KeyFolder, Role
from core.settings import Settings
from ingestor.venues import described
from venues.catalogue import is_known

MIN_FREE_BYTES = 2 << 30
MIN_MEMORY_BYTES = 3 << 30


class Verdict(StrEnum):
    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


#: By the result of a trial.
_VERDICTS = {True: Verdict.OK, False: Verdict.MISSING, None: Verdict.NOTE}


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    verdict: Verdict
    text: str


def run(output: Output, data_dir: Path | None, config: Path | None) -> None:
    settings = settings_for(config, data_dir)
    found = [finding for check in CHECKS for finding in check(settings)]
    found += [Finding(trial.what, _VERDICTS[trial.is_good], trial.text) for trial in try_services(settings, config)]
    print_rows([asdict(finding) for finding in found], output, columns=["what", "verdict", "text"], empty="")
    if any(finding.verdict is Verdict.MISSING for finding in found):
        raise typer.Exit(1)


def _python(settings: Settings) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    is_fine = sys.version_info >= (3, 11)
    yield Finding("python", Verdict.OK if is_fine else Verdict.MISSING, f"{version}, candlewright {VERSION}")


def _java(settings: Settings) -> Iterator[Finding]:
    from flink_replacement_spark.spark.java import java_home

    try:
        yield Finding("java", Verdict.OK, str(java_home(os.environ)))
    except CandlewrightError as error:
        yield Finding("java", Verdict.MISSING, str(error))


def _jars(settings: Settings) -> Iterator[Finding]:
    if find_spec("pyspark") is None:
        yield Finding("spark", Verdict.MISSING, "pyspark is not installed: run ./run once")
        return
    from flink_replacement_spark import jars

    if jars.known_jars(jars.packages_of(settings)):
        yield Finding("spark jars", Verdict.OK, str(jars.CACHE))
    else:
        text = (
            "not here yet: the driver fetches them at its first start, as does python -m flink_replacement_spark.jars"
        )
        yield Finding("spark jars", Verdict.NOTE, text)


def _redis(settings: Settings) -> Iterator[Finding]:
    if settings.bus.url:
        yield _own_redis(settings)
        return
    from bus.redis.embedded import find_redis_server

    try:
        yield Finding("bus", Verdict.OK, f"embedded, {find_redis_server()}")
    except CandlewrightError as error:
        yield Finding("bus", Verdict.MISSING, str(error))


def _own_redis(settings: Settings) -> Finding:
    from bus.connect import check_access, connect

    try:
        check_access(settings.bus)
        with contextlib.closing(connect(settings.bus, retry_seconds=0.0)) as bus:
            refusal = bus.refusal()
    except ConfigurationError as error:
        return Finding("bus", Verdict.MISSING, str(error))
    except CandlewrightError as error:
        return Finding("bus", Verdict.MISSING, f"the Redis of bus.url: {error}")
    if refusal:
        return Finding("bus", Verdict.NOTE, f"the Redis of bus.url: {refusal}")
    return Finding("bus", Verdict.OK, "an existing Redis, as bus.url says")


def _data_directory(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        yield Finding("data directory", Verdict.MISSING, f"{existing} cannot be written")
        return
    free = shutil.disk_usage(existing).free
    verdict = Verdict.OK if free >= MIN_FREE_BYTES else Verdict.MISSING
    yield Finding("data directory", verdict, f"{folder}, {free / (1 << 30):.1f} GiB free")


def _alerts(settings: Settings) -> Iterator[Finding]:
    if not settings.alerts.destinations:
        return
    from alerts.senders.senders import sender_of

    for name, own in settings.alerts.destinations.items():
        try:
            sender_of(name, own)
        except ConfigurationError as error:
            yield Finding(f"alerts {name}", Verdict.MISSING, str(error))
        else:
            yield Finding(f"alerts {name}", Verdict.OK, "webhook" if own.is_webhook else own.scheme)


def _memory(settings: Settings) -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    verdict = Verdict.OK if total >= MIN_MEMORY_BYTES else Verdict.NOTE
    yield Finding("memory", verdict, f"{total / (1 << 30):.1f} GiB, {os.cpu_count()} processors")


def _keys(settings: Settings) -> Iterator[Finding]:
    if settings.security.curve:
        entries = KeyFolder(settings.data_dir).entries()
        counts = [f"{role}: {sum(entry.role is role for entry in entries)}" for role in (Role.client, Role.ingestor)]
        yield Finding("keys", Verdict.OK, f"on ({', '.join(counts)})")
    elif settings.unguarded:
        where = ", ".join(settings.unguarded)
        text = f"off, so any process that reaches {where} can connect: set security.curve, or bind to 127.0.0.1"
        yield Finding("keys", Verdict.NOTE, text)
    else:
        yield Finding("keys", Verdict.OK, "off; only this machine reaches relay and broker")


def _doors(settings: Settings) -> Iterator[Finding]:
    for door in doors_of(settings):
        verdict = Verdict.NOTE if door.remedy else Verdict.OK
        text = f"{door.address}: {door.who}" + (f"; {door.remedy}" if door.remedy else "")
        yield Finding(f"door {door.name}", verdict, text)


def _venues(settings: Settings) -> Iterator[Finding]:
    """Venues for which `up` would start ingestors that never become ready."""
    for venue in settings.ingestor.venues:
        if not is_known(venue) and venue not in described():
            yield Finding("venues", Verdict.MISSING, f"ccxt has no exchange {venue}: see ingestor.venues")


def _platform(settings: Settings) -> Iterator[Finding]:
    """Checks the health of a running platform, or, if none runs, that its ports are free."""
    try:
        page = fetch_status(settings)
    except CandlewrightError:
        try:
            ports.check(ports.binds_of(settings, STAGES), 0.0)
        except ConfigurationError as error:
            yield Finding("ports", Verdict.MISSING, str(error))
        else:
            yield Finding("ports", Verdict.OK, "free; no platform is running")
        return
    problems = page.get("problems", [])
    verdict = Verdict.OK if page.get("ready") and not problems else Verdict.NOTE
    yield Finding("platform", verdict, "; ".join(problems) or ("ready" if page.get("ready") else "starting"))
    for warning in page.get("warnings", []):
        yield Finding("warning", Verdict.NOTE, warning)


CHECKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _python,
    _java,
    _jars,
    _redis,
    _data_directory,
    _memory,
    _alerts,
    _keys,
    _doors,
    _venues,
    _platform,
)
