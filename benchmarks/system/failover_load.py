"""A client's view of a take-over: two of every role, live trades of a sandbox, consecutive histories, 50 triggers.

The client checks the numbers of trades, one-second bars and a trigger's events: a missing or repeated number ends the
run.
"""

import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring.spark_master import TWO_CORES
from benchmarks.system.failover_pair import PATIENCE_SECONDS, Pair, Process, TakeOver, on_cluster, until
from bus.redis.embedded import EmbeddedRedis
from bus.roles import BROKER, DRIVER, REGISTRY
from candlewright.client import Client, Outcome, Stream, connect
from core.background import start_thread
from sandbox import SandboxThread

TICKER = "BTC/USDT.BINANCE"
#: The exchange's clock runs faster by this factor: about sixty trades and twenty bars a second.
SPEED = 20.0
TRIGGERS = 50
_DAY_ROWS = 1_440


class Heard:
    """When each item of a stream arrived, and whether each came exactly once."""

    def __init__(self, stream: Stream[Any], sequence_of: Callable[[Any], int] | None) -> None:
        self.at: list[float] = []
        self.failure: Exception | None = None
        self._stream, self._sequence_of = stream, sequence_of
        self._stopping = threading.Event()
        self._thread = start_thread("subscriber", self._run)

    def _run(self) -> None:
        try:
            for number in itertools.count(1):
                item = self._next()
                if item is None:
                    return
                if self._sequence_of is not None and self._sequence_of(item) != number:
                    raise RuntimeError(f"received number {self._sequence_of(item)} instead of {number}")
                self.at.append(time.monotonic())
        except Exception as error:  # Raised again where the figures are taken.
            self.failure = error

    def _next(self) -> Any:
        while not self._stopping.is_set():
            try:
                return self._stream.next(timeout=1.0)
            except TimeoutError:
                continue
        return None

    def silence(self, since: float) -> float:
        """The longest pause from `since` to now."""
        if self.failure is not None:
            raise self.failure
        return max(
            after - before for before, after in itertools.pairwise([since, *self._since(since), time.monotonic()])
        )

    def first_after(self, moment: float) -> float:
        """How long after `moment` the next item arrived."""
        until(lambda: self.failure or self.at[-1:] > [moment], "an item of a stream")
        return self.silence(moment) if self.failure else self._since(moment)[0] - moment

    def _since(self, moment: float) -> list[float]:
        return [at for at in self.at if at >= moment]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Seen:
    """What the client saw of some take-overs."""

    def __init__(self, heard: Mapping[str, Heard]) -> None:
        self._heard = heard
        self._found: dict[str, list[float]] = defaultdict(list)

    def look(self, found: TakeOver) -> None:
        for each in self._heard.values():
            self._found["after_detection_seconds"].append(each.first_after(found.taken))
        for name, each in self._heard.items():
            self._found[f"silence_{name}_seconds"].append(each.silence(found.began))

    def take(self) -> dict[str, float]:
        """The longest since the last call."""
        found = {name: round(max(each), 3) for name, each in self._found.items()}
        self._found.clear()
        return found


class Histories:
    """Consecutive requests, each for a day that was not requested before."""

    def __init__(self, client: Client) -> None:
        self.done = 0
        self.failure: Exception | None = None
        self._client = client
        self._stopping = threading.Event()
        self._thread = start_thread("histories", self._run)

    def _run(self) -> None:
        try:
            for day in range(1, 365):
                if self._stopping.is_set():
                    return
                start = (_YEAR + day * _DAY_SECONDS) * 1_000_000_000
                asked = self._client.submit(TICKER, "1m", start=start, end=start + _DAY_SECONDS * 1_000_000_000)
                final = self._client.wait(asked.request_id, timeout=PATIENCE_SECONDS)
                if (final.status, final.row_count) != (Outcome.OK, _DAY_ROWS):
                    raise RuntimeError(f"a history ended as {final}")
                self.done += 1
        except Exception as error:  # Raised again where the figures are taken.
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


_YEAR, _DAY_SECONDS = 1_672_531_200, 86_400


def run(
    roles: Sequence[str], rounds: int, lease_seconds: float, *, master: str = TWO_CORES
) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        exchange = stack.enter_context(SandboxThread(seed=11, speed=SPEED, rate_limit=False))
        settings = {"ROLES__LEASE_SECONDS": str(lease_seconds), **on_cluster(master)}
        pairs = {role: Pair(role, stack, folder, bus_url=redis.url, **settings) for role in (BROKER, REGISTRY, DRIVER)}
        ingestor = Process(
            "ingestor",
            folder / "ingestor",
            redis.url,
            shared=folder,
            INGESTOR__BROKER=json.dumps([each.settings["BROKER__BIND"] for each in pairs[BROKER].processes]),
            INGESTOR__VENUES='["BINANCE"]',
            EXCHANGE=json.dumps({"BINANCE": {"url": exchange.url}}),
        )
        stack.callback(ingestor.end)
        until(ingestor.is_ready, "the ingestor")
        relays = [
            (each.settings["RELAY__REQUESTS_BIND"], each.settings["RELAY__NOTIFICATIONS_BIND"])
            for each in pairs[REGISTRY].processes
        ]
        client, asking = (stack.enter_context(connect(relays, timeout=PATIENCE_SECONDS)) for _ in range(2))
        for number in range(1, TRIGGERS):
            client.triggers.add(f"price > {1e9 + number}", trigger_id=f"silent-{number}", tickers=[TICKER])
        client.triggers.add("price > 0", trigger_id="every-trade", tickers=[TICKER])
        heard = {
            "ticks": Heard(client.ticks(TICKER, from_sequence=1), None),
            "bars": Heard(client.bars(TICKER, 1, from_sequence=1), lambda bar: int(bar.sequence)),
            "events": Heard(client.triggers.events("every-trade", from_sequence=1), lambda event: int(event.sequence)),
        }
        for each in heard.values():
            stack.callback(each.stop)
            each.first_after(time.monotonic())
        histories = Histories(asking)
        stack.callback(histories.stop)
        until(lambda: histories.done or histories.failure, "a history")
        for role in roles:
            seen = Seen(heard)
            for row in pairs[role].rows(rounds, lease_seconds, seen.look):
                yield row | seen.take() | {"load": "live"}
