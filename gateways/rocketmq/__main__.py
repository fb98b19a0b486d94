"""`python -m gateways.rocketmq`: see `gateways.rocketmq.cli`."""

import sys

from bus.connect import connect, messaging_of
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.settings import load_settings
from gateways.rocketmq.cli import run


def main() -> int:
    try:
        settings = load_settings()
        embedded = settings.data_dir / "run" / "bus.url"
        url = settings.bus.url or (embedded.read_text().strip() if embedded.is_file() else "")
        bus = connect(settings.bus.model_copy(update={"url": url}), retry_seconds=3.0)
        queue = messaging_of(bus)
        print(run(sys.argv[1:], bus, queue))
        queue.close()
        bus.close()
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except CandlewrightError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
