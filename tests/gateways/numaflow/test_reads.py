"""What a client reads, and when."""

import asyncio
import time

import grpc
import pytest

from gateways.numaflow import reads
from gateways.numaflow.state import SourceState
from protobuf import source_superset_pb2 as source
from tests.gateways.numaflow.conftest import Connect, Serve, ShakyBus, counted, payloads, publish


async def test_read_records_are_acknowledged_only_by_the_client(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
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


async def test_a_new_connection_first_gets_unacknowledged_records_of_the_last_one(
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


async def test_a_read_that_may_bring_nothing_waits_at_rest_though_something_is_due(
    bus: ShakyBus, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(bus, *(b"%d" % n for n in range(5)))
    peer = connect(await serve())
    first, *_ = [each for _ in range(4) for each in await peer.read(1)]
    await peer.nack(first.offset, delay=20)
    assert payloads(await peer.read(1)) == [b"4"]
    looks = []
    room = SourceState.room

    def counted_room(state: SourceState, asked: int) -> int:
        looks.append(asked)
        return room(state, asked)

    monkeypatch.setattr(SourceState, "room", counted_room)
    assert await peer.read(1, timeout_ms=200) == []
    assert len(looks) < 10


async def test_several_topics_come_in_one_batch_that_is_not_larger_than_requested(
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


async def test_records_left_by_another_replica_go_to_this_one(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"a", b"b")
    lazy = connect(await serve("lazy", redeliver_seconds=0.3))
    (a,) = await lazy.read(1)
    busy = connect(await serve("busy", redeliver_seconds=0.3))
    found: list[source.ReadResponse.Result] = []
    async with asyncio.timeout(10):
        while a not in found:
            found += await busy.read(5, timeout_ms=200)
    assert sorted(payloads(found)) == [b"a", b"b"]
    await busy.ack(a.offset)
    # The first one's client may still acknowledge it: no error.
    await lazy.ack(a.offset)
    assert await busy.pending() == 1


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
    monkeypatch.setattr(reads, "MAX_MESSAGE_BYTES", 3_000)
    before = counted("candlewright_numaflow_given_up_total", why="too_large")
    peer = connect(await serve())
    assert payloads(await peer.read(5)) == [b"a", b"b"]
    assert await peer.pending() == 2
    assert counted("candlewright_numaflow_given_up_total", why="too_large") == before + 1


async def test_any_number_may_be_requested_with_any_time(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, *(b"%d" % n for n in range(1_200)))
    peer = connect(await serve())
    assert len(await peer.read(2**64 - 1, 2**32 - 1)) == 1_200
    assert await peer.read(2**64 - 1) == []
    assert await peer.read(0, 2**32 - 1) == []


async def test_several_clients_share_the_records_and_no_wait_holds_up_another(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    gateway = await serve()
    peers = [connect(gateway) for _ in range(12)]
    for peer in peers:
        assert await peer.read(1) == []
    assert await asyncio.gather(*(peer.read(1, timeout_ms=300) for peer in peers)) == [[]] * 12
    # One call of the bus for all of them.
    assert bus.waits < 6
    publish(bus, *(b"%d" % n for n in range(120)))
    found = await asyncio.gather(*(peer.read(10, timeout_ms=5_000) for peer in peers))
    assert sorted(payloads([each for batch in found for each in batch])) == sorted(b"%d" % n for n in range(120))


async def test_fewer_large_records_are_in_memory_at_a_time(
    bus: ShakyBus, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "_PIECE_BYTES", 10_000)
    publish(bus, *(bytes(1_000) for _ in range(130)))
    peer = connect(await serve())
    assert len(await peer.read(130)) == 130
    assert bus.asked == [100, 10, 10, 10]


async def test_pending_counts_existing_records_after_another_program_has_trimmed(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, *(b"%d" % n for n in range(10)))
    peer = connect(await serve())
    assert len(await peer.read(2)) == 2
    bus.drop("t", 0, 6)
    assert await peer.pending() == 2 + 4
    assert payloads(await peer.read(10)) == [b"6", b"7", b"8", b"9"]


async def test_a_client_that_leaves_while_it_waits_takes_nothing_with_it(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    gateway = await serve()
    gone = connect(gateway)
    await gone.read(1)
    reading = asyncio.create_task(gone.read(10, timeout_ms=60_000))
    async with asyncio.timeout(10):
        while not bus.waits:
            await asyncio.sleep(0.01)
    await gone.close()
    await asyncio.wait({reading})
    publish(bus, b"a")
    assert payloads(await connect(gateway).read(10, timeout_ms=5_000)) == [b"a"]
    async with asyncio.timeout(10):
        while gateway.details()["streams"]["ReadFn"] > 1:
            await asyncio.sleep(0.01)
