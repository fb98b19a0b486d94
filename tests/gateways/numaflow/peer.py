"""A minimal client of a Numaflow source for tests."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty

from protobuf import source_superset_pb2 as source

SOT = source.Handshake(sot=True)


class Peer:
    """One connection; `read` and `ack` open their streams with a handshake first. EOFError if a stream ends."""

    def __init__(self, socket: Path) -> None:
        self.channel = grpc.aio.insecure_channel(f"unix:{socket}")
        self.reads: Any = None
        self.acks: Any = None

    def method(self, kind: str, name: str, request: Any, *, response: Any) -> Any:
        return getattr(self.channel, kind)(
            f"/source.v1.Source/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )

    def read_stream(self) -> Any:
        return self.method("stream_stream", "ReadFn", source.ReadRequest, response=source.ReadResponse)()

    def ack_stream(self) -> Any:
        return self.method("stream_stream", "AckFn", source.AckRequest, response=source.AckResponse)()

    async def shake_hands(self) -> None:
        self.reads = self.read_stream()
        await self.reads.write(source.ReadRequest(handshake=SOT))
        answer = await self.reads.read()
        assert answer.handshake.sot
        assert not answer.status.eot
        assert not answer.HasField("result")

    async def read(self, count: int, timeout_ms: int = 0) -> list[source.ReadResponse.Result]:
        if self.reads is None:
            await self.shake_hands()
        request = source.ReadRequest.Request(num_records=count, timeout_in_ms=timeout_ms)
        await self.reads.write(source.ReadRequest(request=request))
        found = []
        while not (answer := _some(await self.reads.read())).status.eot:
            found.append(answer.result)
        assert not answer.HasField("result")
        assert len(found) <= count
        return found

    async def ack(self, *offsets: source.Offset) -> None:
        """Acknowledge all of them in one request."""
        if self.acks is None:
            self.acks = self.ack_stream()
            await self.acks.write(source.AckRequest(handshake=SOT))
            answer = await self.acks.read()
            assert answer.handshake.sot
            assert answer.result.HasField("success")
        await self.acks.write(source.AckRequest(request=source.AckRequest.Request(offsets=offsets)))
        answer = _some(await asyncio.wait_for(self.acks.read(), 20))
        assert answer.result.HasField("success")
        assert not answer.HasField("handshake")

    async def nack(self, *offsets: source.Offset, **options: Any) -> None:
        request = source.NackRequest.Request(offsets=offsets)
        if options:
            request.nack_options.CopyFrom(source.NackOptions(**options))
        answer = await self.method("unary_unary", "NackFn", source.NackRequest, response=source.NackResponse)(
            source.NackRequest(request=[request])
        )
        assert answer.result.HasField("success")

    async def pending(self) -> int:
        answer = await self.method("unary_unary", "PendingFn", Empty, response=source.PendingResponse)(Empty())
        return int(answer.result.count)

    async def partitions(self) -> tuple[list[int], int]:
        answer = await self.method("unary_unary", "PartitionsFn", Empty, response=source.PartitionsResponse)(Empty())
        return list(answer.result.partitions), answer.result.total_partitions

    async def is_ready(self) -> bool:
        answer = await self.method("unary_unary", "IsReady", Empty, response=source.ReadyResponse)(Empty())
        return bool(answer.ready)

    async def close(self) -> None:
        await self.channel.close()


def _some(answer: Any) -> Any:
    if answer is grpc.aio.EOF:
        raise EOFError("the source ended the stream")
    return answer
