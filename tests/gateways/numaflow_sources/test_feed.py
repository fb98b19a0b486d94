"""Sources that are read onto a bus: what arrives, what is acknowledged, and what happens when parts die."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from bus.api import Record, StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import tick_columns
from candlewright.wire.errors import BusUnavailable
from core.metrics import REGISTRY
from core.settings_gateways import NumaflowSourceSettings
from gateways.numaflow_sources import feed as feed_module
from gateways.numaflow_sources import session as session_module
from gateways.numaflow_sources.server import NumaflowSources
from protobuf import source_superset_pb2 as source
from tests.fresh_bus import FreshBus
from tests.gateways.numaflow.peer import SOT
from tests.gateways.numaflow_sources.source_server import SourceServer, result

TICKER = "BTC/USDT.BINANCE"
Run = Callable[..., Awaitable[NumaflowSources]]


class KillableBus(FreshBus):
    """After `dies_after` publishes, the next one is executed or not (`carries_out`), and its caller never gets an
    answer.
    """

    dies_after: int | None = None
    carries_out = True

    def publish_as(self, topic: str, records: list[Record], **options):  # type: ignore[no-untyped-def, override]
        if self.dies_after is not None and records:
            if self.dies_after == 0:
                if self.carries_out:
                    super().publish_as(topic, records, **options)
                raise BusUnavailable("the connection is gone")
            self.dies_after -= 1
        return super().publish_as(topic, records, **options)


@pytest.fixture
def bus() -> KillableBus:
    return KillableBus(partitions=2)


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[SourceServer]:
    server = SourceServer(tmp_path)
    yield server
    await server.stop()


@pytest.fixture
async def run(bus: KillableBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    monkeypatch.setattr(session_module, "_READY_SECONDS", 0.02)
    monkeypatch.setattr(session_module, "_INFO_SECONDS", 0.02)
    monkeypatch.setattr(feed_module, "_REFUSED_PAUSE_SECONDS", 0.05)
    started: list[NumaflowSources] = []

    async def start(**settings: object) -> NumaflowSources:
        own = NumaflowSourceSettings.model_validate(
            {
                "socket": str(tmp_path / "other.sock"),
                "server_info": str(tmp_path / "sourcer-server-info"),
                "topic": "t",
                "timeout_ms": 20,
                **settings,
            }
        )
        gateway = NumaflowSources({"trades": own}, bus)
        await gateway.start()
        started.append(gateway)
        return gateway

    yield start
    bus.dies_after = None
    for gateway in started:
        await gateway.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def all_of(bus: FreshBus, topic: str) -> list[StoredRecord]:
    return [record for partition in range(bus.partitions(topic)) for record in bus.read(topic, partition, 0)]


def values(bus: FreshBus, topic: str = "t") -> list[bytes]:
    return sorted(record.value for record in all_of(bus, topic))


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"source": "trades", **labels}) or 0.0


def numbered(count: int) -> list[source.ReadResponse.Result]:
    return [result(b"%d" % n, b"payload %03d" % n) for n in range(count)]


async def test_records_are_published_once_and_acknowledged_after_that(
    bus: KillableBus, other: SourceServer, run: Run
) -> None:
    other.add(numbered(7))
    await other.start()
    gateway = await run(max_records=3)
    await until(lambda: len(other.acknowledged) == 7)
    assert values(bus) == [b"payload %03d" % n for n in range(7)]
    assert all(record.key == b"k" and record.headers["h"] == "v" for record in all_of(bus, "t"))
    # In lists, because the source is made with a released SDK.
    assert other.ack_requests[:3] == [3, 3, 1]
    assert not gateway.problems()


@pytest.mark.parametrize(("language", "version"), [("cobol", ""), ("rust", "0.1.1")])
async def test_a_source_of_the_published_dialect_gets_one_offset_a_request(
    bus: KillableBus, tmp_path: Path, run: Run, language: str, version: str
) -> None:
    other = SourceServer(tmp_path, takes_lists=False)
    other.add(numbered(5))
    await other.start(language, version)
    try:
        await run()
        await until(lambda: len(other.acknowledged) == 5)
        assert other.ack_requests == [1] * 5
        assert len(values(bus)) == 5
    finally:
        await other.stop()


async def test_a_source_with_the_old_calls_is_refused_with_a_sentence_until_it_is_replaced(
    bus: KillableBus, other: SourceServer, run: Run
) -> None:
    other.add(numbered(1))
    await other.start(version="0.8.0")
    gateway = await run()
    await until(gateway.problems)
    assert "python SDK 0.8.0" in gateway.problems()[0]
    assert not other.asked
    other.tell("python", "0.9.0")
    await until(lambda: other.acknowledged)
    await until(lambda: not gateway.problems())


async def test_reading_waits_for_the_socket_readiness_and_the_whole_info_file(
    bus: KillableBus, other: SourceServer, run: Run
) -> None:
    gateway = await run()
    await until(lambda: "waiting for" in str(gateway.details()))
    other.is_ready = False
    other.add(numbered(1))
    await other.start()
    text = other.info.read_text()
    other.info.write_text(text[:-5])
    other.is_ready = True
    await until(lambda: "server-info" in str(gateway.details()["sources"]["trades"]["doing"]))
    assert not other.asked
    other.info.write_text(text)
    await until(lambda: other.acknowledged)


async def test_a_failed_acknowledgement_is_made_again_without_a_second_record(
    bus: KillableBus, tmp_path: Path, run: Run
) -> None:
    other = SourceServer(tmp_path, breaks_acks=2)
    other.add(numbered(4))
    await other.start()
    try:
        before = counted("candlewright_numaflow_sources_repeated_total")
        await run()
        await until(lambda: len(other.acknowledged) == 4)
        assert len(values(bus)) == 4
        assert counted("candlewright_numaflow_sources_repeated_total") == before + 8
    finally:
        await other.stop()


@pytest.mark.parametrize("carries_out", [True, False])
async def test_a_reader_that_dies_around_a_publish_leaves_each_record_once(
    bus: KillableBus, other: SourceServer, run: Run, carries_out: bool
) -> None:
    other.add(numbered(9))
    await other.start()
    bus.dies_after, bus.carries_out = 1, carries_out
    first = await run(max_records=3)
    await until(lambda: other.taken >= 6)
    await until(first.problems)
    # As if killed: only what is on the bus remains.
    bus.dies_after = 0
    await first.stop()
    assert len(other.acknowledged) == 3
    bus.dies_after = None
    await run(max_records=3)
    await until(lambda: len(other.acknowledged) == 9)
    assert values(bus) == [b"payload %03d" % n for n in range(9)]


@pytest.mark.parametrize("timeout_ms", [0, 20])
async def test_reading_continues_after_a_source_restarts(
    bus: KillableBus, other: SourceServer, run: Run, timeout_ms: int
) -> None:
    other.add(numbered(2))
    await other.start()
    gateway = await run(timeout_ms=timeout_ms)
    await until(lambda: len(other.acknowledged) == 2)
    await other.stop()
    await until(lambda: not str(gateway.details()["sources"]["trades"]["doing"]).startswith("reading"))
    other.add([result(b"later", b"later")])
    await other.start()
    await until(lambda: b"later" in other.acknowledged)
    assert len(values(bus)) == 3
    # A broken stream is expected, at any point.
    assert counted("candlewright_numaflow_sources_failures_total") == 0


@pytest.mark.parametrize("missing", ["offset", "event_time"])
async def test_a_record_without_offset_or_time_is_refused_and_not_acknowledged(
    bus: KillableBus, other: SourceServer, run: Run, missing: str
) -> None:
    broken = result(b"7", b"x")
    broken.ClearField(missing)
    other.add([broken])
    await other.start()
    gateway = await run()
    await until(gateway.problems)
    assert "without an" in gateway.problems()[0]
    assert not values(bus)
    assert not other.acknowledged


async def test_mapped_payloads_become_ticks_and_unfit_ones_dead_letters(
    bus: KillableBus, other: SourceServer, run: Run
) -> None:
    good = b'{"data": {"p": "1.25"}, "q": 2, "T": 1700000000123, "m": "sell"}'
    other.add([result(b"1", good), result(b"2", b'{"q": 2}'), result(b"3", b"no JSON")])
    await other.start()
    mapping = {"ticker": f"={TICKER}", "price": "data.p", "size": "q", "ts": "T", "side": "m"}
    gateway = await run(topic="ticks", mapping=mapping)
    await until(lambda: len(other.acknowledged) == 3)
    (record,) = all_of(bus, "ticks")
    assert record.key == TICKER.encode()
    assert record.sequence == 1
    columns = tick_columns.decode(record.value)
    assert columns.price.tolist() == [1.25]
    assert columns.timestamp.tolist() == [1_700_000_000_123_000_000]
    assert columns.side.tolist() == [2]
    assert columns.trade_id.tolist() == [b"trades:0:1"]
    dead = {letter.value: letter.headers for letter in all_of(bus, "trades_dead_letters")}
    assert set(dead) == {b'{"q": 2}', b"no JSON"}
    assert dead[b'{"q": 2}']["reason"] == "the price is missing: the payload has no data.p"
    assert dead[b"no JSON"]["offset_hex"] == b"3".hex()
    assert gateway.details()["sources"]["trades"]["unfit"] == 2


async def test_a_payload_that_does_not_fit_stops_reading_where_that_is_requested(
    bus: KillableBus, other: SourceServer, run: Run
) -> None:
    tick = cw.Tick(ticker=TICKER, trade_id="1", timestamp=1_700_000_000_000_000_000, price=1, size=1)
    other.add([result(b"1", tick.SerializeToString()), result(b"2", b"junk"), result(b"3", tick.SerializeToString())])
    await other.start()
    gateway = await run(topic="ticks", unfit="stop")
    await until(gateway.problems)
    assert "stopped before offset 0/b'2'" in gateway.problems()[0]
    assert other.acknowledged == [b"1"]
    assert len(all_of(bus, "ticks")) == 1
    # The source fixes it: reading continues automatically.
    other.records[1] = result(b"2", tick.SerializeToString())
    await until(lambda: len(other.acknowledged) == 3)
    await until(lambda: not gateway.problems())
    assert other.acknowledged == [b"1", b"2", b"3"]
    assert len(all_of(bus, "ticks")) == 3


async def test_a_source_that_does_not_acknowledge_is_reconnected(
    bus: KillableBus, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_SILENCE_SECONDS", 0.2)
    other = SourceServer(tmp_path, holds_acks=1)
    other.add(numbered(4))
    await other.start()
    try:
        await run()
        await until(lambda: len(other.acknowledged) == 4)
        assert len(values(bus)) == 4
    finally:
        await other.stop()


async def test_a_batch_of_any_size_is_recognised_when_it_is_sent_again(
    bus: KillableBus, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As for records as large as a piece.
    monkeypatch.setattr(feed_module, "PIECE_RECORDS", 1)
    other = SourceServer(tmp_path, breaks_acks=1)
    other.add(numbered(100))
    await other.start()
    try:
        await run()
        await until(lambda: len(other.acknowledged) == 100)
        assert values(bus) == [b"payload %03d" % n for n in range(100)]
    finally:
        await other.stop()


async def test_a_full_bus_stops_being_a_problem_once_it_accepts_records(
    bus: KillableBus, other: SourceServer, run: Run
) -> None:
    other.add(numbered(3))
    await other.start()
    bus.dies_after, bus.carries_out = 0, False
    gateway = await run()
    await until(gateway.problems)
    assert not other.acknowledged
    bus.dies_after = None
    await until(lambda: not gateway.problems())
    assert len(values(bus)) == len(other.acknowledged) == 3


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ([b""], "does not answer the handshake"),
        ([source.ReadResponse(handshake=SOT).SerializeToString(), b""], "neither a result nor the end"),
        ([source.ReadResponse(handshake=SOT).SerializeToString(), b"\xff\xff"], "invalid source.v1 message"),
    ],
)
async def test_a_source_that_violates_the_protocol_is_refused_with_a_sentence(
    bus: KillableBus, tmp_path: Path, run: Run, answers: list[bytes], sentence: str
) -> None:
    def saying(answers: list[bytes]) -> grpc.RpcMethodHandler:
        async def say(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
            left = iter(answers)
            async for _ in requests:
                if (answer := next(left, None)) is not None:
                    yield answer

        return grpc.stream_stream_rpc_method_handler(say)

    async def ready(request: bytes, context: object) -> bytes:
        return source.ReadyResponse(ready=True).SerializeToString()

    other = SourceServer(tmp_path)
    other.tell("python", "0.14.0")
    server = grpc.aio.server()
    handlers = {
        "IsReady": grpc.unary_unary_rpc_method_handler(ready),
        "ReadFn": saying(answers),
        "AckFn": saying([source.AckResponse(handshake=SOT).SerializeToString()]),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("source.v1.Source", handlers),))
    server.add_insecure_port(f"unix:{other.socket}")
    await server.start()
    try:
        gateway = await run()
        await until(gateway.problems)
        assert sentence in gateway.problems()[0]
        assert counted("candlewright_numaflow_sources_failures_total") == 0
    finally:
        await server.stop(0)


async def test_records_of_many_megabytes_are_read(bus: KillableBus, other: SourceServer, run: Run) -> None:
    # More than gRPC accepts by default.
    other.add([result(b"%d" % n, bytes(5 << 20)) for n in range(2)])
    await other.start()
    await run()
    await until(lambda: len(other.acknowledged) == 2)
    assert [len(value) for value in values(bus)] == [5 << 20] * 2


async def test_two_readers_of_one_name_lose_nothing(bus: KillableBus, other: SourceServer, run: Run) -> None:
    other.add(numbered(40))
    await other.start()
    await run(max_records=5)
    await run(max_records=5)
    await until(lambda: len(set(other.acknowledged)) == 40)
    assert set(values(bus)) == {b"payload %03d" % n for n in range(40)}
