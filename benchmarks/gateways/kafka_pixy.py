"""Messages per second through the Kafka-Pixy gateway on a real Redis, against a gRPC server that does nothing.

A client process keeps a fixed number of calls under way. First it produces messages, each answered once durable; then
it consumes them, each acknowledged before its answer is sent. The floor uses the same client, calls and message sizes
with a server of the same library that answers immediately.
"""

from typing import Any

import grpc.aio

from benchmarks.gateways.gateway_rounds import GROUP, TOPIC, Subject, timed_work
from gateways.service import handlers_of
from protobuf import kafkapixy_pb2 as pixy

#: No call is refused and no record held back.
_SETTINGS = {"CHANNEL_BUFFER_SIZE": "100000", "MAX_PENDING_MESSAGES": "100000"}
SUBJECT = Subject(
    "kafka_pixy",
    "benchmarks.gateways.kafka_pixy",
    "produce",
    "consume",
    {"produce": "produced", "consume": "consumed"},
    _SETTINGS,
)


def run(messages: int = 4_000, calls: int = 200, size: int = 100, *, rounds: int = 3) -> dict[str, Any]:
    """`rows`: messages produced in all rounds; `result_rows`: messages consumed exactly once."""
    return SUBJECT.compare(messages, calls, size, rounds=rounds)


async def _client(address: str, method: str, messages: int, calls: int, size: int, first: int) -> None:
    found: list[int] = []
    async with grpc.aio.insecure_channel(address) as channel:
        produce = channel.unary_unary("/KafkaPixy/Produce", pixy.ProdRq.SerializeToString, pixy.ProdRs.FromString)
        consume = channel.unary_unary(
            "/KafkaPixy/ConsumeNAck", pixy.ConsNAckRq.SerializeToString, pixy.ConsRs.FromString
        )
        numbers = iter(range(first, first + messages))

        async def work() -> None:
            for number in numbers:
                if method == SUBJECT.write:
                    message = b"%d " % number + bytes(size)
                    await produce(pixy.ProdRq(topic=TOPIC, key_value=b"%d" % number, message=message))
                else:
                    answer = await consume(pixy.ConsNAckRq(topic=TOPIC, group=GROUP, auto_ack=True))
                    found.append(int(answer.message.partition(b" ")[0]))

        await timed_work(channel, [work() for _ in range(calls)], found)


async def _answer(request: pixy.ProdRq, context: Any) -> pixy.ProdRs:
    return pixy.ProdRs(partition=1, offset=len(request.message))


def main() -> None:
    floor = handlers_of(pixy.DESCRIPTOR.services_by_name["KafkaPixy"], {"Produce": _answer})
    SUBJECT.main(__doc__ or "", _client, floor)


if __name__ == "__main__":
    main()
