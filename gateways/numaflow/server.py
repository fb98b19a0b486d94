"""The source as a gateway: its socket, its info file, and the unary calls."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bus.api import Bus
from candlewright.wire.errors import BusError, ConfigurationError
from core.background import awaited_task
from core.settings_gateways import NumaflowSettings
from gateways.numaflow import listening, metrics, server_info
from gateways.numaflow.acks import Acks
from gateways.numaflow.feed import GroupFeed
from gateways.numaflow.group_calls import GroupCalls
from gateways.numaflow.message import MAX_MESSAGE_BYTES
from gateways.numaflow.reads import Reads
from gateways.numaflow.state import SourceState
from gateways.numaflow.streams import Context, Streams
from gateways.records import is_visible
from gateways.service import handlers_of
from protobuf import source_superset_pb2 as source

_PROBE_SECONDS = 2.0
_MAX_CALLS = 64


class NumaflowSource:
    """A `gateways.gateway.Gateway`."""

    name = "numaflow"

    def __init__(self, settings: NumaflowSettings, bus: Bus) -> None:
        """Raises ConfigurationError for topics that are hidden from gateways' clients."""
        hidden = [topic for topic in settings.topic if not is_visible(topic)]
        if hidden:
            raise ConfigurationError(f"gateways.numaflow.topic: no such topic: {', '.join(hidden)}")
        self._settings = settings
        self._socket = Path(settings.socket)
        self._info = Path(settings.server_info)
        self._feed = GroupFeed(
            bus, settings.topic, settings.group, consumer=settings.consumer, at_end=settings.start == "end"
        )
        self._calls = GroupCalls(self._feed)
        self._streams = Streams()
        self._state = SourceState(redeliver_seconds=settings.redeliver_seconds)
        self._acks = Acks(self._state, self._calls, self._streams)
        self._reads = Reads(self._state, self._calls, self._streams, acks=self._acks)
        self._probe: asyncio.Future[bool] | None = None
        self._server: grpc.aio.Server | None = None
        self._own_files: list[tuple[Path, tuple[int, int] | None]] = []

    async def start(self) -> None:
        await self._calls.open()
        listening.make_way(self._socket)
        # Readers would trust one left by a dead process.
        self._info.unlink(missing_ok=True)
        limits = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
        self._server = grpc.aio.server(options=limits, maximum_concurrent_rpcs=_MAX_CALLS)
        behaviours: Mapping[str, Callable[..., Any]] = {
            "ReadFn": self._reads.serve,
            "AckFn": self._acks.acknowledge,
            "NackFn": self._acks.refuse,
            "PendingFn": self._pending,
            "PartitionsFn": self._partitions,
            "IsReady": self._is_ready,
        }
        service = source.DESCRIPTOR.services_by_name["Source"]
        self._server.add_generic_rpc_handlers((handlers_of(service, behaviours),))
        try:
            self._server.add_insecure_port(f"unix:{self._socket}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._socket}: {error}") from error
        await self._server.start()
        self._own_files.append((self._socket, listening.identity(self._socket)))
        server_info.write(self._info, server_info.OURS)
        self._own_files.append((self._info, listening.identity(self._info)))

    async def stop(self) -> None:
        """Reads under way end with what they have; then acknowledgements get the grace time."""
        server, self._server = self._server, None
        if server is None:
            return
        self._streams.stopping.set()
        self._acks.wake()
        until = time.monotonic() + self._settings.grace_seconds
        while self._is_busy() and time.monotonic() < until:
            await asyncio.sleep(0.02)
        await server.stop(0.2)
        for path, own in self._own_files:
            with contextlib.suppress(OSError):
                listening.remove_own(path, own)
        await self._calls.leave()
        self._calls.close()

    def _is_busy(self) -> bool:
        streams = self._streams.open
        return streams["ReadFn"] > 0 or (streams["AckFn"] > 0 and self._state.outstanding > 0)

    def problems(self) -> tuple[str, ...]:
        return (self._calls.problem,) if self._calls.problem else ()

    def details(self) -> Mapping[str, Any]:
        return {
            "socket": str(self._socket),
            "server_info": str(self._info),
            "topics": list(self._settings.topic),
            "group": self._settings.group,
            "replica": self._settings.consumer,
            "partitions": self._feed.partition_ids,
            "outstanding": self._state.outstanding,
            "streams": dict(self._streams.open),
        }

    async def _pending(self, request: object, context: Context) -> source.PendingResponse:
        try:
            count = await self._calls.backlog()
        except BusError:
            metrics.BUS_FAILURES.labels("PendingFn").inc()
            count = -1
        return source.PendingResponse(result=source.PendingResponse.Result(count=count))

    async def _partitions(self, request: object, context: Context) -> source.PartitionsResponse:
        # Every replica reads all partitions.
        ids = self._feed.partition_ids
        return source.PartitionsResponse(
            result=source.PartitionsResponse.Result(partitions=ids, total_partitions=len(ids))
        )

    async def _is_ready(self, request: object, context: Context) -> source.ReadyResponse:
        # Numaflow takes any answer as ready, so "not ready" must be an error.
        if self._streams.stopping.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the source is stopping")
        if self._probe is None or self._probe.done():
            self._probe = awaited_task(self._calls.is_ready())
        try:
            is_ready = await asyncio.wait_for(asyncio.shield(self._probe), _PROBE_SECONDS)
        except (BusError, TimeoutError):
            is_ready = False
        if not is_ready:
            metrics.BUS_FAILURES.labels("IsReady").inc()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the bus or its consumer group is not available")
        return source.ReadyResponse(ready=True)
