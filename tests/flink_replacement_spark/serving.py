"""Serving tasks without Spark: two at a time for each chain of owners, both of which die repeatedly."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from bus import Bus
from candlewright.wire.errors import BusError, BusUnavailable
from core.background import start_thread
from flink_replacement_spark.engine import serving
from flink_replacement_spark.engine.serving import Chain, serve
from flink_replacement_spark.engine.steps import Owner, Steps


class OwnCache(threading.local):
    """The memory of a process; here each thread, with those that it starts, represents a process."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self.kept.get(key)

    def pop(self, key: Any, default: Any) -> Any:
        return self.kept.pop(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.kept[key] = value

    def start_thread(self, name: str, work: Callable[[], object], **named: Any) -> threading.Thread:
        """As of `core.background`, for a thread of the same process."""
        kept = self.kept

        def run() -> None:
            self.kept = kept
            work()

        return start_thread(name, run, **named)


@dataclass
class Deaths:
    """One in `often` calls dies, before or after its effect."""

    often: int
    count: int = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        chance = random.Random(call.__qualname__)

        def dying(*arguments: Any, **named: Any) -> Any:
            fate = chance.randrange(2 * self.often) if self.often else -1
            if fate == 0:
                self.count += 1
                raise BusUnavailable("killed before")
            found = call(*arguments, **named)
            if fate == 1:
                self.count += 1
                raise BusUnavailable("killed after")
            return found

        return dying


@contextmanager
def served(
    bus: Bus,
    query_ids: Mapping[str, str],
    cache: OwnCache,
    *,
    chains: Sequence[Callable[[], Chain]],
    on_problem: Callable[[Owner, str], object] = lambda owner, problem: None,
) -> Iterator[None]:
    """`query_ids`: by name."""
    stopping = threading.Event()
    unexpected: list[BaseException] = []

    def run(make: Callable[[], Chain]) -> None:
        while not stopping.is_set():
            try:
                chain, steps = make(), {query: Steps(bus, query_id) for query, query_id in query_ids.items()}
                chain[0].resume(steps[chain[0].query].newest(chain[0].name))
                serve(chain, steps, stopping, on_done=lambda query, done: None, on_problem=on_problem)
            except BusError:
                # Killed, or outdated by the other task.
                cache.kept.clear()
            except BaseException as error:
                unexpected.append(error)
                raise

    threads = [threading.Thread(target=run, args=(make,)) for make in chains for _ in range(2)]
    with patch.object(serving, "start_thread", cache.start_thread):
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
    assert not unexpected


def pause(chance: random.Random) -> None:
    """Wait, so that batches are cut at random points between publishes."""
    time.sleep(chance.choice((0.0, 0.0, 0.001, 0.01)))
