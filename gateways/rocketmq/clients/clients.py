"""Clients: which are alive, what each reads, and the commands waiting for them.

All of this is kept on the bus, so that clients may talk to any of several gateways.
"""

import asyncio
import time

from google.protobuf.message import DecodeError
from google.rpc import code_pb2

from candlewright.wire.errors import BadFrame, BusError
from core.background import awaited_task
from core.log import get_logger
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq.clients.members import DEFAULT_MAX_ATTEMPTS, Client, conflicting, max_attempts, producers
from gateways.rocketmq.door.status import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, Refused, common
from gateways.rocketmq.messages import filters
from gateways.rocketmq.messages.names import full_name, group_of, topic_of
from gateways.rocketmq.metrics import COMMANDS, CONFLICTS, FAILURES, REPORTS
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
#: How long calls of a client that said goodbye are held.
_GONE_PAUSE_SECONDS = 0.5
_COLLECT_SECONDS = 0.25
#: A command call is answered before clients give it up.
MAX_COMMAND_SECONDS = 50.0
_MAX_REPORT_BYTES = 1 << 20
_MAX_SUBSCRIPTIONS = 1_000


def mailbox(client_id: str) -> str:
    return f"rocketmq:{client_id}"


class Clients:
    def __init__(self, settings: RocketMQSettings, store: Store) -> None:
        self._settings = settings
        self._store = store
        #: As stored in the table; unchanged rows are not parsed again.
        self._rows: dict[bytes, Client] = {}
        #: Keyed by group, then by key.
        self._members: dict[str, dict[str, Client]] = {}
        self._known_at = float("-inf")
        self._look: asyncio.Task[None] | None = None
        self._polls: dict[str, asyncio.Future[bytes | None]] = {}
        #: The group that each polling client named as its producer group.
        self._poll_groups: dict[str, str] = {}
        #: Polling clients whose mail has not been checked yet.
        self._new_polls: set[str] = set()
        #: When clients said goodbye, in that order: they still have calls under way.
        self._gone: dict[str, float] = {}

    async def members(self, group: str) -> list[Client]:
        """Live clients of `group`, at most a second out of date, and including what this gateway received."""
        if self._look is None and time.monotonic() - self._known_at > _FRESH_SECONDS:
            self._look = awaited_task(self._look_up())
        if self._look is not None:
            await asyncio.shield(self._look)
        return list(self._members.get(group, {}).values())

    async def _look_up(self) -> None:
        try:
            found = await self._store.run(self._store.bus.items, TABLE_CLIENTS)
            read = {row: self._rows.get(row) or _read(row) for row in found.values()}
            self._rows = {row: client for row, client in read.items() if client is not None}
            self._members = {}
            for client in self._rows.values():
                self._members.setdefault(client.group, {})[client.key] = client
            self._known_at = time.monotonic()
        finally:
            self._look = None

    async def max_attempts(self, group: str) -> int | None:
        """How often a message may be delivered; None if no member sets a limit."""
        return max_attempts(await self.members(group), group)

    @property
    def count(self) -> int:
        # Other threads call this too.
        return sum(map(len, list(self._members.values())))

    # ---- calls
    async def heartbeat(self, request: service.HeartbeatRequest) -> Client:
        """Raises Refused INVALID_ARGUMENT."""
        client = _client_of(request)
        members = await self.members(client.group)
        conflicts = conflicting(members, client)
        if conflicts and client not in members:
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
        self._members.setdefault(client.group, {})[client.key] = client
        self._gone.pop(client.client_id, None)
        return client

    async def terminate(
        self, request: service.NotifyClientTerminationRequest
    ) -> service.NotifyClientTerminationResponse:
        if not request.client_id:
            raise Refused(INVALID_ARGUMENT, "the client_id is missing")
        # Any group it names: which arm is set says little (push consumers set the producer's).
        rows = await self._store.run(self._store.bus.items, TABLE_CLIENTS)
        clients = map(_read, rows.values())
        keys = [client.key for client in clients if client is not None and client.client_id == request.client_id]
        await self._store.run(self._store.bus.delete, TABLE_CLIENTS, keys)
        for members in self._members.values():
            for key in keys:
                members.pop(key, None)
        now = time.monotonic()
        self._gone.pop(request.client_id, None)
        self._gone[request.client_id] = now
        while (oldest := next(iter(self._gone.items())))[1] < now - _GONE_SECONDS:
            del self._gone[oldest[0]]
        self._answer(request.client_id, None)
        return service.NotifyClientTerminationResponse(common=common())

    async def poll(self, request: service.PollCommandRequest, hold_seconds: float) -> service.PollCommandResponse:
        """A command for the client, or a no-op after `hold_seconds` without one."""
        client_id, group = request.client_id, request.producer_group
        if not client_id or self.is_gone(client_id):
            await asyncio.sleep(min(_GONE_PAUSE_SECONDS, hold_seconds))
            return service.PollCommandResponse(noop_command=service.NoopCommand())
        # A client that calls again has given up its earlier call.
        self._answer(client_id, None)
        if len(self._polls) >= self._settings.max_waiting_polls:
            raise Refused(RESOURCE_EXHAUSTED, f"{len(self._polls)} clients are already waiting for commands")
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._polls[client_id] = future
        self._new_polls.add(client_id)
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
        try:
            command = service.PollCommandResponse.FromString(letter)
        except DecodeError:
            FAILURES.labels("unreadable").inc()
            return service.PollCommandResponse(noop_command=service.NoopCommand())
        COMMANDS.labels(str(command.WhichOneof("type"))).inc()
        return command

    def is_gone(self, client_id: str) -> bool:
        """Whether the client said goodbye recently, and has not come back."""
        return time.monotonic() - self._gone.get(client_id, float("-inf")) < _GONE_SECONDS

    async def report(self, kind: str, command_id: str, text: str) -> None:
        """Keep a client's answer to a command, for its issuer."""
        if not command_id:
            raise Refused(INVALID_ARGUMENT, "the command_id is missing")
        REPORTS.labels(kind).inc()
        (asked,) = await self._store.run(self._store.bus.get, TABLE_REPORTS, [command_id])
        if asked is not None:
            content = {command_id: text.encode()[:_MAX_REPORT_BYTES] or b"-"}
            await self._store.run(self._store.bus.put, TABLE_REPORTS, content, keep_seconds=_REPORT_SECONDS)
        log.info("rocketmq_client_reported", kind=kind, command_id=command_id, characters=len(text))

    async def ask(self, group: str, message: definition.Message, transaction_id: str, *, asked: int) -> bool:
        """See `sending.Ask`. Producers of the group take turns."""
        clients = await self.members(group)
        found = producers(clients, group)
        # A new producer polls for commands before its first heartbeat arrives. Push consumers name their group the
        # same way.
        consumers = {client.client_id for client in clients if client.is_consumer}
        found += [id for id, polled in self._poll_groups.items() if polled == group and id not in {*found, *consumers}]
        if not found:
            return False
        command = service.PollCommandResponse()
        command.recover_orphaned_transaction_command.orphaned_transactional_message.CopyFrom(message)
        command.recover_orphaned_transaction_command.transaction_id = transaction_id
        # A client waiting here is certainly alive; others may have just gone.
        waiting = [client for client in found if client in self._polls] or found
        await self.command(waiting[asked % len(waiting)], command)
        return True

    async def command(self, client_id: str, command: service.PollCommandResponse) -> None:
        await self._store.run(self._store.queue.post, mailbox(client_id), command.SerializeToString(), _LETTER_SECONDS)

    # ---- task
    async def hand_out_commands(self) -> None:
        """Runs forever: delivers mail to the clients that wait here."""
        posted: int | None = None
        while True:
            try:
                posted = await self._collect(posted) if self._polls else posted
            except BusError as error:
                posted = None
                FAILURES.labels("commands").inc()
                log.warning("rocketmq_commands_failed", error=str(error))
            await asyncio.sleep(_COLLECT_SECONDS)

    async def _collect(self, before: int | None) -> int:
        """The number of letters ever posted. While it still equals `before`, only clients that have arrived since can
        have mail.
        """
        posted = await self._store.run(self._store.queue.posted)
        waiting = [client for client, poll in self._polls.items() if not poll.done()]
        if posted == before:
            waiting = [client for client in waiting if client in self._new_polls]
        self._new_polls.clear()
        letters = await self._store.run(self._store.queue.collect, [mailbox(client) for client in waiting])
        for client, letter in zip(waiting, letters, strict=True):
            if letter is not None and not self._answer(client, letter):
                # The client hung up meanwhile, and will be back.
                await self._store.run(self._store.queue.post, mailbox(client), letter, _LETTER_SECONDS)
        return posted

    def answer_all(self) -> None:
        """End waiting calls, so that no client waits for a stopping gateway."""
        for client in list(self._polls):
            self._answer(client, None)

    def _answer(self, client_id: str, letter: bytes | None) -> bool:
        poll = self._polls.get(client_id)
        if poll is None or poll.done():
            return False
        poll.set_result(letter)
        return True


