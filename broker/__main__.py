"""`python -m broker`: hand jobs to ingestors until SIGTERM or Ctrl-C."""

import os
import signal
import sys
from pathlib import Path

from broker.journal.retention import Retention
from broker.server import BrokerServer
from bus.connect import connect
from candlewright.wire.errors import CandlewrightError
from core.background import exit_on_failure
from core.http import StatusServer
from core.log import configure_logging, get_logger
from core.settings import load_settings

#: The threads that write to the bus must not wait five milliseconds for a busy loop to let them on.
SWITCH_SECONDS = 0.0005


def main() -> int:
    settings = load_settings()
    configure_logging("broker", settings.log.level)
    exit_on_failure()
    sys.setswitchinterval(SWITCH_SECONDS)
    bus = connect(settings.bus)
    broker = BrokerServer(settings.broker, bus, Retention.of(settings), settings.ticks.max_ahead_ns)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: broker.stop())
    port_file = os.environ.get("CANDLEWRIGHT_HTTP_PORT_FILE")
    http = StatusServer(settings.http.bind, broker.status, port_file=Path(port_file) if port_file else None)
    try:
        broker.start()
        broker.run()
    except CandlewrightError as error:
        get_logger().error("broker_failed", error=str(error))
        return 1
    finally:
        http.close()
        bus.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
