"""The source's files, its start and its stop."""

import asyncio
import json
import socket
from pathlib import Path

import grpc
import pytest

from candlewright.wire.errors import BusUnavailable, ConfigurationError
from core.settings_gateways import NumaflowSettings
from gateways.numaflow import server_info
from gateways.numaflow.partitions import LOG
from gateways.numaflow.server import NumaflowSource
from protobuf import source_superset_pb2 as source
from tests.gateways.numaflow.conftest import Connect, Serve, ShakyBus, counted, payloads, publish
from tests.gateways.numaflow.peer import SOT


async def test_server_info_appears_when_the_socket_answers_and_goes_with_it(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = server_info.write

    def write_once_it_answers(path: Path, info: server_info.ServerInfo) -> None:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(tmp_path / "one.sock"))
        write(path, info)

    monkeypatch.setattr(server_info, "write", write_once_it_answers)
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


async def test_a_client_that_takes_nothing_holds_up_neither_the_others_nor_a_stop(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    # More than the streams buffer.
    publish(bus, *(b"%03d" % n + bytes(100_000) for n in range(200)))
    gateway = await serve(grace_seconds=0.3)
    stuck = connect(gateway)
    await stuck.shake_hands()
    request = source.ReadRequest.Request(num_records=200, timeout_in_ms=1_000)
    await stuck.reads.write(source.ReadRequest(request=request))
    async with asyncio.timeout(10):
        while not gateway.details()["outstanding"]:
            await asyncio.sleep(0.01)
    peer = connect(gateway)
    assert await peer.is_ready()
    assert len(await peer.read(10)) == 10
    await asyncio.wait_for(gateway.stop(), 10)
    again = connect(await serve())
    assert sorted(each.payload[:3] for each in await again.read(200)) == [b"%03d" % n for n in range(200)]


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_stopping_replica_removes_its_name_without_waiting_for_the_bus(
    bus: ShakyBus, serve: Serve, is_away: bool
) -> None:
    gateway = await serve()
    bus.is_away = is_away
    await asyncio.wait_for(gateway.stop(), 10)
    assert bus.forgotten == ([] if is_away else [("t", "numaflow", "one")])


@pytest.mark.parametrize("topic", ["requests", "tick_marks", LOG])
def test_internal_topics_are_not_served(bus: ShakyBus, topic: str) -> None:
    with pytest.raises(ConfigurationError, match=topic):
        NumaflowSource(NumaflowSettings.model_validate({"topic": topic}), bus)


async def test_an_unreachable_store_is_shown_by_status_and_loses_nothing(
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


async def test_an_expired_group_is_recreated_by_the_next_read(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (a,) = await peer.read(5)
    before = counted("candlewright_numaflow_groups_made_anew_total")
    bus.delete_group("t", "numaflow")
    publish(bus, b"b")
    # The client has the first one already.
    (b,) = await peer.read(5)
    assert b.payload == b"b"
    assert counted("candlewright_numaflow_groups_made_anew_total") > before
    await peer.ack(a.offset, b.offset)
    assert await peer.pending() == 0


async def test_without_the_bus_nothing_listens(bus: ShakyBus, serve: Serve, tmp_path: Path) -> None:
    bus.is_away = True
    with pytest.raises(BusUnavailable):
        await serve()
    assert list(tmp_path.iterdir()) == []


async def test_a_group_may_begin_at_the_end(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"old")
    peer = connect(await serve(start="end"))
    publish(bus, b"new")
    assert payloads(await peer.read(5)) == [b"new"]


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
