"""The gateway: a gRPC server and its background tasks."""

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bus.api import Bus
from bus.connect import messaging_of
from candlewright.wire.errors import ConfigurationError
from core.background import start_task
from core.log import get_logger
from core.settings_gateways import RocketMQSettings
from gateways.records import MAX_AHEAD_NS
from gateways.rocketmq.calls.pulling import Pulling
from gateways.rocketmq.calls.receiving import Receiving
from gateways.rocketmq.calls.sending import Sending
from gateways.rocketmq.calls.waiting import Waiting
from gateways.rocketmq.clients.clients import Clients
from gateways.rocketmq.door.certificate import key_and_certificate
from gateways.rocketmq.door.endpoints import host_and_port, reachable
from gateways.rocketmq.service import Service
from gateways.rocketmq.store import Store
from gateways.service import handlers_of
from protobuf.apache.rocketmq.v1 import service_pb2 as service

log = get_logger()

#: Above the largest body, so that a larger one gets a clear error.
_MAX_REQUEST_BYTES = 32 << 20
_GRACE_SECONDS = 3.0
_RESTART_SECONDS = 1.0
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    # Do not disconnect clients for sending keepalives.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class RocketMQGateway:
    """See `gateways.gateway.Gateway`. `keys`: the folder for a self-signed certificate; `partitions`: for new topics.

    Raises ConfigurationError for unusable settings.
    """

    name = "rocketmq"

    def __init__(
        self, settings: RocketMQSettings, bus: Bus, *, keys: Path, partitions: int, max_ahead_ns: int = MAX_AHEAD_NS
    ) -> None:
        self._settings = settings
        try:
            host, self._port = host_and_port(settings.bind)
            advertised = reachable(settings.advertise)[0] if settings.advertise else host
        except ValueError as error:
            raise ConfigurationError(f"gateways.rocketmq: {error}") from error
        self._host = host
        self._hosts = (advertised, host, "localhost", "127.0.0.1", socket.gethostname())
        self._keys = keys
        self._tasks: list[asyncio.Task[None]] = []
        self._store = Store(bus, messaging_of(bus))
        self._sending = Sending(settings, self._store, partitions, max_ahead_ns=max_ahead_ns)
        self._clients = Clients(settings, self._store)
        self._waiting = Waiting(self._store, settings.max_waiting_polls)
        self._receiving = Receiving(
            settings,
            self._store,
            self._sending,
            clients=self._clients,
            waiting=self._waiting,
            store_host=self._hosts[0],
        )
        self._pulling = Pulling(
            self._store, self._sending, clients=self._clients, waiting=self._waiting, store_host=self._hosts[0]
        )

    async def start(self) -> None:
        behaviours = Service(
            self._settings,
            self._sending,
            self._receiving,
            pulling=self._pulling,
            clients=self._clients,
            waiting=self._waiting,
        ).behaviours()
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            [handlers_of(service.DESCRIPTOR.services_by_name["MessagingService"], behaviours)]
        )
        try:
            self._port = self._listen()
        except RuntimeError as error:
            raise OSError(f"gateways.rocketmq: cannot listen on {self._settings.bind}: {error}") from error
        self._store.start()
        await self._server.start()
        for name, work in (
            ("later", self._sending.publish_later),
            ("clocks", self._sending.every_second),
            ("transactions", lambda: self._sending.ask_senders(self._clients.ask)),
            ("commands", self._clients.hand_out_commands),
        ):
            self._tasks.append(start_task(work, f"rocketmq {name}", restarts_after=_RESTART_SECONDS))

    async def stop(self) -> None:
        self._store.stop_watching()
        self._waiting.stop()
        self._clients.answer_all()
        await self._server.stop(_GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._receiving.drain()
        await self._store.stop()

    def problems(self) -> tuple[str, ...]:
        return (self._sending.problem,) if self._sending.problem else ()

    def details(self) -> Mapping[str, Any]:
        return {
            "address": f"{self._host}:{self._port}",
            "tls": self._settings.tls,
            "clients": self._clients.count,
            "waiting_polls": self._waiting.count,
        }

    def _listen(self) -> int:
        address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        if not self._settings.tls:
            return self._server.add_insecure_port(address)
        pair = key_and_certificate(self._keys, self._settings.tls_cert, self._settings.tls_key, hosts=self._hosts)
        try:
            return self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except ValueError as error:
            raise ConfigurationError(f"gateways.rocketmq: unusable certificate: {error}") from error
