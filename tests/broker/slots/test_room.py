"""History under a small bus.max_bytes: pages wait for room, and every request ends whole."""

import contextlib
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from broker.journal.retention import Retention
from broker.server import BrokerServer
from broker.slots import room as broker_room
from bus import Position, Record, topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BusFull, LeaseLost
from core.settings import BrokerSettings
from ingestor.candles import Candles
from ingestor.history.page_record import page_record
from ingestor.history.publisher import spans
from protobuf import records_pb2 as rec
from tests.broker.harness import MINUTE, Client, Peer, eventually
from tests.fresh_bus import FreshBus

PAGE_ROWS = 500
#: The size of a page of PAGE_ROWS candles.
PAGE = PAGE_ROWS * 64 + 300
OK = ing.HistoryReadyNotification.OK


class Ingestor:
    """Fetches nothing, but publishes pages as a native ingestor does, `rows_per_page` at a time."""

    def __init__(self, bus: FreshBus, address: str, slots: int, *, rows_per_page: int = PAGE_ROWS) -> None:
        self._bus = bus
        self._address = address
        self._slots = slots
        self._rows_per_page = rows_per_page
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(slots)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        peer = Peer(self._address)
        with contextlib.closing(peer):
            peer.offer()
            while not self._is_over.is_set():
                job = peer.receive(0.1)
                if isinstance(job, ing.DataRequest):
                    self._work(peer, job)
                    peer.offer()

    def _work(self, peer: Peer, job: ing.DataRequest) -> None:
        asked = job.historical
        opens = np.arange(asked.start_time, asked.end_time, MINUTE, dtype=np.int64)
        positions: list[Position] = []
        for at in range(0, len(opens), self._rows_per_page):
            times = opens[at : at + self._rows_per_page]
            ones = np.ones(len(times))
            candles = Candles(
                open_time=times,
                open=ones,
                high=ones,
                low=ones,
                close=ones,
                volume=ones,
                quote_volume=ones,
                trade_count=ones.astype(np.uint64),
            )
            record = page_record(
                candles,
                request_id=job.request_id,
                job_id=job.job_id,
                ticker=job.ticker,
                period_seconds=60,
                source="exchange",
            )
            while not self._is_over.is_set():
                try:
                    positions += self._bus.publish(topics.HISTORY, [record], lease=job.job_id)
                    break
                except BusFull:
                    peer.send(ing.WorkHeartbeat(job_id=job.job_id))
                    self._is_over.wait(0.02)
                except LeaseLost:
                    return
        partition = positions[0].partition if positions else 0
        count = len(opens)
        peer.send(
            cw.HistoryEnd(
                job_id=job.job_id,
                partition=partition,
                spans=spans(positions),
                rows=count,
                expected=count,
                exchange_time=time.time_ns(),
            )
        )
        peer.complete(job)

    def close(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(10)


class Writer:
    """Reads outcomes and exactly their pages, as the history writer does, and says how far it is."""

    def __init__(self, bus: FreshBus) -> None:
        self._bus = bus
        self.rows: dict[str, int] = defaultdict(int)
        self.ends: dict[str, rec.RequestDone] = {}
        self.failure: BaseException | None = None
        self._is_over = threading.Event()
        self.is_held_up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        bus = self._bus
        bus.create_topic(topics.HISTORY_OUTCOMES)
        at = dict.fromkeys(range(bus.partitions(topics.HISTORY_OUTCOMES)), 0)
        bus.hold(topics.HISTORY_OUTCOMES, topics.READER_HISTORY_WRITER, at)
        try:
            while not self._is_over.is_set():
                if self.is_held_up.is_set():
                    self._is_over.wait(0.02)
                    continue
                for partition in at:
                    for record in bus.read(topics.HISTORY_OUTCOMES, partition, at[partition]):
                        self._take(rec.HistoryOutcome.FromString(record.value))
                        at[partition] = record.offset + 1
                bus.put(topics.TABLE_HISTORY_WRITTEN, {str(p): b"%d" % end for p, end in at.items()})
                bus.hold(topics.HISTORY_OUTCOMES, topics.READER_HISTORY_WRITER, at)
                self._is_over.wait(0.02)
        except BaseException as error:
            self.failure = error

    def _take(self, outcome: rec.HistoryOutcome) -> None:
        if not outcome.HasField("piece"):
            self.ends[outcome.request.request_id] = outcome.request
            final = ing.HistoryReadyNotification(request_id=outcome.request.request_id, status=OK).SerializeToString()
            name = outcome.request.request_id
            self._bus.publish_once(
                topics.NOTIFICATIONS,
                Record(final, key=name.encode()),
                registry=topics.REGISTRY_FINALS,
                name=name,
                content=final,
                keep_seconds=600,
            )
            return
        piece = outcome.piece
        for span in piece.spans:
            count = span.last_offset - span.first_offset + 1
            found = self._bus.read(topics.HISTORY, piece.partition, span.first_offset, max_records=count)
            assert len(found) == count
            pages = [rec.HistoryPage.FromString(record.value) for record in found]
            assert {page.job_id for page in pages} == {piece.job_id}
            self.rows[piece.request_id] += sum(len(page.open_time) for page in pages)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(10)
        if self.failure is not None:
            raise self.failure


class Platform:
    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bus = FreshBus(max_bytes=max_bytes)
        self.bus.put(
            topics.TABLE_VENUES,
            {"TEST": cw.Venue(venue="TEST", max_candles_per_request=PAGE_ROWS).SerializeToString()},
        )
        self.client = Client(self.bus)
        self.writer = Writer(self.bus)
        self._ingestors: list[Ingestor] = []
        self.largest = 0
        self.start()

    def start(self) -> None:
        self.server = BrokerServer(
            BrokerSettings(bind="tcp://127.0.0.1:0", lease_seconds=1, heartbeat_seconds=0.25),
            self.bus,
            Retention(max_bytes=self.max_bytes),
        )
        self.server.start()
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()

    def ingestor(self, slots: int, rows_per_page: int = PAGE_ROWS) -> Ingestor:
        self._ingestors.append(Ingestor(self.bus, self.server.address, slots, rows_per_page=rows_per_page))
        return self._ingestors[-1]

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(20)

    def wait_for(self, *names: str, seconds: float = 60) -> None:
        def are_there() -> bool:
            size = sum(state.size_bytes for state in self.bus.state(topics.HISTORY))
            self.largest = max(self.largest, size)
            return self.writer.failure is not None or all(name in self.writer.ends for name in names)

        eventually(are_there, seconds)

    def close(self) -> None:
        for ingestor in self._ingestors:
            ingestor.close()
        self.stop()
        self.writer.close()
        self.bus.close()


@pytest.fixture(params=[PAGE, 5 * PAGE, 40 * PAGE], ids=["a page", "five pages", "forty pages"])
def platform(request: pytest.FixtureRequest) -> Iterator[Platform]:
    made = Platform(request.param)
    yield made
    made.close()


def assert_whole(platform: Platform, expected: dict[str, int]) -> None:
    assert {name: platform.writer.rows[name] for name in expected} == expected
    assert {platform.writer.ends[name].status for name in expected} == {OK}
    assert {name: platform.writer.ends[name].rows for name in expected} == expected


@pytest.mark.timeout(120)
def test_requests_larger_than_the_topic_end_whole(platform: Platform) -> None:
    expected = {platform.client.submit(rows, ticker=f"T{i}/X.TEST"): rows for i, rows in enumerate((4_000, 1_500, 700))}
    for slots in (1, 3):
        platform.ingestor(slots)
    platform.wait_for(*expected)
    assert_whole(platform, expected)
    # A publish is accepted while anything is free.
    assert platform.largest <= platform.max_bytes + PAGE


@pytest.mark.timeout(120)
def test_pages_larger_than_estimated_do_not_stop_history(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_room, "STUCK_SECONDS", 0.5)
    expected = {platform.client.submit(rows, ticker=f"T{i}/X.TEST"): rows for i, rows in enumerate((700, 300))}
    platform.ingestor(3, rows_per_page=5)
    platform.wait_for(*expected)
    assert_whole(platform, expected)


@pytest.mark.timeout(120)
def test_a_broker_that_dies_under_a_small_bound_continues(platform: Platform) -> None:
    expected = {platform.client.submit(rows, ticker=f"T{i}/X.TEST"): rows for i, rows in enumerate((4_000, 3_000))}
    choose = random.Random(platform.max_bytes)
    for _ in range(3):
        platform.ingestor(2)
        eventually(lambda: platform.bus.leases() != {} or len(platform.writer.ends) == 2)
        time.sleep(choose.random() / 4)
        platform.stop()
        platform.start()
    platform.ingestor(2)
    platform.wait_for(*expected)
    assert_whole(platform, expected)


@pytest.mark.timeout(120)
def test_nothing_that_would_not_fit_is_dispatched_while_nothing_is_written(platform: Platform) -> None:
    platform.writer.is_held_up.set()
    rows = (platform.max_bytes // PAGE + 5) * PAGE_ROWS
    name = platform.client.submit(rows)
    platform.ingestor(4)
    eventually(lambda: platform.server.state.room.waiting is not None and not platform.server.state.jobs)
    assert sum(state.size_bytes for state in platform.bus.state(topics.HISTORY)) <= platform.max_bytes + PAGE
    platform.writer.is_held_up.clear()
    platform.wait_for(name)
    assert_whole(platform, {name: rows})


@pytest.mark.timeout(120)
def test_a_long_request_leaves_its_pages_on_the_bus_for_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_room, "TRIM_BYTES", 3 * PAGE)
    platform = Platform(1 << 30)
    try:
        name = platform.client.submit(20 * PAGE_ROWS)
        platform.ingestor(2)
        platform.wait_for(name)
        assert_whole(platform, {name: 20 * PAGE_ROWS})
        eventually(lambda: sum(state.size_bytes for state in platform.bus.state(topics.HISTORY)) <= 3 * PAGE)
    finally:
        platform.close()


@pytest.mark.timeout(120)
def test_outcomes_of_a_long_request_do_not_fill_their_topic() -> None:
    platform = Platform(4_000)
    try:
        name = platform.client.submit(24 * 20)
        platform.bus.put(
            topics.TABLE_VENUES, {"TEST": cw.Venue(venue="TEST", max_candles_per_request=20).SerializeToString()}
        )
        platform.ingestor(2, rows_per_page=20)
        eventually(lambda: platform.bus.items(topics.TABLE_BROKER_PROGRESS) != {})
        platform.stop()
        platform.start()
        platform.ingestor(2, rows_per_page=20)
        platform.wait_for(name)
        assert_whole(platform, {name: 480})
        eventually(lambda: platform.bus.items(topics.TABLE_BROKER_PROGRESS) == {})
    finally:
        platform.close()


@pytest.mark.timeout(120)
def test_a_piece_that_waits_for_room_does_not_hold_up_others_that_fit() -> None:
    platform = Platform(8 * PAGE)
    try:
        platform.writer.is_held_up.set()
        large = platform.client.submit(8 * 2 * PAGE_ROWS, client_id="large")
        platform.ingestor(4)
        room = platform.server.state.room
        eventually(lambda: room.waiting is not None and not room._unmeasured and not platform.server.state.jobs)
        small = platform.client.submit(10, ticker="S/X.TEST", client_id="small")
        eventually(lambda: len(platform.client.ends(small)) == 1)
        assert room.waiting is not None
        assert room.waiting.request.request_id == large
        platform.writer.is_held_up.clear()
        platform.wait_for(large, small)
        assert_whole(platform, {large: 16 * PAGE_ROWS, small: 10})
    finally:
        platform.close()


@pytest.mark.timeout(120)
def test_a_piece_that_waits_for_room_is_not_overtaken_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces would always fit before it."""
    monkeypatch.setattr(broker_room, "OVERTAKING_SECONDS", 1.0)
    platform = Platform(4 * PAGE)
    is_over = threading.Event()
    names: list[str] = []

    def crowd() -> None:
        while not is_over.wait(0.002):
            if len(names) - len(platform.writer.ends) < 200:
                names.append(platform.client.submit(100, ticker=f"S{len(names) % 7}/X.TEST", client_id="crowd"))

    thread = threading.Thread(target=crowd)
    try:
        thread.start()
        platform.ingestor(4)
        eventually(lambda: len(platform.writer.ends) > 20)
        large = platform.client.submit(5 * PAGE_ROWS, ticker="L/X.TEST", client_id="large")
        platform.wait_for(large)
        assert not is_over.is_set()
        is_over.set()
        thread.join()
        platform.wait_for(*names)
        assert_whole(platform, {large: 5 * PAGE_ROWS, **dict.fromkeys(names, 100)})
    finally:
        is_over.set()
        thread.join()
        platform.close()
