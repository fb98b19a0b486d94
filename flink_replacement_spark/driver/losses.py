"""Whether the bus still has every record that it had. After a loss, the driver process ends, and its successor
continues from what the bus has.
"""

import threading
from collections.abc import Callable

from bus import Bus, Lives
from bus import topics as bus_topics
from bus.lost import report
from candlewright.wire.errors import BusError, BusUnavailable, RecordsLost, RoleLost
from flink_replacement_spark.driver.topics import READ
from flink_replacement_spark.engine.bus_source import remembered_plan

__all__ = ["LossWatch"]

_CHECK_SECONDS = 5.0


class LossWatch:
    """Call `check` once, before the queries start, then `run` on a thread.

    `lost`: what the bus has lost, as a sentence. `problem`: a sentence while it does not answer.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lives = Lives()
        self._ends: dict[str, dict[int, int]] = {}
        self._had_plan = False
        self.lost = ""
        self.problem = ""

    def check(self) -> None:
        """Raises BusError if the bus has lost any record since the last check."""
        for topic in READ:
            states = self._bus.state(topic)
            self._lives.check_all(topic, self._ends.get(topic, {}), states)
            self._ends[topic] = {partition: state.end for partition, state in enumerate(states)}
        has_plan = remembered_plan(self._bus, bus_topics.READER_HISTORY_WRITER) is not None
        if self._had_plan and not has_plan:
            raise BusError("it has forgotten the batches that it had received")
        self._had_plan = has_plan

    def run(self, stopping: threading.Event, on_role_lost: Callable[[RoleLost], object]) -> None:
        while not stopping.wait(_CHECK_SECONDS):
            try:
                self.check()
                self.problem = ""
            except BusUnavailable as error:
                self.problem = f"the bus does not answer: {error}"
            except RecordsLost as error:
                report(self._bus, error)
                self.lost = str(error)
            except RoleLost as error:
                on_role_lost(error)
            except BusError as error:
                # An emptied store does not even have the topic.
                self.lost = f"the bus has lost records: {error}"
