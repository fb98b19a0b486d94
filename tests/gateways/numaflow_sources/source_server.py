"""A Numaflow source with a list of records, for tests: unacknowledged ones are sent again at the next handshake."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf.empty_pb2 import Empty

from gateways.service import handlers_of
from protobuf import source_superset_pb2 as source

TRAILER = "U+005C__END__"


def result(
    offset: bytes, payload: bytes, partition_id: int = 0, *, at: int = 1_700_000_000
) -> source.ReadResponse.Result:
    found = source.ReadResponse.Result(payload=payload, keys=["k"], headers={"h": "v"})
    found.offset.offset = offset
    found.offset.partition_id = partition_id
    found.event_time.seconds = at
    return found


class SourceServer:
    """`takes_lists` False: keeps only one offset per request, as a server of the published dialect does. `breaks_acks`:
    this many acknowledgements are answered by the end of the stream; `holds_acks`: this many are not answered.
    """

    def __init__(self, folder: Path, *, takes_lists: bool = True, breaks_acks: int = 0, holds_acks: int = 0) -> None:
        self.socket = folder / "other.sock"
        self.info = folder / "sourcer-server-info"
        self.records: list[source.ReadResponse.Result] = []
        self.taken = 0
        self.acknowledged: list[bytes] = []
        self.ack_requests: list[int] = []
        self.asked: list[int] = []
        self.is_ready = True
        self.breaks_acks = breaks_acks
        self.holds_acks = holds_acks
        self._takes_lists = takes_lists
        self._server: grpc.aio.Server | None = None

    def add(self, results: Sequence[source.ReadResponse.Result]) -> None:
        self.records += results

    async def start(self, language: str = "python", version: str = "0.14.0") -> None:
        self._server = grpc.aio.server()
        behaviours = {"ReadFn": self._read, "AckFn": self._ack, "IsReady": self._ready, "PendingFn": self._pending}
        service = source.DESCRIPTOR.services_by_name["Source"]
        self._server.add_generic_rpc_handlers((handlers_of(service, behaviours),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()
        self.tell(language, version)

    def tell(self, language: str, version: str) -> None:
        info = {"protocol": "uds", "language": language, "minimum_numaflow_version": "", "version": version}
        self.info.write_text(json.dumps(info) + TRAILER)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def _ready(self, request: Empty, context: Any) -> source.ReadyResponse:
        return source.ReadyResponse(ready=self.is_ready)

    async def _pending(self, request: Empty, context: Any) -> source.PendingResponse:
        return source.PendingResponse(result=source.PendingResponse.Result(count=-1))

    async def _read(
        self, requests: AsyncIterator[source.ReadRequest], context: Any
    ) -> AsyncIterator[source.ReadResponse]:
        assert (await anext(requests)).handshake.sot
        self.records = [each for each in self.records if each.offset.offset not in self.acknowledged]
        self.taken = 0
        yield source.ReadResponse(handshake=source.Handshake(sot=True))
        async for message in requests:
            self.asked.append(message.request.num_records)
            batch = self.records[self.taken : self.taken + message.request.num_records]
            self.taken += len(batch)
            for each in batch:
                yield source.ReadResponse(result=each)
            yield source.ReadResponse(status=source.ReadResponse.Status(eot=True))

    async def _ack(self, requests: AsyncIterator[source.AckRequest], context: Any) -> AsyncIterator[source.AckResponse]:
        assert (await anext(requests)).handshake.sot
        yield source.AckResponse(handshake=source.Handshake(sot=True))
        async for message in requests:
            if self.breaks_acks:
                self.breaks_acks -= 1
                await context.abort(grpc.StatusCode.INTERNAL, "the store is down")
            if self.holds_acks:
                self.holds_acks -= 1
                continue
            offsets = message.request.offsets
            self.ack_requests.append(len(offsets))
            self.acknowledged += [each.offset for each in (offsets if self._takes_lists else offsets[-1:])]
            yield source.AckResponse(result=source.AckResponse.Result(success=Empty()))
