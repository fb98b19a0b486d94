"""The source over a bus in memory, as a client on its socket sees it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from bus.api import Record
from bus.memory_bus import MemoryBus
from core.errors import BusUnavailable, ConfigurationError, OffsetOutOfRange
from core.metrics import REGISTRY
from core.settings_gateways import NumaflowSettings
from gateways.numaflow import server
from gateways.numaflow.partitions import LOG
from gateways.numaflow.server import NumaflowSource
from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import source_superset_pb2 as source
from tests.gateways.numaflow.peer import SOT, Peer

Serve = Callable[..., Awaitable[NumaflowSource]]
Connect = Callable[[NumaflowSource], Peer]
TICKER = "BTC/USDT.BINANCE"
START = 1_700_000_000_000_000_000


class ShakyBus(MemoryBus):
    """A bus whose store can be away."""

    is_away = False
    waits = 0

    def wait(self, *arguments, **options):  # type: ignore[no-untyped-def]
        self.waits += 1
        return super().wait(*arguments, **options)

    def _check(self) -> None:
        if self.is_away:
            raise BusUnavailable("the store is away")

    def acknowledge(self, *arguments, **options):  # type: ignore[no-untyped-def]
        self._check()
        return super().acknowledge(*arguments, **options)

    def read_group(self, *arguments, **options):  # type: ignore[no-untyped-def]
        self._check()
        return super().read_group(*arguments, **options)

    def groups(self, topic: str) -> list[str]:
        self._check()
        return super().groups(topic)

    def next_offsets(self, topic: str, group: str) -> dict[int, int]:
        self._check()
        return super().next_offsets(topic, group)


@pytest.fixture
def bus() -> ShakyBus:
    return ShakyBus(partitions=2)


@pytest.fixture
async def serve(bus: ShakyBus, tmp_path: Path) -> AsyncIterator[Serve]:
    started: list[NumaflowSource] = []

    async def start(replica: str = "one", **settings: object) -> NumaflowSource:
        own = NumaflowSettings.model_validate(
            {
                "socket": str(tmp_path / f"{replica}.sock"),
                "server_info": str(tmp_path / replica / "sourcer-server-info"),
                "topic": "t",
                "replica": replica,
                "grace_seconds": 1.0,
                **settings,
            }
        )
        gateway = NumaflowSource(own, bus)
        await gateway.start()
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        await gateway.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    peers: list[Peer] = []

    def make(gateway: NumaflowSource) -> Peer:
        peers.append(Peer(Path(str(gateway.details()["socket"]))))
        return peers[-1]

    yield make
    for peer in peers:
        await peer.close()


def payloads(found: list[source.ReadResponse.Result]) -> list[bytes]:
    return [each.payload for each in found]


def publish(bus: MemoryBus, *values: bytes, topic: str = "t", partition: int | None = 0) -> None:
    bus.publish(topic, [Record(value, partition=partition) for value in values])


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_what_is_read_is_acknowledged_only_by_the_client(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, *(b"%d" % n for n in range(5)))
    peer = connect(await serve())
    assert await peer.is_ready()
    found = await peer.read(3)
    assert payloads(found) == [b"0", b"1", b"2"]
    assert await peer.pending() == 5
    await peer.ack(found[0].offset)
    assert await peer.pending() == 4
    await peer.ack(found[1].offset, found[2].offset)
    assert payloads(await peer.read(10)) == [b"3", b"4"]
    assert await peer.pending() == 2
    assert await peer.read(10) == []


async def test_a_read_without_records_waits_its_time_and_acknowledgements_do_not_wait_for_it(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (first,) = await peer.read(10)
    started = time.monotonic()
    reading = asyncio.create_task(peer.read(10, timeout_ms=20_000))
    await peer.ack(first.offset)
    assert not reading.done()
    publish(bus, b"b")
    assert payloads(await reading) == [b"b"]
    assert time.monotonic() - started < 10
    began = time.monotonic()
    assert await peer.read(10, timeout_ms=200) == []
    assert 0.19 < time.monotonic() - began < 5
    assert await peer.read(0, timeout_ms=5_000) == []


async def test_a_new_connection_gets_what_the_last_one_did_not_acknowledge_first(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, *(b"%d" % n for n in range(7)))
    gateway = await serve()
    gone = connect(gateway)
    before = await gone.read(5)
    await gone.ack(before[1].offset)
    await gone.close()
    peer = connect(gateway)
    # In pages, each record once, before the new ones.
    again = [*(await peer.read(2)), *(await peer.read(2)), *(await peer.read(10))]
    assert payloads(again) == [b"0", b"2", b"3", b"4", b"5", b"6"]
    kept = {bytes(each.offset.offset): each.payload for each in before}
    assert all(kept[bytes(each.offset.offset)] == each.payload for each in again[:4])
    assert await peer.read(10) == []


async def test_a_second_handshake_on_one_connection_gets_everything_unacknowledged_again(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a", b"b")
    peer = connect(await serve())
    assert payloads(await peer.read(5)) == [b"a", b"b"]
    await peer.shake_hands()
    assert payloads(await peer.read(5)) == [b"a", b"b"]


async def test_no_more_than_four_batches_wait_for_their_acknowledgement(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, *(b"%d" % n for n in range(12)))
    peer = connect(await serve())
    out = [each for _ in range(6) for each in await peer.read(2)]
    assert len(out) == 8
    reading = asyncio.create_task(peer.read(2, timeout_ms=20_000))
    # One by one and out of order.
    await peer.ack(out[5].offset)
    assert payloads(await reading) == [b"8"]


async def test_several_topics_come_in_one_batch_that_is_not_larger_than_asked_for(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    for topic in ("a", "b", "c"):
        publish(bus, *(f"{topic}{n}".encode() for n in range(4)), topic=topic, partition=None)
    peer = connect(await serve(topic=["a", "b", "c"]))
    found: list[source.ReadResponse.Result] = []
    while batch := await peer.read(5):
        await peer.ack(*(each.offset for each in batch))
        found += batch
    assert sorted(payloads(found)) == sorted(f"{topic}{n}".encode() for topic in "abc" for n in range(4))
    assert len({(bytes(each.offset.offset), each.offset.partition_id) for each in found}) == 12
    ids, total = await peer.partitions()
    assert ids == list(range(6))
    assert total == 6
    assert {each.offset.partition_id for each in found} == set(ids)
    assert {each.headers["topic"] for each in found} == {"a", "b", "c"}


async def test_partitions_keep_their_numbers_when_topics_are_added(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"x", topic="zebra")
    first = connect(await serve(topic="zebra"))
    (before,) = await first.read(5)
    second = connect(await serve("two", topic=["ant", "zebra"], group="other"))
    (after,) = await second.read(5)
    assert after.offset == before.offset
    assert (await first.partitions())[0] == [0, 1]
    assert (await second.partitions())[0] == [0, 1, 2, 3]
    assert [record.value for record in bus.read(LOG, 0, 0)] == [b"zebra/0", b"zebra/1", b"ant/0", b"ant/1"]


async def test_what_another_replica_let_lie_is_given_to_this_one(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"a", b"b")
    lazy = connect(await serve("lazy", redeliver_seconds=0.3))
    assert len(await lazy.read(1)) == 1
    busy = connect(await serve("busy", redeliver_seconds=0.3))
    assert payloads(await busy.read(5)) == [b"b"]
    async with asyncio.timeout(10):
        while not (found := await busy.read(5, timeout_ms=200)):
            pass
    assert payloads(found) == [b"a"]
    await busy.ack(found[0].offset)
    # The first one's client may still acknowledge it: no error.
    await lazy.ack(found[0].offset)
    assert await busy.pending() == 1


async def test_what_is_given_back_comes_again_after_its_delay_and_not_for_ever(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a", b"b")
    peer = connect(await serve())
    a, b = await peer.read(5)
    await peer.ack(b.offset)
    started = time.monotonic()
    await peer.nack(a.offset, delay=200, max_deliveries=1, reason="sink is full")
    assert await peer.read(5) == []
    (again,) = await peer.read(5, timeout_ms=10_000)
    assert time.monotonic() - started >= 0.2
    assert again == a
    before = counted("candlewright_numaflow_given_up_total", why="refused")
    await peer.nack(a.offset, max_deliveries=1)
    assert await peer.read(5, timeout_ms=50) == []
    assert counted("candlewright_numaflow_given_up_total", why="refused") == before + 1
    assert await peer.pending() == 0


async def test_unknown_offsets_are_acknowledged_without_an_error(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (a,) = await peer.read(5)
    await peer.ack(
        source.Offset(offset=b"never ours"), source.Offset(offset=b"9:1"), source.Offset(offset=b"0:77"), a.offset
    )
    await peer.ack(a.offset)
    await peer.ack()
    assert await peer.pending() == 0


async def test_an_offset_whose_partition_was_mixed_up_is_known_by_itself(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a", partition=1)
    peer = connect(await serve())
    (a,) = await peer.read(5)
    await peer.ack(source.Offset(offset=a.offset.offset, partition_id=5))
    assert await peer.pending() == 0


@pytest.mark.parametrize("call", ["ReadFn", "AckFn"])
@pytest.mark.parametrize("has_handshake", [True, False])
async def test_a_stream_ends_for_what_is_no_message_of_its_place(
    serve: Serve, connect: Connect, call: str, has_handshake: bool
) -> None:
    peer = connect(await serve())
    kind = source.ReadRequest if call == "ReadFn" else source.AckRequest
    stream = peer.read_stream() if call == "ReadFn" else peer.ack_stream()
    if has_handshake:
        await stream.write(kind(handshake=SOT))
        await stream.read()
    await stream.write(kind())
    with suppress(grpc.aio.AioRpcError):
        await stream.read()
    assert await stream.code() == grpc.StatusCode.INVALID_ARGUMENT
    # The others are served as before.
    assert await peer.is_ready()
    assert await peer.read(1) == []


async def test_a_client_that_closes_its_side_ends_the_call_well(serve: Serve, connect: Connect) -> None:
    peer = connect(await serve())
    await peer.read(1)
    await peer.ack()
    for stream in (peer.reads, peer.acks):
        await stream.done_writing()
        assert await stream.code() == grpc.StatusCode.OK


async def test_a_store_that_is_away_is_told_by_status_and_loses_nothing(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a", b"b")
    gateway = await serve()
    peer = connect(gateway)
    (a,) = await peer.read(1)
    bus.is_away = True
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.is_ready()
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert await peer.pending() == -1
    await peer.reads.write(source.ReadRequest(request=source.ReadRequest.Request(num_records=1)))
    assert await peer.reads.code() == grpc.StatusCode.UNAVAILABLE
    acks = peer.ack_stream()
    await acks.write(source.AckRequest(handshake=SOT))
    await acks.read()
    await acks.write(source.AckRequest(request=source.AckRequest.Request(offsets=[a.offset])))
    assert await acks.code() == grpc.StatusCode.UNAVAILABLE
    assert gateway.problems()
    bus.is_away = False
    again = connect(gateway)
    assert payloads(await again.read(5)) == [b"a", b"b"]
    assert not gateway.problems()


async def test_a_group_that_expired_is_made_anew(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    assert payloads(await peer.read(5)) == [b"a"]
    bus.delete_group("t", "numaflow")
    assert payloads(await connect(await serve("two")).read(5)) == [b"a"]


async def test_a_group_may_begin_at_the_end(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"old")
    peer = connect(await serve(start="end"))
    publish(bus, b"new")
    assert payloads(await peer.read(5)) == [b"new"]


async def test_large_messages_pass(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"x" * (5 << 20))
    gateway = await serve()
    peer = connect(gateway)
    await peer.close()
    limit = [("grpc.max_receive_message_length", 64 << 20)]
    peer.channel = grpc.aio.insecure_channel(f"unix:{gateway.details()['socket']}", options=limit)
    (found,) = await peer.read(5)
    assert len(found.payload) == 5 << 20


async def test_a_record_that_no_message_can_hold_is_given_up_and_stops_nothing(
    bus: ShakyBus, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(bus, b"a", b"x" * 3_000, b"b")
    monkeypatch.setattr(server, "MAX_MESSAGE_BYTES", 3_000)
    before = counted("candlewright_numaflow_given_up_total", why="too_large")
    peer = connect(await serve())
    assert payloads(await peer.read(5)) == [b"a", b"b"]
    assert await peer.pending() == 2
    assert counted("candlewright_numaflow_given_up_total", why="too_large") == before + 1


async def test_a_refused_record_that_was_trimmed_is_counted_and_never_empty(
    bus: ShakyBus, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (a,) = await peer.read(5)
    await peer.nack(a.offset)
    before = counted("candlewright_numaflow_trimmed_records_total", topic="t")

    def gone(topic: str, partition: int, offset: int, **options: int) -> None:
        raise OffsetOutOfRange(topic, partition, offset, 1, 1)

    # As after an XTRIM by another program.
    monkeypatch.setattr(bus, "read", gone)
    assert await peer.read(5) == []
    assert counted("candlewright_numaflow_trimmed_records_total", topic="t") == before + 1
    assert await peer.pending() == 0


async def test_server_info_appears_when_the_socket_answers_and_goes_with_it(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    info = tmp_path / "one" / "sourcer-server-info"
    info.write_text("of a dead process")
    gateway = await serve()
    text = info.read_text()
    assert text.endswith("U+005C__END__")
    assert json.loads(text.removesuffix("U+005C__END__")) == {
        "protocol": "uds",
        "language": "python",
        "minimum_numaflow_version": "1.4.0-z",
        "version": "0.11.0",
        "metadata": {},
    }
    assert [file.name for file in info.parent.iterdir()] == [info.name]
    with pytest.raises(OSError, match="another process listens"):
        await serve()
    assert (tmp_path / "one.sock").exists()
    await gateway.stop()
    assert not info.exists()
    assert not (tmp_path / "one.sock").exists()


async def test_a_stop_ends_the_read_under_way_and_waits_for_acknowledgements(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a")
    gateway = await serve(grace_seconds=10)
    peer = connect(gateway)
    (a,) = await peer.read(1)
    await peer.ack()
    reading = asyncio.create_task(peer.read(1, timeout_ms=30_000))
    async with asyncio.timeout(10):
        while not bus.waits:
            await asyncio.sleep(0.01)
    stopping = asyncio.create_task(gateway.stop())
    assert await asyncio.wait_for(reading, 5) == []
    assert await peer.reads.code() == grpc.StatusCode.OK
    assert not stopping.done()
    await peer.ack(a.offset)
    await asyncio.wait_for(stopping, 5)
    assert bus.pending("t", "numaflow") == {0: 0, 1: 0}


@pytest.mark.parametrize("topic", ["requests", "tick_marks", LOG])
def test_inner_topics_are_not_served(bus: ShakyBus, topic: str) -> None:
    with pytest.raises(ConfigurationError, match=topic):
        NumaflowSource(NumaflowSettings.model_validate({"topic": topic}), bus)


async def test_what_the_platform_publishes_has_its_own_time_key_and_headers(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    key = TICKER.encode()
    tick = cw.Tick(ticker=TICKER, trade_id="7", timestamp=START + 5, price=1.5, size=2)
    batch = cw.TickBatch(
        ticker=TICKER,
        timestamp=[START + 9, START + 8],
        price=[1, 2],
        size=[1, 1],
        side=[1, 2],
        trade_id=["8", "9"],
        received_at=[1, 1],
    )
    bar = cw.OHLCV(ticker=TICKER, open_time=START, period_seconds=60)
    event = ing.CEPTriggerEvent(trigger_id="up", timestamp=START + 3, context={"ticker": TICKER})
    for topic, message, own_key, headers in (
        ("ticks", tick, key, {"traceparent": "00-1-2-01"}),
        ("ticks", batch, key, {}),
        ("ohlc", bar, key, {}),
        ("trigger_events", event, b"up", {}),
        ("ticks", None, b"?", {}),
    ):
        value = message.SerializeToString() if message is not None else b"no tick"
        bus.publish(topic, [Record(value, key=own_key, partition_key=key, headers=headers)])
    peer = connect(await serve(topic=["ticks", "ohlc", "trigger_events"]))
    found = {each.payload: each for each in await peer.read(10)}
    assert len(found) == 5

    def seen(message: cw.Tick | cw.TickBatch | cw.OHLCV | ing.CEPTriggerEvent) -> tuple[int, list[str], dict[str, str]]:
        result = found[message.SerializeToString()]
        return result.event_time.ToNanoseconds(), list(result.keys), dict(result.headers)

    common = {"ticker": TICKER}
    assert seen(tick) == (
        START + 5,
        ["BINANCE:BTC/USDT"],
        {
            "topic": "ticks",
            "kind": "tick",
            "schema": "candlewright.Tick",
            "traceparent": "00-1-2-01",
            **common,
        },
    )
    assert seen(batch) == (
        START + 8,
        ["BINANCE:BTC/USDT"],
        {"topic": "ticks", "kind": "tick", "schema": "candlewright.TickBatch", **common},
    )
    assert seen(bar) == (
        START + 60_000_000_000,
        ["BINANCE:BTC/USDT"],
        {"topic": "ohlc", "kind": "ohlc", "schema": "candlewright.OHLCV", "period": "60", **common},
    )
    assert seen(event) == (
        START + 3,
        ["up"],
        {
            "topic": "trigger_events",
            "kind": "cep",
            "schema": ing.CEPTriggerEvent.DESCRIPTOR.full_name,
            **common,
        },
    )
    unreadable = found[b"no tick"]
    assert dict(unreadable.headers) == {"topic": "ticks"}
    assert abs(unreadable.event_time.ToNanoseconds() / 1e9 - time.time()) < 60
