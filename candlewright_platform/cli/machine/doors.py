"""The doors of a platform: what listens, who is allowed in, and what other machines can reach."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from core.doors import KeyFolder, Role
from core.settings import Settings, is_loopback

_PRIVATE = "keep it in a private network"


@dataclass(frozen=True, slots=True)
class Door:
    """`who`: a sentence about who is allowed in. `remedy`: how to close an open door; empty if nothing needs doing."""

    name: str
    address: str
    who: str
    remedy: str = ""


def doors_of(settings: Settings) -> Iterator[Door]:
    """Every port that the parts listen on, and those of the services that they use, in the order of docs/threats.md."""
    yield _guarded("relay requests", settings.relay.requests_bind, settings, Role.client)
    yield _guarded("relay notifications", settings.relay.notifications_bind, settings, Role.client)
    yield _guarded("broker", settings.broker.bind, settings, Role.ingestor)
    yield _bus(settings)
    yield _spark_connect(settings)
    if not settings.spark.master.startswith("local"):
        yield from _cluster(settings)
    yield _plain("status pages", settings.http.bind, "http.bind")
    if settings.console.enabled:
        yield _console(settings)
    gateways = settings.gateways
    if gateways.kafka_pixy.enabled:
        yield _plain("kafka_pixy", gateways.kafka_pixy.bind, "gateways.kafka_pixy.bind")
    if gateways.rocketmq.enabled:
        yield _rocketmq(settings)
    if settings.iceberg.catalog == "rest":
        yield _catalog(settings)
    if settings.iceberg.warehouse.startswith("s3"):
        yield _store(settings)


def _guarded(name: str, address: str, settings: Settings, role: Role) -> Door:
    if settings.security.curve:
        count = len(KeyFolder(settings.data_dir).names(role))
        return Door(name, address, f"keys of the role {role}: {count}; encrypted")
    return _plain(name, address, "security.curve", "turn on security.curve")


def _bus(settings: Settings) -> Door:
    if not settings.bus.url:
        return Door("bus", "127.0.0.1, a free port", "a password made by the platform; this machine")
    parts = urlsplit(settings.bus.url)
    address = f"{parts.hostname}:{parts.port or 6379}"
    is_near = parts.scheme == "unix" or is_loopback(address)
    who = (
        f"the ACL user {parts.username}" if parts.username else "the default user's password" if parts.password else ""
    )
    text = (who or "no password") + ("; encrypted" if parts.scheme == "rediss" else "")
    lacks = ([] if who else ["a user and password"]) + (
        [] if is_near or parts.scheme == "rediss" else ["TLS (rediss://)"]
    )
    return Door("bus", address, text, f"give bus.url {' and '.join(lacks)}" if lacks else "")


def _spark_connect(settings: Settings) -> Door:
    bind = settings.spark.connect_bind
    if settings.spark.token:
        return Door("Spark Connect", bind, "holders of spark.connect_token, who run any code")
    return _plain("Spark Connect", bind, "spark.connect_token", "set spark.connect_token")


def _cluster(settings: Settings) -> Iterator[Door]:
    """Spark's own ports, which have no authentication."""
    master = settings.spark.master.rpartition("/")[2]
    host = settings.spark.conf.get("spark.driver.host", "this machine's name")
    for name, at, address in (("Spark master", master, master), ("Spark driver", host, f"{host}, free ports")):
        if is_loopback(f"{at.rpartition(':')[0] or at}:0"):
            yield Door(name, address, "every user of this machine")
        else:
            yield Door(name, address, "everyone who reaches it runs code", _PRIVATE)


def _catalog(settings: Settings) -> Door:
    iceberg = settings.iceberg
    if iceberg.properties.keys() & {"credential", "token"}:
        return Door("catalog", iceberg.uri, "holders of its credential or token")
    if is_loopback(urlsplit(iceberg.uri).netloc):
        return Door("catalog", iceberg.uri, "every user of this machine")
    remedy = f"give iceberg.properties a credential or token, or {_PRIVATE}"
    return Door("catalog", iceberg.uri, "everyone who reaches it changes tables", remedy)


def _store(settings: Settings) -> Door:
    iceberg = settings.iceberg
    key = iceberg.properties.get("s3.access-key-id")
    address = iceberg.properties.get("s3.endpoint", iceberg.warehouse)
    return Door(
        "object store",
        address,
        f"holders of the access key {key}" if key else f"clients that the store of {iceberg.warehouse} accepts",
    )


def _console(settings: Settings) -> Door:
    """On another address it refuses every call without a token."""
    bind = settings.console.bind
    if settings.console.is_open:
        return Door("HTTP API and console", bind, "every user of this machine")
    folder = KeyFolder(settings.data_dir)
    counts = [f"{role}: {len(folder.names(role))}" for role in (Role.viewer, Role.operator)]
    return Door("HTTP API and console", bind, f"tokens ({', '.join(counts)}); not encrypted, so put TLS in front")


def _rocketmq(settings: Settings) -> Door:
    gateway = settings.gateways.rocketmq
    keys = len(gateway.access_keys)
    if keys:
        return Door("rocketmq", gateway.bind, f"{keys} access keys{'; encrypted' if gateway.tls else ''}")
    return _plain("rocketmq", gateway.bind, "gateways.rocketmq.access_keys", "set gateways.rocketmq.access_keys")


def _plain(name: str, address: str, setting: str, remedy: str = "") -> Door:
    if is_loopback(address):
        return Door(name, address, "every user of this machine")
    return Door(name, address, "everyone who reaches it", f"{remedy or f'change {setting}'}, or bind to 127.0.0.1")
