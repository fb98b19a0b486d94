"""Requests for triggers and views: what events and commands of `relay.triggers.state` have in common."""

from dataclasses import dataclass

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from relay.asked import Peer

Ack = ing.CEPTriggerAck


@dataclass(frozen=True, slots=True)
class RegisterAsked:
    """`request` has the form that `relay.triggers.requests.clean` returns."""

    peer: Peer
    request: ing.CEPTriggerRequest
    at_ns: int

    @property
    def trigger_id(self) -> str:
        return self.request.trigger_id


@dataclass(frozen=True, slots=True)
class ViewAsked:
    """`request` was accepted by `relay.triggers.requests.check_view`."""

    peer: Peer
    request: cw.ViewRequest
    at_ns: int
