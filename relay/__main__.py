"""`python -m relay`: serve clients until SIGTERM or Ctrl-C."""

import os
import sys
import threading

import zmq

from bus.connect import check_access, connect, connect_under
from bus.redis.redis_bus import RedisBus
from bus.roles import REGISTRY, Keeper, Term
from candlewright.wire.errors import ConfigurationError
from core.background import exit_on_failure, spare_startup, switch_often
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status, take_descriptors
from core.settings import load_settings
from relay.requests.pages import read_from_iceberg
from relay.requests.stored import stored_in_iceberg
from relay.server import Registry, Relay
from relay.settings import RelayConfig

#: How long (s) a call looks for the bus. A client waits meanwhile, and then is answered that the bus cannot be reached.
BUS_RETRY_SECONDS = 4.0
#: How often (s) the main thread looks whether another one has failed.
_LOOK_SECONDS = 1.0


def main() -> int:
    try:
        settings = load_settings()
        check_access(settings.bus)
        bus = connect(settings.bus, retry_seconds=BUS_RETRY_SECONDS)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    switch_often()
    configure_logging("relay", settings.log.level)
    exit_on_failure()
    take_descriptors()
    try:
        keeper = Keeper.of(
            settings.bus.url, REGISTRY, settings.roles.lease_seconds, seat=os.environ.get("CANDLEWRIGHT_SUPERVISED", "")
        )

        def bus_of(term: Term) -> RedisBus:
            return connect_under(term, settings.bus, retry_seconds=BUS_RETRY_SECONDS)

        relay = Relay(
            RelayConfig.of(settings),
            bus,
            read_from_iceberg(settings),
            read_stored=stored_in_iceberg(settings),
            registry=Registry(keeper, bus_of),
        )
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        bus.close()
        return 2
    stop = threading.Event()
    call_to_stop(stop.set)
    try:
        relay.start()
        http = serve_status(settings.http.bind, relay.status)
    except (zmq.ZMQError, OSError) as error:
        get_logger().error("cannot_serve", error=str(error))
        relay.close()
        keeper.close()
        bus.close()
        return 1
    spare_startup()
    while not stop.wait(_LOOK_SECONDS) and not relay.failed.is_set():
        pass
    http.close()
    relay.close()
    keeper.close()
    bus.close()
    return 1 if relay.failed.is_set() else 0


if __name__ == "__main__":
    sys.exit(main())
