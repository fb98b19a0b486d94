"""Serving tasks without Spark: two at a time for each owner, both of which die repeatedly."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bus import Bus
from candlewright.wire.errors import BusError, BusUnavailable
from flink_replacement_spark.engine.serving import Owner, Steps, serve


class OwnCache(threading.local):
    """The memory of a process; here each thread represents a process."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self.kept.get(key)

    def pop(self, key: Any, default: Any) -> Any:
        return self.kept.pop(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.kept[key] = value


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
def served(bus: Bus, query_id: str, cache: OwnCache, *, owners: Sequence[Callable[[], Owner]]) -> Iterator[None]:
    stopping = threading.Event()
    unexpected: list[BaseException] = []

    def run(make: Callable[[], Owner]) -> None:
        while not stopping.is_set():
            try:
                owner, steps = make(), Steps(bus, query_id)
                owner.resume(steps.newest(owner.name))
                serve(owner, steps, stopping, on_done=lambda done: None)
            except BusError:
                # Killed, or outdated by the other task.
                cache.kept.clear()
            except BaseException as error:
                unexpected.append(error)
                raise

    threads = [threading.Thread(target=run, args=(make,)) for make in owners for _ in range(2)]
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
