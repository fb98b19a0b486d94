import asyncio

import pytest

from bus.api import Bus
from bus.connect import messaging_of
from candlewright.wire.errors import InvalidRequest
from gateways.rocketmq.cli import run
from protobuf.apache.rocketmq.v1 import service_pb2 as service
from tests.gateways.rocketmq.client import code
from tests.gateways.rocketmq.conftest import Start


def test_a_message_that_is_not_there_is_not_sent(bus: Bus) -> None:
    bus.create_topic("t", 1)
    with pytest.raises(InvalidRequest):
        run(["verify", "c", "t", "0", "0"], bus, messaging_of(bus))


def test_a_client_that_does_not_answer_is_named(bus: Bus) -> None:
    with pytest.raises(InvalidRequest, match="no answer from c"):
        run(["stack", "c", "--timeout", "0.01"], bus, messaging_of(bus))


async def test_commands_reach_a_client_and_its_answers_come_back(start: Start, bus: Bus) -> None:
    client = await start()
    await client.heartbeat("c", "g", "t")
    await client.send("t", b"body", 0)
    assert run(["clients"], bus, client.queue) == "c\tconsumer\tg\tt"

    stack = asyncio.create_task(asyncio.to_thread(run, ["stack", "c"], bus, client.queue))
    command = (await client.poll("c")).print_thread_stack_trace_command
    report = service.ReportThreadStackTraceRequest(command_id=command.command_id, thread_stack_trace="at main")
    assert code(await client.call("ReportThreadStackTrace", report)) == 0
    assert await asyncio.wait_for(stack, 5) == "at main"

    verify = asyncio.create_task(asyncio.to_thread(run, ["verify", "c", "t", "0", "0"], bus, client.queue))
    asked = (await client.poll("c")).verify_message_consumption_command
    assert asked.message.body == b"body"
    result = service.ReportMessageConsumptionResultRequest(command_id=asked.command_id)
    result.status.code, result.status.message = 13, "the listener failed"
    assert code(await client.call("ReportMessageConsumptionResult", result)) == 0
    assert await asyncio.wait_for(verify, 5) == "INTERNAL: the listener failed"
