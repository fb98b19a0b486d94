"""A small client of the service, made from its descriptors; plaintext or TLS that trusts one certificate."""

import itertools
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from bus.messaging import Messaging
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

SERVICE = service.DESCRIPTOR.services_by_name["MessagingService"]
_ids = itertools.count(1)


class Client:
    """`await client.call("SendMessage", request)`; the rest are shorthands that name topics and groups as text."""

    def __init__(
        self, address: str, certificate: bytes | None = None, metadata: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.address = address
        #: The state that a gateway in this process keeps besides the bus, if there is one.
        self.queue: Messaging
        self.metadata = metadata
        # Otherwise the pauses between attempts to reach a killed gateway would grow.
        options = [("grpc.max_reconnect_backoff_ms", 300), ("grpc.max_receive_message_length", -1)]
        if certificate is None:
            self.channel = grpc.aio.insecure_channel(address, options)
        else:
            self.channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(certificate), options)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.channel.close()

    async def call(self, method: str, request: Any, timeout: float | None = 10.0) -> Any:
        reply_class = GetMessageClass(SERVICE.methods_by_name[method].output_type)
        send = self.channel.unary_unary(
            f"/{SERVICE.full_name}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply_class.FromString,
        )
        return await send(request, timeout=timeout, metadata=self.metadata, wait_for_ready=True)

    def endpoints(self) -> definition.Endpoints:
        host, _, port = self.address.rpartition(":")
        return definition.Endpoints(addresses=[definition.Address(host=host, port=int(port))])

    async def send(self, topic: str, body: bytes = b"x", partition: int | None = 0, **system: Any) -> Any:
        attributes = system.pop("user", {})
        system.setdefault("message_id", f"id-{next(_ids)}")
        request = service.SendMessageRequest(
            message=definition.Message(
                topic=definition.Resource(name=topic),
                body=body,
                user_attribute=attributes,
                system_attribute=definition.SystemAttribute(**system),
            )
        )
        if partition is not None:
            request.partition.id = partition
        return await self.call("SendMessage", request)

    async def receive(
        self,
        topic: str,
        group: str = "g",
        partition: int = -1,
        *,
        hold: float = 0.05,
        hide: float = 60.0,
        batch: int = 32,
        policy: str = "PLAYBACK",
        fifo: bool = False,
        tag: str = "",
        sql: str = "",
        client: str = "c",
        timeout: float | None = 10.0,
    ) -> Any:
        request = service.ReceiveMessageRequest(
            group=definition.Resource(name=group),
            client_id=client,
            partition=definition.Partition(topic=definition.Resource(name=topic), id=partition),
            batch_size=batch,
            fifo_flag=fifo,
            consume_policy=policy,
            filter_expression=definition.FilterExpression(
                type=definition.SQL if sql else definition.TAG, expression=sql or tag
            ),
        )
        request.invisible_duration.FromMilliseconds(round(hide * 1_000))
        request.await_time.FromMilliseconds(round(hold * 1_000))
        return await self.call("ReceiveMessage", request, timeout)

    async def ack(self, message: Any, topic: str, group: str = "g") -> Any:
        return await self.call("AckMessage", settling(service.AckMessageRequest, message, topic, group=group))

    async def nack(self, message: Any, topic: str, group: str = "g", *, attempt: int = 0, most: int = 17) -> Any:
        request = settling(service.NackMessageRequest, message, topic, group=group)
        request.delivery_attempt = attempt or message.system_attribute.delivery_attempt
        request.max_delivery_attempts = most
        return await self.call("NackMessage", request)

    async def forward(self, message: Any, topic: str, group: str = "g") -> Any:
        request = settling(service.ForwardMessageToDeadLetterQueueRequest, message, topic, group=group)
        return await self.call("ForwardMessageToDeadLetterQueue", request)

    async def heartbeat(
        self,
        client: str,
        group: str,
        topic: str = "",
        *,
        fifo: bool = False,
        tag: str = "*",
        most: int = 0,
        policy: str = "RESUME",
    ) -> Any:
        request = service.HeartbeatRequest(client_id=client, fifo_flag=fifo)
        if not topic:
            request.producer_data.group.name = group
            return await self.call("Heartbeat", request)
        data = request.consumer_data
        data.group.name = group
        data.consume_policy = definition.ConsumePolicy.Value(policy)
        data.dead_letter_policy.max_delivery_attempts = most
        entry = data.subscriptions.add()
        entry.topic.name = topic
        entry.expression.expression = tag
        return await self.call("Heartbeat", request)

    async def assigned(self, client: str, group: str, topic: str) -> list[int]:
        request = service.QueryAssignmentRequest(client_id=client, endpoints=self.endpoints())
        request.topic.name, request.group.name = topic, group
        reply = await self.call("QueryAssignment", request)
        assert reply.common.status.code == 0
        return [assignment.Partition.id for assignment in reply.assignments]

    async def route(self, topic: str) -> Any:
        request = service.QueryRouteRequest(topic=definition.Resource(name=topic), endpoints=self.endpoints())
        return await self.call("QueryRoute", request)

    async def offset(self, topic: str, policy: int, partition: int = 0, *, at_ms: int | None = None) -> Any:
        request = service.QueryOffsetRequest(
            partition=definition.Partition(topic=definition.Resource(name=topic), id=partition), policy=policy
        )
        if at_ms is not None:
            request.time_point.FromMilliseconds(at_ms)
        return await self.call("QueryOffset", request)

    async def pull(self, topic: str, offset: int, partition: int = 0, *, hold: float = 0.05, **options: Any) -> Any:
        request = service.PullMessageRequest(
            partition=definition.Partition(topic=definition.Resource(name=topic), id=partition),
            offset=offset,
            client_id="c",
            batch_size=options.get("batch", 32),
            filter_expression=definition.FilterExpression(expression=options.get("tag", "")),
        )
        request.await_time.FromMilliseconds(round(hold * 1_000))
        return await self.call("PullMessage", request)

    async def end(self, id: str, resolution: str = "COMMIT") -> Any:
        return await self.call(
            "EndTransaction", service.EndTransactionRequest(transaction_id=id, resolution=resolution)
        )

    async def poll(self, client: str, timeout: float = 10.0) -> Any:
        return await self.call("PollCommand", service.PollCommandRequest(client_id=client), timeout)


def settling(kind: Any, message: Any, topic: str, *, group: str) -> Any:
    return kind(
        group=definition.Resource(name=group),
        topic=definition.Resource(name=topic),
        client_id="c",
        receipt_handle=message.system_attribute.receipt_handle,
        message_id=message.system_attribute.message_id,
    )


def code(reply: Any) -> int:
    assert reply.HasField("common")
    assert reply.common.HasField("status")
    return int(reply.common.status.code)


def bodies(reply: Any) -> list[bytes]:
    assert code(reply) == 0
    return [message.body for message in reply.messages]
