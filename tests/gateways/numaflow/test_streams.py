"""How streams begin and end."""

import asyncio
from contextlib import suppress

import grpc
import pytest

from protobuf import source_superset_pb2 as source
from tests.gateways.numaflow.conftest import Connect, Serve, ShakyBus, counted, publish
from tests.gateways.numaflow.peer import SOT

HANDSHAKE = source.ReadRequest(handshake=SOT).SerializeToString()


READ = source.ReadRequest.Request(num_records=1)


@pytest.mark.parametrize(
    ("call", "first", "second"),
    [
        ("ReadFn", b"", None),
        ("ReadFn", source.ReadRequest(request=READ).SerializeToString(), None),
        ("ReadFn", source.ReadRequest(handshake=SOT, request=READ).SerializeToString(), None),
        ("ReadFn", b"\xff\xff", None),
        ("ReadFn", HANDSHAKE, b""),
        ("ReadFn", HANDSHAKE, HANDSHAKE),
        ("ReadFn", HANDSHAKE, b"\xff\xff"),
        ("AckFn", b"", None),
        ("AckFn", b"\xff\xff", None),
        ("AckFn", HANDSHAKE, b""),
        ("AckFn", HANDSHAKE, HANDSHAKE),
        ("AckFn", HANDSHAKE, b"\xff\xff"),
    ],
)
async def test_a_stream_ends_for_a_message_out_of_place(
    serve: Serve, connect: Connect, call: str, first: bytes, second: bytes | None
) -> None:
    peer = connect(await serve())
    before = counted("candlewright_numaflow_bad_calls_total", call=call)
    stream = peer.channel.stream_stream(f"/source.v1.Source/{call}")()
    await stream.write(first)
    if second is not None:
        assert await stream.read()
        await stream.write(second)
    with suppress(grpc.aio.AioRpcError):
        await stream.read()
    assert await asyncio.wait_for(stream.code(), 5) == grpc.StatusCode.INVALID_ARGUMENT
    assert counted("candlewright_numaflow_bad_calls_total", call=call) == before + 1
    # The others are served as before.
    assert await peer.is_ready()
    assert await peer.read(1) == []


async def test_offsets_before_a_bad_message_are_acknowledged(bus: ShakyBus, serve: Serve, connect: Connect) -> None:
    publish(bus, b"a")
    peer = connect(await serve())
    (a,) = await peer.read(1)
    await peer.ack()
    await peer.acks.write(source.AckRequest(request=source.AckRequest.Request(offsets=[a.offset])))
    await peer.acks.write(source.AckRequest(handshake=SOT))
    assert (await peer.acks.read()).result.HasField("success")
    assert await peer.acks.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert await peer.pending() == 0


async def test_a_client_that_leaves_without_a_word_leaves_nothing_behind(serve: Serve, connect: Connect) -> None:
    gateway = await serve()
    peer = connect(gateway)
    for stream in (peer.read_stream(), peer.ack_stream()):
        await stream.done_writing()
        assert await stream.code() == grpc.StatusCode.OK
    assert gateway.details()["streams"] == {"ReadFn": 0, "AckFn": 0}


async def test_a_client_that_closes_its_side_ends_the_call_without_an_error(serve: Serve, connect: Connect) -> None:
    peer = connect(await serve())
    await peer.read(1)
    await peer.ack()
    for stream in (peer.reads, peer.acks):
        await stream.done_writing()
        assert await stream.code() == grpc.StatusCode.OK
