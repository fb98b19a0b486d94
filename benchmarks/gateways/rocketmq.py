"""Messages per second through the RocketMQ gateway on a real Redis, against a gRPC server that does nothing.

A client process keeps a fixed number of calls under way. First it sends messages, each answered once durable; then it
receives them, 32 per call, and acknowledges each in a separate call. The floor uses the same client and calls with a
server of the same library that answers a send immediately. Connections are plaintext, so that TLS is not measured.
"""

import asyncio
from typing import Any

import grpc.aio

from benchmarks.gateways.gateway_rounds import GROUP as GROUP_NAME
from benchmarks.gateways.gateway_rounds import TOPIC as TOPIC_NAME
from benchmarks.gateways.gateway_rounds import Subject, timed_work
from gateways.rocketmq.door.status import common
from gateways.service import handlers_of
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

TOPIC, GROUP = definition.Resource(name=TOPIC_NAME), definition.Resource(name=GROUP_NAME)
SERVICE = service.DESCRIPTOR.services_by_name["MessagingService"]
_RECEIVERS, _BATCH = 8, 32
SUBJECT = Subject(
    "rocketmq",
    "benchmarks.gateways.rocketmq",
    "send",
    "receive",
    {"send": "sent", "receive": "received"},
    {"TLS": "false"},
)


def run(messages: int = 4_000, calls: int = 200, size: int = 100, *, rounds: int = 3) -> dict[str, Any]:
    """`rows`: messages sent in all rounds; `result_rows`: messages received exactly once."""
    return SUBJECT.compare(messages, calls, size, rounds=rounds)


class _Calls:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        prefix = f"/{SERVICE.full_name}/"
        self.send = channel.unary_unary(
            f"{prefix}SendMessage",
            service.SendMessageRequest.SerializeToString,
            service.SendMessageResponse.FromString,
        )
        self.receive = channel.unary_unary(
            f"{prefix}ReceiveMessage",
            service.ReceiveMessageRequest.SerializeToString,
            service.ReceiveMessageResponse.FromString,
        )
        self.acknowledge = channel.unary_unary(
            f"{prefix}AckMessage", service.AckMessageRequest.SerializeToString, service.AckMessageResponse.FromString
        )


async def _client(address: str, method: str, messages: int, calls: int, size: int, first: int) -> None:
    found: list[int] = []
    async with grpc.aio.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        made = _Calls(channel)
        numbers = iter(range(first, first + messages))

        async def send() -> None:
            for number in numbers:
                request = service.SendMessageRequest(
                    message=definition.Message(
                        topic=TOPIC,
                        body=b"%d " % number + bytes(size),
                        system_attribute=definition.SystemAttribute(message_id=str(number), partition_id=number % 4),
                    )
                )
                assert (await made.send(request)).common.status.code == 0

        async def receive() -> None:
            request = service.ReceiveMessageRequest(
                group=GROUP,
                client_id="bench",
                partition=definition.Partition(topic=TOPIC, id=-1),
                batch_size=_BATCH,
            )
            request.await_time.FromMilliseconds(100)
            while len(found) < messages:
                batch = (await made.receive(request)).messages
                found.extend(int(message.body.partition(b" ")[0]) for message in batch)
                await asyncio.gather(*(acknowledge(message.system_attribute.receipt_handle) for message in batch))

        async def acknowledge(handle: str) -> None:
            request = service.AckMessageRequest(group=GROUP, topic=TOPIC, receipt_handle=handle)
            assert (await made.acknowledge(request)).common.status.code == 0

        work = [send() for _ in range(calls)] if method == SUBJECT.write else [receive() for _ in range(_RECEIVERS)]
        await timed_work(channel, work, found)


async def _answer(request: service.SendMessageRequest, context: Any) -> service.SendMessageResponse:
    return service.SendMessageResponse(common=common(), message_id=request.message.system_attribute.message_id)


def main() -> None:
    SUBJECT.main(__doc__ or "", _client, handlers_of(SERVICE, {"SendMessage": _answer}))


if __name__ == "__main__":
    main()
