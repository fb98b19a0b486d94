"""Clients: who is alive, what each reads, and the commands that wait for them.

All of it is kept on the bus, so that clients may talk to any of several gateways.
"""

import asyncio
import time

from google.rpc import code_pb2

from core.errors import BusError
from core.log import get_logger
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq import filters, state
from gateways.rocketmq.metrics import COMMANDS, CONFLICTS, FAILURES, REPORTS
from gateways.rocketmq.names import full_name, group_of, topic_of
from gateways.rocketmq.state import Client
from gateways.rocketmq.status import INVALID_ARGUMENT, Refused, common
from gateways.rocketmq.store import Store
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

log = get_logger()

TABLE_CLIENTS = "rocketmq_clients"
TABLE_REPORTS = "rocketmq_reports"
_REPORT_SECONDS = 3_600.0
_LETTER_SECONDS = 300.0
_FRESH_SECONDS = 1.0
_GONE_SECONDS = 120.0
#: How long calls of such a client are held, which do not end by themselves.
_GONE_PAUSE_SECONDS = 0.5
_COLLECT_SECONDS = 0.25
#: A command is answered before clients give the call up.
MAX_COMMAND_SECONDS = 50.0
_MAX_REPORT_BYTES = 1 << 20


def mailbox(client_id: str) -> str:
    return f"rocketmq:{client_id}"


