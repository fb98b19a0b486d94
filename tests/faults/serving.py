"""`python -m tests.faults.serving`: serves live trades and triggers while it has the role, as a driver without Spark.

Its tasks are threads. They begin at once, as those of a standby do, and get their orders when its term begins.
"""

import os
import threading
import uuid
from functools import partial

from bus.roles import DRIVER, Keeper, say_standby
from candlewright.wire.grid import SECOND
from core.background import start_thread
from core.log import configure_logging
from core.settings import Settings, load_settings
from flink_replacement_spark.engine.serving import Chain, Serving, serve_all
from flink_replacement_spark.live.served import LiveOwner, LiveTimes
from flink_replacement_spark.triggers.served import TriggerOwner
from triggers.texts.check import TriggerRules

LEASE_SECONDS = 0.5
_TASKS = 2
_TIMES = LiveTimes(lateness_ns=0, horizon_ns=3_600 * SECOND, max_ahead_ns=10**9 * SECOND, journal_bytes=20_000)


def main() -> None:
    configure_logging("serving", "error")
    settings = load_settings()
    serving = Serving(settings.bus.url, "live", uuid.uuid4().hex, _TASKS, interval_seconds=0.5)
    chains = _chains(settings)
    for number in range(_TASKS):
        start_thread("task", partial(serve_all, serving, number, chains), on_failure=_end)
    keeper = Keeper.of(settings.bus.url, DRIVER, LEASE_SECONDS)
    keeper.on_lost = _end
    term = keeper.wait(threading.Event(), say_standby)
    assert term is not None
    serving.begin(term.address(settings.bus.url), {"live": "query-live", "triggers": "query-triggers"})
    threading.Event().wait()


def _chains(settings: Settings) -> list[Chain]:
    count = settings.bus.partitions
    rules = TriggerRules.of(settings.triggers, count)
    *triggers, joint = [
        TriggerOwner(url="", query_id="", owner=number, rules=rules, settings=settings) for number in range(count + 1)
    ]
    return [*((LiveOwner("", "", number, _TIMES), owner) for number, owner in enumerate(triggers)), (joint,)]


def _end(_: BaseException) -> None:
    os._exit(1)


if __name__ == "__main__":
    main()
