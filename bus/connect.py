"""Opens the bus that the settings name."""

from contextlib import closing

from bus.api import Bus
from bus.limits import Limits
from bus.messaging import Messaging
from bus.redis.redis_bus import RedisBus
from bus.redis.redis_messaging import RedisMessaging
from bus.roles import Term
from candlewright.wire.errors import ConfigurationError
from core.settings import BusSettings


def connect(settings: BusSettings, *, retry_seconds: float = 15.0) -> RedisBus:
    """A bus on the Redis that `settings.url` names; nothing is sent before its first call.

    `retry_seconds`: how long a call retries if the server is down; short if a caller waits for the answer.
    Raises ConfigurationError when no url is set (the process that starts the embedded server sets it).
    """
    if not settings.url:
        raise ConfigurationError("bus.url is not set, and no embedded server was started")
    try:
        return RedisBus(
            settings.url,
            settings.partitions,
            settings.max_bytes,
            group_expiry_seconds=settings.group_expiry_hours * 3_600,
            retry_seconds=retry_seconds,
            limits=Limits(settings.max_names, settings.max_topics, settings.max_groups, settings.max_rows),
        )
    except ValueError as error:
        raise ConfigurationError(f"bus.url: {error}") from error


def connect_under(term: Term, settings: BusSettings, *, retry_seconds: float = 15.0) -> RedisBus:
    """As `connect`, with writes that raise RoleLost once another term has begun."""
    return connect(settings.model_copy(update={"url": term.address(settings.url)}), retry_seconds=retry_seconds)


def check_access(settings: BusSettings) -> None:
    """Raises ConfigurationError if the server of `settings.url` refuses its user or password, or does not permit what
    the bus does, which a part cannot wait for. A server that does not answer is not an error.
    """
    with closing(connect(settings)) as bus:
        if reason := bus.forbids():
            raise ConfigurationError(f"bus.url: {reason}")


def messaging_of(bus: Bus) -> Messaging:
    """The interface for message queues, in the store of `bus`. Raises ConfigurationError for a bus of another kind."""
    if isinstance(bus, RedisBus):
        return RedisMessaging(bus)
    raise ConfigurationError(f"no message queues on a {type(bus).__name__}")