class Clients:
    def __init__(self, settings: RocketMQSettings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._known: tuple[Client, ...] = ()
        self._known_at = float("-inf")
        self._polls: dict[str, asyncio.Future[bytes | None]] = {}
        #: The group that each of these named as its producer group.
        self._poll_groups: dict[str, str] = {}
        #: When those that said goodbye did: they still have calls under way.
        self._gone: dict[str, float] = {}

    async def live(self) -> tuple[Client, ...]:
        """As of a second ago at most, and with what came in through this gateway."""
        if time.monotonic() - self._known_at > _FRESH_SECONDS:
            rows = await self._store.run(self._store.bus.items, TABLE_CLIENTS)
            self._known = tuple(map(Client.from_bytes, rows.values()))
            self._known_at = time.monotonic()
        return self._known

    @property
    def count(self) -> int:
        return len(self._known)

    # ---- calls
    async def heartbeat(self, request: service.HeartbeatRequest) -> Client:
        """Raises Refused INVALID_ARGUMENT."""
        client = _client_of(request)
        others = [c for c in await self.live() if c.key != client.key]
        conflicts = state.conflicting(others, client)
        if conflicts and client not in self._known:
            CONFLICTS.inc()
            log.warning(
                "rocketmq_subscriptions_differ", group=client.group, client=client.client_id, topics=conflicts[:10]
            )
        await self._store.run(
            self._store.bus.put,
            TABLE_CLIENTS,
            {client.key: client.to_bytes()},
            keep_seconds=self._settings.client_expiry_seconds,
        )
        self._known = (*others, client)
        self._gone.pop(client.client_id, None)
        return client

    async def terminate(
        self, request: service.NotifyClientTerminationRequest
    ) -> service.NotifyClientTerminationResponse:
        if not request.client_id:
            raise Refused(INVALID_ARGUMENT, "the client_id is missing")
        # Both kinds: which arm of the group is set says little (push consumers set the producer's).
        gone = [c.key for c in await self.live() if c.client_id == request.client_id]
        if gone:
            await self._store.run(self._store.bus.delete, TABLE_CLIENTS, gone)
        self._known = tuple(c for c in self._known if c.client_id != request.client_id)
        oldest = time.monotonic() - _GONE_SECONDS
        self._gone = {id: at for id, at in self._gone.items() if at > oldest}
        self._gone[request.client_id] = time.monotonic()
        self._answer(request.client_id, None)
        return service.NotifyClientTerminationResponse(common=common())

    async def poll(self, request: service.PollCommandRequest, hold_seconds: float) -> service.PollCommandResponse:
        """A command for the client, or a no-op after `hold_seconds`."""
        client_id, group = request.client_id, request.producer_group
        if not client_id or self.is_gone(client_id):
            await asyncio.sleep(min(_GONE_PAUSE_SECONDS, hold_seconds))
            return service.PollCommandResponse(noop_command=service.NoopCommand())
        # A client that asks again has given its earlier call up.
        self._answer(client_id, None)
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._polls[client_id] = future
        self._poll_groups[client_id] = full_name(group) if group.name else ""
        try:
            letter = await asyncio.wait_for(asyncio.shield(future), hold_seconds)
        except TimeoutError:
            letter = future.result() if future.done() else None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and (lost := future.result()) is not None:
                await self._store.run(self._store.queue.post, mailbox(client_id), lost, _LETTER_SECONDS)
            raise
        finally:
            if self._polls.get(client_id) is future:
                del self._polls[client_id]
                del self._poll_groups[client_id]
        if letter is None:
            return service.PollCommandResponse(noop_command=service.NoopCommand())
        command = service.PollCommandResponse.FromString(letter)
        COMMANDS.labels(str(command.WhichOneof("type"))).inc()
        return command

    def is_gone(self, client_id: str) -> bool:
        """Whether the client said goodbye, and nothing was heard of it since."""
        return client_id in self._gone

    async def report(self, kind: str, command_id: str, text: str) -> None:
        """Keep what a client answered to a command, for whoever gave it."""
        if not command_id:
            raise Refused(INVALID_ARGUMENT, "the command_id is missing")
        REPORTS.labels(kind).inc()
        content = text.encode()[:_MAX_REPORT_BYTES]
        await self._store.run(self._store.bus.put, TABLE_REPORTS, {command_id: content}, keep_seconds=_REPORT_SECONDS)
        log.info("rocketmq_client_reported", kind=kind, command_id=command_id, characters=len(text))

    async def ask(self, group: str, message: definition.Message, transaction_id: str, asked: int) -> bool:
        """See `sending.Ask`. Producers of the group take turns."""
        clients = await self.live()
        found = state.producers(clients, group)
        # A producer that has just started asks for commands before its first heartbeat comes. Push consumers name
        # their group the same way.
        consumers = {client.client_id for client in clients if client.is_consumer}
        found += [id for id, polled in self._poll_groups.items() if polled == group and id not in {*found, *consumers}]
        if not found:
            return False
        command = service.PollCommandResponse()
        command.recover_orphaned_transaction_command.orphaned_transactional_message.CopyFrom(message)
        command.recover_orphaned_transaction_command.transaction_id = transaction_id
        # One that waits here is known to live; others may have just gone.
        waiting = [client for client in found if client in self._polls] or found
        await self.command(waiting[asked % len(waiting)], command)
        return True

    async def command(self, client_id: str, command: service.PollCommandResponse) -> None:
        await self._store.run(self._store.queue.post, mailbox(client_id), command.SerializeToString(), _LETTER_SECONDS)

    # ---- task
    async def hand_out_commands(self) -> None:
        """For ever: bring letters to the clients that wait here."""
        while True:
            waiting = [client for client, poll in self._polls.items() if not poll.done()]
            try:
                letters = (
                    await self._store.run(self._store.queue.collect, [mailbox(client) for client in waiting])
                    if waiting
                    else []
                )
                for client, letter in zip(waiting, letters, strict=True):
                    if letter is not None and not self._answer(client, letter):
                        # It hung up meanwhile, and will be back.
                        await self._store.run(self._store.queue.post, mailbox(client), letter, _LETTER_SECONDS)
            except BusError as error:
                FAILURES.labels("commands").inc()
                log.warning("rocketmq_commands_failed", error=str(error))
            await asyncio.sleep(_COLLECT_SECONDS)

    def answer_all(self) -> None:
        """So that nobody waits for a gateway that stops."""
        for client in list(self._polls):
            self._answer(client, None)

    def _answer(self, client_id: str, letter: bytes | None) -> bool:
        poll = self._polls.get(client_id)
        if poll is None or poll.done():
            return False
        poll.set_result(letter)
        return True


def _client_of(request: service.HeartbeatRequest) -> Client:
    if not request.client_id:
        raise Refused(INVALID_ARGUMENT, "the client_id is missing")
    if request.WhichOneof("client_data") == "producer_data":
        return Client(request.client_id, group_of(request.producer_data.group), is_consumer=False)
    if request.WhichOneof("client_data") is None:
        raise Refused(INVALID_ARGUMENT, "the heartbeat says neither what is produced nor what is consumed")
    data = request.consumer_data
    subscriptions = {}
    for entry in data.subscriptions:
        filters.filter_of(entry.expression)
        subscriptions[topic_of(entry.topic)] = (entry.expression.type, entry.expression.expression)
    return Client(
        request.client_id,
        group_of(data.group),
        is_consumer=True,
        is_fifo=request.fifo_flag,
        is_broadcasting=data.consume_model == definition.BROADCASTING,
        max_attempts=data.dead_letter_policy.max_delivery_attempts or state.DEFAULT_MAX_ATTEMPTS,
        policy=data.consume_policy,
        subscriptions=subscriptions,
    )


def describe(status: object) -> str:
    """A google.rpc.Status in words."""
    code = getattr(status, "code", 0)
    name = code_pb2.Code.Name(code) if code in code_pb2.Code.values() else str(code)
    return f"{name}: {getattr(status, 'message', '')}"
