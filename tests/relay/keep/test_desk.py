"""What is kept fresh, over a real bus, with a broker's ends made by hand."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bus import topics
from bus.api import Bus, Record
from bus.redis.redis_bus import RedisBus
from bus.roles import Roles
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from core.settings_keep import KeepSettings
from protobuf import records_pb2 as rec
from relay.keep.desk import KeepDesk
from relay.keep.store import read_series, read_summary
from tests.fresh_bus import FreshBus

HOUR = 3_600_000_000_000
RULE = KeepSettings(tickers=("BTC/USDT.BINANCE",), since="2024-01-01")


@pytest.fixture
def bus() -> Iterator[FreshBus]:
    bus = FreshBus()
    bus.create_topic(topics.REQUESTS, 1)
    venue = cw.Venue(venue="BINANCE", period_seconds=[60], markets=[cw.Market(symbol="BTC/USDT", active=True)])
    bus.put(topics.TABLE_VENUES, {"BINANCE": venue.SerializeToString()})
    yield bus
    bus.close()


class Running:
    """A desk in a thread, until it is killed: its rounds leave nothing that a restart needs."""

    def __init__(self, bus: Bus, *rules: KeepSettings) -> None:
        self._stop = threading.Event()
        self.desk = KeepDesk(rules, HOUR, 3_600.0)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(bus,))
        self._thread.start()

    def _run(self, bus: Bus) -> None:
        try:
            self.desk.run(bus, self._stop)
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)


def requests(bus: Bus) -> list[rec.Request]:
    return [rec.Request.FromString(record.value) for record in bus.read(topics.REQUESTS, 0, 0)]


def finish(bus: Bus, request: rec.Request) -> None:
    name = request.historical.request_id
    final = ing.HistoryReadyNotification(request_id=name, status=ing.HistoryReadyNotification.OK, row_count=1)
    bus.publish_once(
        topics.NOTIFICATIONS,
        Record(final.SerializeToString()),
        registry=topics.REGISTRY_FINALS,
        name=name,
        content=final.SerializeToString(),
        keep_seconds=60,
    )


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_restart_continues_with_the_request_it_was_at(bus: FreshBus) -> None:
    first = Running(bus, RULE)
    until(lambda: len(requests(bus)) == 1)
    first.stop()
    second = Running(bus, RULE)
    until(lambda: read_summary(bus) is not None)
    [request] = requests(bus)
    assert (request.sender, request.historical.ticker) == ("keep", "BTC/USDT.BINANCE")
    finish(bus, request)
    until(lambda: len(requests(bus)) == 2)
    second.stop()
    assert requests(bus)[1].historical.start_time == request.historical.end_time
    assert read_series(bus)[0].until == request.historical.end_time


def test_without_rules_nothing_is_written(bus: FreshBus) -> None:
    running = Running(bus)
    running.stop()
    assert read_summary(bus) is None and requests(bus) == [] and running.desk.summary == []


def test_a_relay_without_the_role_requests_nothing(bus: FreshBus) -> None:
    roles = Roles(bus.url)
    term = roles.acquire("registry", "one", 60.0)
    assert term is not None
    roles.release(term)
    roles.acquire("registry", "two", 60.0)
    roles.close()
    late = RedisBus(term.address(bus.url))
    running = Running(late, RULE)
    until(lambda: running.error is not None)
    running.stop()
    late.close()
    assert requests(bus) == [] and read_series(bus) == []
