"""Which partition a record goes to, and the encoding of its headers."""

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache

from bus.api import Record, partition_of
from candlewright.wire.errors import BusError

_MAX_COUNTERS = 10_000

_cached_partition_of = lru_cache(maxsize=1 << 16)(partition_of)


class Router:
    """Chooses partitions; records without a key or a requested partition rotate per topic: with one counter for all,
    two topics or groups used alternately would always get the same partitions.
    """

    def __init__(self) -> None:
        self._counters: defaultdict[Hashable, itertools.count[int]] = defaultdict(_anywhere)

    def route(self, topic: str, records: Sequence[Record], partitions: int) -> list[int]:
        """One partition per record. Raises BusError for a partition that `topic` does not have."""
        chosen = []
        counter = self._counter(topic)
        last, of_last = None, 0
        for record in records:
            key = record.partition_key if record.partition_key is not None else record.key
            if key is not None:
                # Records often come in runs of one key.
                if key is not last:
                    last, of_last = key, _cached_partition_of(key, partitions)
                chosen.append(of_last)
            elif record.partition is None:
                chosen.append(next(counter) % partitions)
            elif 0 <= record.partition < partitions:
                chosen.append(record.partition)
            else:
                raise BusError(f"topic {topic} has no partition {record.partition}: there are {partitions}")
        return chosen

    def rotated(self, who: Hashable, partitions: Sequence[int] | None, count: int) -> list[int]:
        """The requested partitions (None = all of `count`) in an order whose start advances with each call of `who`."""
        asked = list(range(count)) if partitions is None else sorted(set(partitions))
        if asked and not 0 <= asked[0] <= asked[-1] < count:
            raise BusError(f"no partitions {asked}: there are {count}")
        if not asked:
            return []
        start = next(self._counter(who)) % len(asked)
        return asked[start:] + asked[:start]

    def _counter(self, of: Hashable) -> "itertools.count[int]":
        """Taking its next number is one step of the interpreter, so threads (and a fork) need no lock."""
        if len(self._counters) > _MAX_COUNTERS:
            self._counters.clear()
        return self._counters[of]


def _anywhere() -> "itertools.count[int]":
    return itertools.count(random.randrange(1 << 16))


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """JSON text, empty if there are none."""
    return json.dumps(dict(headers)).encode() if headers else b""
