"""Commands to clients, for operators: `python -m gateways.rocketmq` with `clients`, `stack` or `verify`.

A command travels over the bus to the gateway that the client polls, and its answer returns the same way.
"""

import argparse
import time
import uuid
from collections.abc import Sequence
from typing import Any

from bus.api import Bus, Log
from bus.messaging import Messaging
from candlewright.wire.errors import InvalidRequest
from gateways.rocketmq.clients.clients import TABLE_CLIENTS, TABLE_REPORTS, mailbox
from gateways.rocketmq.clients.members import Client
from gateways.rocketmq.messages import messages
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

_LOOK_SECONDS = 0.1


def run(arguments: Sequence[str], bus: Bus, queue: Messaging) -> str:
    """The text to print. Raises InvalidRequest, BusError."""
    asked = _parser().parse_args(arguments)
    if asked.what == "clients":
        return "\n".join(sorted(map(_described, bus.items(TABLE_CLIENTS).values())))
    command_id = uuid.uuid4().hex
    command = service.PollCommandResponse()
    if asked.what == "stack":
        command.print_thread_stack_trace_command.command_id = command_id
    else:
        command.verify_message_consumption_command.command_id = command_id
        command.verify_message_consumption_command.message.CopyFrom(
            _message(bus, asked.topic, asked.partition, asked.offset)
        )
    # Unrequested reports are not kept.
    bus.put(TABLE_REPORTS, {command_id: b""}, keep_seconds=asked.timeout + 60.0)
    queue.post(mailbox(asked.client), command.SerializeToString(), asked.timeout)
    give_up = time.monotonic() + asked.timeout
    while time.monotonic() < give_up:
        (report,) = bus.get(TABLE_REPORTS, [command_id])
        if report:
            return report.decode(errors="replace")
        time.sleep(_LOOK_SECONDS)
    raise InvalidRequest(f"no answer from {asked.client} within {asked.timeout:g} s")


def _described(raw: bytes) -> str:
    client = Client.from_bytes(raw)
    kind = "consumer" if client.is_consumer else "producer"
    topics = ", ".join(sorted(client.subscriptions))
    return f"{client.client_id}\t{kind}\t{client.group}\t{topics}".rstrip()


def _message(bus: Log, topic: str, partition: int, offset: int) -> definition.Message:
    found = bus.read(topic, partition, offset, max_records=1)
    if not found:
        raise InvalidRequest(f"there is no message at {topic}, partition {partition}, offset {offset}")
    return messages.from_record(found[0], definition.Resource(name=topic), "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m gateways.rocketmq", description="Query clients of the RocketMQ gateway."
    )
    whats: Any = parser.add_subparsers(dest="what", required=True)
    whats.add_parser("clients", help="list live clients: id, kind, group, topics")
    stack = whats.add_parser("stack", help="show the stacks of a client's threads")
    verify = whats.add_parser("verify", help="have a consumer consume a message once more")
    for command in (stack, verify):
        command.add_argument("client")
        command.add_argument("--timeout", type=float, default=30.0)
    verify.add_argument("topic")
    verify.add_argument("partition", type=int)
    verify.add_argument("offset", type=int)
    return parser
