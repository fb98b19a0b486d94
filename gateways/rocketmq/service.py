"""The methods of the service: access, how long a call is held, and its status."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
import grpc.aio

from candlewright.wire.errors import BusError, BusFull, BusUnavailable
from core.log import get_logger
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq.calls.pulling import Pulling
from gateways.rocketmq.calls.receiving import Receiving
from gateways.rocketmq.calls.sending import Sending
from gateways.rocketmq.calls.waiting import Waiting
from gateways.rocketmq.clients import members
from gateways.rocketmq.clients.clients import MAX_COMMAND_SECONDS, Clients, describe
from gateways.rocketmq.door import access
from gateways.rocketmq.door.endpoints import endpoints_of
from gateways.rocketmq.door.status import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    OK,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    Refused,
    common,
    name_of,
)
from gateways.rocketmq.messages.names import BROKER, group_of, is_writable, topic_of
from gateways.rocketmq.metrics import CALL_SECONDS, CALLS, FAILURES
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

log = get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request")
#: At most this much of a call's time is left when it is answered.
_MARGIN_SECONDS = 1.0
_MAX_ID_CHARACTERS = 1_024


class Service:
    def __init__(
        self,
        settings: RocketMQSettings,
        sending: Sending,
        receiving: Receiving,
        *,
        pulling: Pulling,
        clients: Clients,
        waiting: Waiting,
    ) -> None:
        self._settings = settings
        self._sending = sending
        self._receiving = receiving
        self._pulling = pulling
        self._clients = clients
        self._waiting = waiting

    def behaviours(self) -> Mapping[str, Callable[..., Awaitable[Any]]]:
        """Keyed by method, as `gateways.service.handlers_of` takes them."""
        methods: dict[str, tuple[type[Any], Callable[[Any, Context], Awaitable[Any]]]] = {
            "QueryRoute": (service.QueryRouteResponse, self._route),
            "Heartbeat": (service.HeartbeatResponse, self._heartbeat),
            "HealthCheck": (service.HealthCheckResponse, self._health),
            "SendMessage": (service.SendMessageResponse, lambda request, _: self._sending.send(request)),
            "QueryAssignment": (service.QueryAssignmentResponse, self._assignment),
            "ReceiveMessage": (service.ReceiveMessageResponse, self._receive),
            "AckMessage": (service.AckMessageResponse, lambda request, _: self._receiving.acknowledge(request)),
            "NackMessage": (service.NackMessageResponse, lambda request, _: self._receiving.refuse(request)),
            "ForwardMessageToDeadLetterQueue": (
                service.ForwardMessageToDeadLetterQueueResponse,
                lambda request, _: self._receiving.forward(request),
            ),
            "EndTransaction": (
                service.EndTransactionResponse,
                lambda request, _: self._sending.end_transaction(request),
            ),
            "QueryOffset": (service.QueryOffsetResponse, lambda request, _: self._pulling.offset(request)),
            "PullMessage": (service.PullMessageResponse, self._pull),
            "PollCommand": (service.PollCommandResponse, self._poll),
            "ReportThreadStackTrace": (service.ReportThreadStackTraceResponse, self._stack_trace),
            "ReportMessageConsumptionResult": (service.ReportMessageConsumptionResultResponse, self._consumption),
            "NotifyClientTermination": (
                service.NotifyClientTerminationResponse,
                self._terminate,
            ),
        }
        return {name: self._guarded(name, *method) for name, method in methods.items()}

    def _guarded(
        self, name: str, reply_class: type[Any], method: Callable[[Any, Context], Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        has_common = "common" in reply_class.DESCRIPTOR.fields_by_name

        async def call(request: Any, context: Context) -> Any:
            began = time.monotonic()
            code, text = OK, ""
            reply = None
            try:
                self._check_access(context)
                if len(getattr(request, "client_id", "")) > _MAX_ID_CHARACTERS:
                    raise Refused(INVALID_ARGUMENT, f"the client_id has more than {_MAX_ID_CHARACTERS} characters")
                reply = await method(request, context)
                code = reply.common.status.code if has_common else OK
            except Refused as error:
                code, text = error.code, error.text
            except BusFull as error:
                code, text = RESOURCE_EXHAUSTED, str(error)
            except BusUnavailable as error:
                # A receiver can distinguish a slow store from a gateway that is down, and retries immediately.
                code, text = DEADLINE_EXCEEDED if name == "ReceiveMessage" else UNAVAILABLE, str(error)
            except BusError as error:
                code, text = INTERNAL, str(error)
            except ValueError as error:
                # Invalid times and durations from a client.
                code, text = INVALID_ARGUMENT, str(error)
            except Exception:
                FAILURES.labels(name).inc()
                log.exception("rocketmq_call_failed", method=name)
                code, text = INTERNAL, "the gateway failed; see its log"
            CALLS.labels(name, name_of(code)).inc()
            CALL_SECONDS.labels(name).observe(time.monotonic() - began)
            if reply is not None:
                return reply
            if name == "PullMessage":
                # Clients continue from this offset whatever the status.
                return reply_class(common=common(code, text), next_offset=max(0, request.offset))
            if not has_common:
                # The only way to report it; clients then pause for a second.
                is_key = code == UNAUTHENTICATED
                await context.abort(grpc.StatusCode.UNAUTHENTICATED if is_key else grpc.StatusCode.UNAVAILABLE, text)
            return reply_class(common=common(code, text))

        return call

    def _check_access(self, context: Context) -> None:
        if self._settings.access_keys:
            pairs = context.invocation_metadata() or ()
            access.check({k: v for k, v in pairs if isinstance(v, str)}, self._settings.access_keys)

    def _hold_seconds(self, context: Context, wanted_seconds: float, most_seconds: float) -> float:
        """Zero means as long as allowed; otherwise clients would retry immediately."""
        hold = min(wanted_seconds, most_seconds) if wanted_seconds > 0 else most_seconds
        left = context.time_remaining()
        # Without a deadline there is nothing to limit.
        return hold if left is None else max(0.0, min(hold, left - min(_MARGIN_SECONDS, left / 4)))

    # ---- methods
    async def _route(self, request: service.QueryRouteRequest, _: Context) -> service.QueryRouteResponse:
        topic = topic_of(request.topic)
        endpoints = endpoints_of(request.endpoints, self._settings.advertise)
        count = await self._sending.partitions(topic)
        permission = definition.READ_WRITE if is_writable(topic) else definition.READ
        reply = service.QueryRouteResponse(common=common())
        for partition in range(count):
            reply.partitions.append(_partition(request.topic, partition, permission, endpoints))
        return reply

    async def _assignment(self, request: service.QueryAssignmentRequest, _: Context) -> service.QueryAssignmentResponse:
        topic, group = topic_of(request.topic), group_of(request.group)
        endpoints = endpoints_of(request.endpoints, self._settings.advertise)
        count = await self._sending.partitions(topic)
        clients = await self._clients.members(group)
        permission = definition.READ_WRITE if is_writable(topic) else definition.READ
        reply = service.QueryAssignmentResponse(common=common())
        for partition in members.assigned(clients, group, topic, client_id=request.client_id, partitions=count):
            reply.assignments.add().Partition.CopyFrom(_partition(request.topic, partition, permission, endpoints))
        return reply

    async def _heartbeat(self, request: service.HeartbeatRequest, _: Context) -> service.HeartbeatResponse:
        client = await self._clients.heartbeat(request)
        if client.is_consumer and not client.is_broadcasting and client.policy != definition.TARGET_TIMESTAMP:
            # So that a new group gets everything sent from now on.
            for topic in client.subscriptions:
                await self._sending.partitions(topic)
                await self._receiving.join(topic, client.group, client.policy)
        return service.HeartbeatResponse(common=common())

    async def _terminate(
        self, request: service.NotifyClientTerminationRequest, _: Context
    ) -> service.NotifyClientTerminationResponse:
        reply = await self._clients.terminate(request)
        self._waiting.look_again(request.client_id)
        return reply

    async def _health(self, request: service.HealthCheckRequest, _: Context) -> service.HealthCheckResponse:
        await self._sending.look()
        return service.HealthCheckResponse(common=common())

    async def _receive(
        self, request: service.ReceiveMessageRequest, context: Context
    ) -> service.ReceiveMessageResponse:
        hold = self._hold_seconds(context, request.await_time.ToMilliseconds() / 1_000, self._settings.poll_max_seconds)
        reply = await self._receiving.receive(request, hold)
        if reply.messages and context.done():
            await self._receiving.undeliver(reply)
        return reply

    async def _pull(self, request: service.PullMessageRequest, context: Context) -> service.PullMessageResponse:
        hold = self._hold_seconds(context, request.await_time.ToMilliseconds() / 1_000, self._settings.poll_max_seconds)
        return await self._pulling.pull(request, hold)

    async def _poll(self, request: service.PollCommandRequest, context: Context) -> service.PollCommandResponse:
        return await self._clients.poll(request, self._hold_seconds(context, 0.0, MAX_COMMAND_SECONDS))

    async def _stack_trace(
        self, request: service.ReportThreadStackTraceRequest, _: Context
    ) -> service.ReportThreadStackTraceResponse:
        await self._clients.report("stack", request.command_id, request.thread_stack_trace)
        return service.ReportThreadStackTraceResponse(common=common())

    async def _consumption(
        self, request: service.ReportMessageConsumptionResultRequest, _: Context
    ) -> service.ReportMessageConsumptionResultResponse:
        await self._clients.report("consumption", request.command_id, describe(request.status))
        return service.ReportMessageConsumptionResultResponse(common=common())


def _partition(
    topic: definition.Resource, id: int, permission: int, endpoints: definition.Endpoints
) -> definition.Partition:
    return definition.Partition(
        topic=topic,
        id=id,
        permission=definition.Permission.Name(permission),
        broker=definition.Broker(name=BROKER, id=0, endpoints=endpoints),
    )
