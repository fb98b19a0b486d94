"""`candlewright up` as a function: settings in, exit code out."""

import asyncio
import secrets
import sys
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

from candlewright_platform.supervisor import origin as data_origin
from candlewright_platform.supervisor import ports, processes
from candlewright_platform.supervisor.lock import DataDirectoryLock
from candlewright_platform.supervisor.parts import BROKER, RELAY, Choice, bus_url_of, describe, specs_of
from candlewright_platform.supervisor.server import Supervisor
from core.origin import Origin
from core.settings import Settings
from core.table_files import CatalogLocked, check_not_moved

#: How long ports of a platform that was just killed may stay taken.
PORT_PATIENCE_SECONDS = 5.0


def tell(line: str) -> None:
    """Print one line for the operator; a closed terminal does not stop the process."""
    try:
        print(f"up: {line}", file=sys.stderr, flush=True)
    except OSError:
        return


def say(word: str) -> None:
    """Print `ready` or `standby`, alone on its line."""
    try:
        print(word, flush=True)
    except OSError:
        return


def run_up(settings: Settings, choice: Choice, announce: Callable[[str], None] = say) -> int:
    """Start the parts, keep them running until SIGTERM or Ctrl-C, stop them. Must run in the main thread.

    Returns the exit code: 2 if a part refused its settings, else 0. Raises ConfigurationError if the data directory is
    in use, a port is taken, or the chosen parts are invalid.
    """
    from bus.roles import Roles

    names = choice.names(settings)
    origin = data_origin.origin_of(settings, names)
    lock = DataDirectoryLock.acquire(settings.data_dir)
    try:
        remove_left_behind(lock)
        data_origin.check(settings.data_dir, origin)
        try:
            check_not_moved(settings)
        except CatalogLocked as error:
            # The driver waits, and checks again.
            tell(f"warning: {error}")
        run = secrets.token_hex(8)
        lock.announce(run)
        ports.check(ports.binds_of(settings, names), PORT_PATIENCE_SECONDS)
        _settle_bus(settings, origin)
        data_origin.settle(settings.data_dir, origin)
        specs = specs_of(settings, choice, origin)
        tell(f"data in {settings.data_dir} (origin: {origin}); parts: {describe(specs)}")
        if {BROKER, RELAY} & set(names) and settings.unguarded:
            where = " and ".join(settings.unguarded)
            tell(f"warning: keys are off, so any process that reaches {where} can connect; set security.curve")
        with closing(Roles(bus_url_of(settings))) as roles:
            supervisor = Supervisor(
                specs,
                run,
                settings.data_dir,
                http_bind=settings.http.bind,
                tell=tell,
                announce=announce,
                read_roles=roles.all,
            )
            code = asyncio.run(supervisor.run())
        tell("stopped")
    finally:
        lock.release()
    return code


def remove_left_behind(lock: DataDirectoryLock) -> None:
    """Kill parts that a killed platform left running, which may still write."""
    if lock.previous_run and (left := processes.kill_marked(lock.previous_run)):
        tell(f"removed {left} processes that a killed platform left behind")


def _settle_bus(settings: Settings, origin: Origin) -> None:
    """Settle the origin of a bus that others may share; if it is down, the ingestors do this when they start."""
    from bus.connect import check_access, connect
    from bus.origin import settle_origin

    if not settings.bus.url:
        return
    if ports.answers(settings.bus.url):
        check_access(settings.bus)
        with closing(connect(settings.bus, retry_seconds=PORT_PATIENCE_SECONDS)) as bus:
            settle_origin(bus, origin)
        return
    tell(f"warning: nothing answers at bus.url ({urlsplit(settings.bus.url).netloc.rpartition('@')[2]}) yet")
    tell("the parts wait for it: start a Redis there, or leave bus.url empty for an embedded one")
