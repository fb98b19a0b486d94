"""What happens to records that a client acknowledges or gives back."""

import time

import grpc
import pytest

from candlewright.wire.errors import OffsetOutOfRange
from protobuf import source_superset_pb2 as source
from tests.gateways.numaflow.conftest import Connect, Serve, ShakyBus, counted, payloads, publish


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


async def test_acknowledging_an_undelivered_record_has_no_effect(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"a", b"b")
    peer = connect(await serve())
    (a,) = await peer.read(1)
    await peer.ack(source.Offset(offset=b"0:1"), a.offset)
    assert await peer.pending() == 1
    assert payloads(await peer.read(5)) == [b"b"]


async def test_an_offset_whose_partition_was_mixed_up_is_known_by_itself(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a", partition=1)
    peer = connect(await serve())
    (a,) = await peer.read(5)
    await peer.ack(source.Offset(offset=a.offset.offset, partition_id=5))
    assert await peer.pending() == 0


async def test_a_returned_record_is_delivered_again_after_its_delay_a_limited_number_of_times(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a", b"b")
    peer = connect(await serve())
    a, b = await peer.read(5)
    await peer.ack(b.offset)
    started = time.monotonic()
    await peer.nack(a.offset, delay=200, max_deliveries=1, reason="sink is full")
    (again,) = await peer.read(5, timeout_ms=10_000)
    assert time.monotonic() - started >= 0.2
    assert again == a
    before = counted("candlewright_numaflow_given_up_total", why="refused")
    await peer.nack(a.offset, max_deliveries=1)
    assert await peer.read(5, timeout_ms=50) == []
    assert counted("candlewright_numaflow_given_up_total", why="refused") == before + 1
    assert await peer.pending() == 0


async def test_a_refused_record_that_was_trimmed_is_counted_and_never_empty(
    bus: ShakyBus, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (a,) = await peer.read(5)
    await peer.nack(a.offset)
    before = counted("candlewright_numaflow_trimmed_records_total", topic="t")

    def gone(topic: str, partition: int, offset: int, **options: int) -> None:
        raise OffsetOutOfRange(topic, partition, offset, first=1, end=1)

    # As after an XTRIM by another program.
    monkeypatch.setattr(bus, "read", gone)
    assert await peer.read(5) == []
    assert counted("candlewright_numaflow_trimmed_records_total", topic="t") == before + 1
    assert await peer.pending() == 0


async def test_each_request_has_its_answer_however_many_come_at_once(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, *(b"%d" % n for n in range(50)))
    peer = connect(await serve())
    found = await peer.read(50)
    await peer.ack()
    # The published dialect has one offset per request; the last ones come first, and all of them twice.
    for each in [*reversed(found), *found]:
        await peer.acks.write(source.AckRequest(request=source.AckRequest.Request(offsets=[each.offset])))
    await peer.acks.done_writing()
    answers = 0
    while (answer := await peer.acks.read()) is not grpc.aio.EOF:
        assert answer.result.HasField("success")
        answers += 1
    assert answers == 100
    assert await peer.pending() == 0


async def test_a_request_of_any_length_is_acknowledged_in_calls_that_the_store_can_take(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (a,) = await peer.read(1)
    before = counted("candlewright_numaflow_repeated_acks_total")
    # One record is larger than the four megabytes that gRPC accepts by default.
    await peer.ack(*(source.Offset(offset=b"0:%d" % n) for n in range(1, 25_000)), a.offset)
    await peer.ack(source.Offset(offset=bytes(5 << 20)))
    assert max(bus.acknowledged) <= 10_000
    assert await peer.pending() == 0
    assert counted("candlewright_numaflow_repeated_acks_total") == before + 24_999


async def test_delays_and_counts_of_refused_records_outlive_the_process(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a", b"b")
    gateway = await serve()
    peer = connect(gateway)
    a, b = await peer.read(5)
    started = time.monotonic()
    await peer.nack(a.offset, delay=700, max_deliveries=1)
    await peer.close()
    # As if killed: its successor knows only what is on the bus.
    await gateway.stop()
    peer = connect(await serve())
    found: list[source.ReadResponse.Result] = []
    while a not in found:
        found += await peer.read(5, timeout_ms=10_000)
    assert time.monotonic() - started >= 0.7
    assert sorted(payloads(found)) == payloads([a, b])
    await peer.nack(a.offset, max_deliveries=1)
    assert await peer.read(5, timeout_ms=50) == []
    assert await peer.pending() == 1


async def test_another_replica_keeps_to_the_delay_and_is_the_only_one_to_offer_it_again(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    first, second = connect(await serve("one")), connect(await serve("two", redeliver_seconds=0.2))
    assert await second.read(1) == []
    publish(bus, b"a")
    (a,) = await first.read(1)
    started = time.monotonic()
    await first.nack(a.offset, delay=800)
    assert await second.read(5, timeout_ms=10_000) == [a]
    assert time.monotonic() - started >= 0.8
    assert await first.read(5) == []
    await second.ack(a.offset)
    assert await first.pending() == 0


async def test_a_record_that_cannot_be_returned_while_the_bus_is_down_stays_with_the_client(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (a,) = await peer.read(1)
    bus.is_away = True
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.nack(a.offset)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    bus.is_away = False
    assert await peer.read(1) == []
    await peer.nack(a.offset)
    assert await peer.read(1, timeout_ms=5_000) == [a]


async def test_a_late_acknowledgement_leaves_the_record_in_the_place_of_the_lost_one(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    publish(bus, b"old")
    peer = connect(await serve())
    (old,) = await peer.read(1)
    bus._store.call("FLUSHDB")
    publish(bus, b"new")
    (new,) = await peer.read(1, timeout_ms=5_000)
    assert new.payload == b"new"
    await peer.ack(old.offset)
    assert await peer.pending() == 1
    await peer.ack(new.offset)
    assert await peer.pending() == 0
