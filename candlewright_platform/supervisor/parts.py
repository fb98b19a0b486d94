"""The parts of the platform, and how each is started."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from candlewright.settings import PREFIX
from candlewright.wire.errors import ConfigurationError
from candlewright.wire.nearest import did_you_mean
from candlewright_platform.supervisor.ports import free_port
from candlewright_platform.supervisor.probes import HttpPing, RedisPing, StatusPage
from candlewright_platform.supervisor.server import PartSpec
from candlewright_platform.supervisor.state import PartPlan
from core.doors import KeyFolder, Role
from core.origin import Origin
from core.settings import IngestorSettings, Settings

REDIS = "redis"
SANDBOX = "sandbox"
BROKER = "broker"
RELAY = "relay"
SPARK = "flink_replacement_spark"
INGESTOR = "ingestor"
GATEWAYS = "gateways"
ALERTS = "alerts"
CONSOLE = "console"

#: In the order of starting; stages stop in reverse order.
STAGES: Mapping[str, int] = {
    REDIS: 0,
    SANDBOX: 1,
    BROKER: 2,
    RELAY: 2,
    SPARK: 2,
    INGESTOR: 3,
    GATEWAYS: 3,
    ALERTS: 3,
    CONSOLE: 3,
}
#: Other values that `--parts` accepts.
ALIASES = {"bus": REDIS, "spark": SPARK, "ingestors": INGESTOR}
#: A first start may fetch Spark's jars, and a large log takes Redis a while to load.
START_SECONDS = {SPARK: 1_800.0, REDIS: 600.0}
#: Gateways write what they have accepted before they end.
STOP_SECONDS = {SPARK: 20.0, REDIS: 20.0, INGESTOR: 15.0, GATEWAYS: 40.0}
SANDBOX_VENUE = "BINANCE"
BUS_URL_FILE = "bus.url"
#: The key that the ingestors of `up` show to its broker.
OWN_INGESTOR = "own-ingestors"
#: Set if an external Spark is used through Spark Connect; then the platform does not start Spark itself.
_FOREIGN = frozenset({"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE"})


@dataclass(frozen=True, slots=True)
class Choice:
    """The parts of the platform to start; `parts` None means all that are needed."""

    parts: tuple[str, ...] | None = None
    sandbox: bool = False
    ingestors: int = 1
    config: Path | None = None
    sandbox_arguments: tuple[str, ...] = ()

    def names(self, settings: Settings) -> list[str]:
        """Raises ConfigurationError for an unknown part, or if no bus is configured."""
        if self.parts is None:
            wanted = set(STAGES) - {SANDBOX}
            if not settings.has_gateways:
                wanted.discard(GATEWAYS)
            if not settings.alerts.has_work:
                wanted.discard(ALERTS)
            if not settings.console.enabled:
                wanted.discard(CONSOLE)
        else:
            wanted = {ALIASES.get(part, part) for part in self.parts}
        unknown = wanted - set(STAGES)
        if unknown:
            near = did_you_mean([name for part in sorted(unknown) for name in get_close_matches(part, STAGES, 1)])
            known = near or f"; there are {', '.join(STAGES)}"
            raise ConfigurationError(f"no such part: {', '.join(sorted(unknown))}{known}")
        if settings.bus.url:
            wanted.discard(REDIS)
        elif REDIS not in wanted:
            raise ConfigurationError("bus.url must name a running Redis when the parts do not include redis")
        if self.sandbox:
            wanted.add(SANDBOX)
        if self.ingestors == 0:
            wanted.discard(INGESTOR)
        return [part for part in STAGES if part in wanted]


def specs_of(settings: Settings, choice: Choice, origin: Origin = Origin.EXCHANGES) -> list[PartSpec]:
    """The processes to run. The embedded Redis and the sandbox get free ports that they keep over restarts.

    Raises ConfigurationError.
    """
    builder = _Builder(settings, choice, origin)
    return [spec for name in choice.names(settings) for spec in builder.specs(name)]


class _Builder:
    def __init__(self, settings: Settings, choice: Choice, origin: Origin) -> None:
        self._settings = settings
        self._choice = choice
        self._origin = origin
        self._run_dir = settings.data_dir / "run"
        self._environment = {"DATA_DIR": str(settings.data_dir), "HTTP__BIND": "127.0.0.1:0", "ORIGIN": origin.value}
        if choice.config is not None:
            self._environment["CONFIG"] = str(choice.config.absolute())
        if settings.bus.url:
            self._environment["BUS__URL"] = settings.bus.url
        if settings.security.curve and not settings.ingestor.key and BROKER in choice.names(settings):
            # Broker and ingestors of one `up` share the folder of keys.
            self._environment["INGESTOR__KEY"] = str(KeyFolder(settings.data_dir).own(OWN_INGESTOR, Role.ingestor))
        for venue, exchange in settings.exchange.items():
            self._environment[f"EXCHANGE__{venue}__URL"] = exchange.url

    def specs(self, name: str) -> list[PartSpec]:
        if name == REDIS:
            return [self._redis()]
        if name == SANDBOX:
            return [self._sandbox()]
        if name == INGESTOR:
            return [self._server(INGESTOR, f"{INGESTOR}-{number}") for number in range(1, self._choice.ingestors + 1)]
        return [self._server(name, name)]

    def _server(self, folder: str, name: str) -> PartSpec:
        port_file = self._run_dir / f"{name}.http"
        return PartSpec(
            plan=_plan(folder, name),
            command=(sys.executable, "-m", folder),
            environment=merged(os.environ, {**self._environment, "HTTP_PORT_FILE": str(port_file)}),
            probe=StatusPage(port_file),
            port_file=port_file,
        )

    def _redis(self) -> PartSpec:
        from bus.connect import connect
        from bus.origin import announce_origin
        from bus.redis.embedded import EmbeddedRedis

        def announce() -> None:
            with closing(connect(self._settings.bus.model_copy(update={"url": server.url}))) as bus:
                announce_origin(bus, self._origin)

        port = free_port()
        server = EmbeddedRedis(self._settings.data_dir / "redis", self._settings.bus.fsync, port)
        command = tuple(server.command())
        self._environment["BUS__URL"] = server.url
        _keep_private(self._run_dir / BUS_URL_FILE, server.url)
        password = server.url.partition("://:")[2].partition("@")[0]
        return PartSpec(
            _plan(REDIS, REDIS), command, merged(os.environ, {}), RedisPing(port, password), when_ready=announce
        )

    def _sandbox(self) -> PartSpec:
        port = free_port()
        self._environment[f"EXCHANGE__{SANDBOX_VENUE}__URL"] = f"http://127.0.0.1:{port}"
        if self._settings.ingestor.venues == IngestorSettings().venues:
            # The real exchanges are not contacted in offline work.
            self._environment["INGESTOR__VENUES"] = json.dumps([SANDBOX_VENUE])
        command = (sys.executable, "-m", SANDBOX, "--port", str(port), *self._choice.sandbox_arguments)
        probe = HttpPing(port, "/api/v3/ping")
        return PartSpec(_plan(SANDBOX, SANDBOX), command, merged(os.environ, self._environment), probe)


def _plan(folder: str, name: str) -> PartPlan:
    return PartPlan(
        name,
        STAGES[folder],
        START_SECONDS.get(folder, 60.0),
        STOP_SECONDS.get(folder, 10.0),
        starts_first=folder == SPARK,
    )


def bus_url_of(settings: Settings) -> str:
    """The address of the bus of a platform on this data directory: the configured one, or that of the last embedded
    one.
    """
    if settings.bus.url:
        return settings.bus.url
    try:
        return (settings.data_dir / "run" / BUS_URL_FILE).read_text()
    except OSError:
        return ""


def _keep_private(file: Path, text: str) -> None:
    """Restricts access to the file, because the address contains a password."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(text)


def merged(inherited: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """`inherited` with `own` under the product's prefix; a variable that differs in case only is replaced."""
    added = {PREFIX + name: value for name, value in own.items()}
    kept = {name: value for name, value in inherited.items() if name.upper() not in added and name not in _FOREIGN}
    return kept | added


def describe(specs: Iterable[PartSpec]) -> str:
    return ", ".join(spec.name for spec in specs)