def _read(row: bytes) -> Client | None:
    """None for a row that no gateway wrote."""
    try:
        return Client.from_bytes(row)
    except BadFrame:
        FAILURES.labels("unreadable").inc()
        return None


def _client_of(request: service.HeartbeatRequest) -> Client:
    if not request.client_id:
        raise Refused(INVALID_ARGUMENT, "the client_id is missing")
    if request.WhichOneof("client_data") == "producer_data":
        return Client(client_id=request.client_id, group=group_of(request.producer_data.group), is_consumer=False)
    if request.WhichOneof("client_data") is None:
        raise Refused(INVALID_ARGUMENT, "the heartbeat names neither producer nor consumer data")
    data = request.consumer_data
    if len(data.subscriptions) > _MAX_SUBSCRIPTIONS:
        raise Refused(INVALID_ARGUMENT, f"there are more than {_MAX_SUBSCRIPTIONS} subscriptions")
    most = data.dead_letter_policy.max_delivery_attempts
    subscriptions = {}
    for entry in data.subscriptions:
        filters.filter_of(entry.expression)
        subscriptions[topic_of(entry.topic)] = (entry.expression.type, entry.expression.expression)
    return Client(
        client_id=request.client_id,
        group=group_of(data.group),
        is_consumer=True,
        is_fifo=request.fifo_flag,
        is_broadcasting=data.consume_model == definition.BROADCASTING,
        max_attempts=most if most > 0 else DEFAULT_MAX_ATTEMPTS,
        policy=data.consume_policy,
        subscriptions=subscriptions,
    )


def describe(status: object) -> str:
    """A google.rpc.Status as text."""
    code = getattr(status, "code", 0)
    name = code_pb2.Code.Name(code) if code in code_pb2.Code.values() else str(code)
    return f"{name}: {getattr(status, 'message', '')}"
