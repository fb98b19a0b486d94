"""`python -m tests.faults.numbering`: publishes numbers while it has the role, as a minimal part with a standby.

Each number is one more than the topic holds, so that two holders at once would publish duplicates.
"""

import os
import sys
import threading

from bus.api import Record
from bus.connect import connect
from bus.roles import DRIVER, Keeper, say_standby
from candlewright.wire.errors import RoleLost
from core.log import configure_logging
from core.settings import load_settings

TOPIC = "numbers"


def main() -> None:
    configure_logging("numbering", "error")
    settings = load_settings().bus
    keeper = Keeper.of(settings.url, DRIVER, 0.5)
    keeper.on_lost = lambda _: os._exit(1)
    stopping = threading.Event()
    term = keeper.wait(stopping, say_standby)
    assert term is not None
    bus = connect(settings.model_copy(update={"url": term.address(settings.url)}))
    try:
        while not stopping.wait(0.005):
            number = bus.state(TOPIC)[0].end + 1
            bus.publish(TOPIC, [Record(b"%d" % number, key=b"%d" % term.epoch)])
    except RoleLost:
        sys.exit(1)


if __name__ == "__main__":
    main()
