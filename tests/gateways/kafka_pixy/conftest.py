"""A Kafka-Pixy gateway on a bus, and a client of it, in one event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import pytest

from bus.api import Bus
from core.settings_gateways import KafkaPixySettings
from gateways.kafka_pixy.server import KafkaPixy
from protobuf import kafkapixy_pb2 as pixy
from tests.fresh_bus import FreshBus

_ANSWERS = {"Produce": pixy.ProdRs, "ConsumeNAck": pixy.ConsRs, "Ack": pixy.AckRs}
Scenario = Callable[["Client", Bus], Awaitable[None]]


class Client:
    """Calls methods by name; a failed call raises grpc.aio.AioRpcError."""

    def __init__(self, channel: grpc.aio.Channel, address: str = "") -> None:
        self._channel = channel
        self.address = address

    def call(self, method: str, request: Any, **options: Any) -> Any:
        answer = _ANSWERS[method]
        stub = self._channel.unary_unary(
            f"/KafkaPixy/{method}", lambda message: message.SerializeToString(), answer.FromString
        )
        return stub(request, **options)

    async def produce(self, topic: str, message: bytes, key: bytes | None = b"", **fields: Any) -> pixy.ProdRs:
        request = pixy.ProdRq(topic=topic, message=message, key_value=key or b"", key_undefined=key is None, **fields)
        return await self.call("Produce", request)  # type: ignore[no-any-return]

    def consume(self, topic: str, group: str, **fields: Any) -> Any:
        return self.call("ConsumeNAck", pixy.ConsNAckRq(topic=topic, group=group, **fields))

    async def ack(self, topic: str, group: str, partition: int, *, offset: int) -> None:
        await self.call("Ack", pixy.AckRq(topic=topic, group=group, partition=partition, offset=offset))


class Refusal:
    code: grpc.StatusCode | None = None
    text: str | None = None


async def refused(call: Any) -> Refusal:
    """The error of a failed call; its code is OK if the call succeeded."""
    found = Refusal()
    found.code = grpc.StatusCode.OK
    try:
        await call
    except grpc.aio.AioRpcError as error:
        found.code, found.text = error.code(), error.details()
    return found


async def served(
    scenario: Callable[..., Awaitable[None]], bus: Bus, settings: Sequence[Mapping[str, Any]]
) -> list[KafkaPixy]:
    """Run `scenario` with a client for each of the gateways of these settings; they are stopped afterwards."""
    gateways = [
        KafkaPixy(
            KafkaPixySettings(**{"enabled": True, "bind": "127.0.0.1:0", "long_polling_seconds": 0.3, **own}), bus
        )
        for own in settings
    ]
    channels = []
    try:
        for gateway in gateways:
            await gateway.start()
            channels.append(grpc.aio.insecure_channel(gateway.details()["address"]))
        clients = [
            Client(channel, gateway.details()["address"]) for channel, gateway in zip(channels, gateways, strict=True)
        ]
        await asyncio.wait_for(scenario(*clients), 20)
    finally:
        for channel in channels:
            await channel.close()
        for gateway in gateways:
            await gateway.stop()
    return gateways


@pytest.fixture
def bus() -> Bus:
    return FreshBus(partitions=4)


Serve = Callable[..., None]


@pytest.fixture
def serve(bus: Bus) -> Serve:
    """`serve(scenario, **settings)`; or with several gateways `serve(scenario, {...}, {...})`."""

    def run(scenario: Callable[..., Awaitable[None]], *several: Mapping[str, Any], **settings: Any) -> None:
        asyncio.run(served(scenario, bus, several or [settings]))

    return run
