"""A relay with a minimal trigger engine, which fires on command."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as pb
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from tests.candlewright.client.test_twins import Relay

TICKER = "BTC/USDT.BINANCE"
INVALID = "INVALID_SQL 1:8: unknown column 'pric' (did you mean 'price'?)"
START = 1_704_067_200_000_000_000


def event(trigger_id: str, number: int, event_id: str = "") -> ing.CEPTriggerEvent:
    """A match of two columns; the time of the second is exact to the nanosecond."""
    values = (
        ing.FieldValue(double_val=70_000.5 + number),
        ing.FieldValue(timestamp_val=START + number),
        ing.FieldValue(),
    )
    return ing.CEPTriggerEvent(
        trigger_id=trigger_id,
        timestamp=START + number,
        schema=ing.ResultSchema(
            column_names=["price", "seen_at", "note"], column_types=["DOUBLE", "TIMESTAMP_LTZ(9)", "STRING"]
        ),
        rows=[ing.ResultRow(values=[value.SerializeToString() for value in values])],
        context={
            "event_id": event_id or f"e{number}",
            "ticker": TICKER,
            "match_number": str(number),
            "sequence": str(number),
        },
    )


@dataclass(kw_only=True)
class TriggerRelay(Relay):
    """`on_register`: how many events a registration causes before its answer, and whether they are missed; `refusal`:
    the answer ERROR; `warnings`: of every registration; `suspends`: why each is suspended immediately, which is
    repeated to later subscribers; `costs`: partitions, bytes and steps of each; `slow`: waiting rows, lag and cost of a
    row; `trades`: how many of TICKER are kept.
    """

    on_register: int = 0
    is_unseen: bool = False
    refusal: str = ""
    warnings: str = ""
    suspends: str = ""
    costs: tuple[int, int, int] = (0, 0, 0)
    slow: tuple[int, int, int] = (0, 0, 0)
    page: int = 3
    trades: int = 0
    triggers: dict[str, ing.CEPTriggerRequest] = field(default_factory=dict)
    events: dict[str, list[ing.CEPTriggerEvent]] = field(default_factory=dict)

    def fire(self, trigger_id: str, count: int = 1, *, is_unseen: bool = False, event_id: str = "") -> None:
        """May be called from a thread other than the sockets' only while the requests are quiet."""
        own = self.events.setdefault(trigger_id, [])
        for _ in range(count):
            own.append(event(trigger_id, len(own) + 1, event_id))
            if not is_unseen:
                self._publisher.send_multipart([f"TRIGGER:{trigger_id}".encode(), *frames.encode(own[-1])])

    def _answer(self, peer: bytes, message: object) -> None:
        if isinstance(message, ing.CEPTriggerRequest):
            self._send(peer, self._register(message))
        elif isinstance(message, pb.TriggerRemove):
            self._send(peer, self._remove(message.trigger_id))
        elif isinstance(message, pb.TriggerQuery):
            names = sorted(name for name in self.triggers if name > message.after_trigger_id)
            wanted = [message.trigger_id] if message.trigger_id else names
            infos = [self._info(self.triggers[each]) for each in wanted if each in self.triggers]
            page = infos[: self.page]
            self._send(peer, pb.TriggerList(triggers=page, has_more=len(page) < len(infos)))
        elif isinstance(message, pb.TopicReplay) and message.topic.startswith(("TRIGGER:", "TICKS:")):
            self._replay(peer, message)
        else:
            super()._answer(peer, message)

    def _register(self, request: ing.CEPTriggerRequest) -> ing.CEPTriggerAck:
        ack = ing.CEPTriggerAck(trigger_id=request.trigger_id)
        if "pric " in request.sql_pattern:
            ack.status, ack.error_message = ing.CEPTriggerAck.INVALID_SQL, INVALID
        elif self.refusal:
            ack.status, ack.error_message = ing.CEPTriggerAck.ERROR, self.refusal
        elif self.triggers.get(request.trigger_id) == request:
            ack.status = ing.CEPTriggerAck.ALREADY_REGISTERED
        else:
            self.triggers[request.trigger_id] = request
            ack.error_message = self.warnings
            self.fire(request.trigger_id, self.on_register, is_unseen=self.is_unseen)
            if self.suspends:
                self._suspend(request.trigger_id)
        return ack

    def _look_at_subscriptions(self) -> None:
        while self.suspends and self._publisher.poll(0):
            subscription = self._publisher.recv()
            trigger_id = subscription[1:].decode().removeprefix("TRIGGER:")
            if subscription[0] and trigger_id in self.triggers:
                self._suspend(trigger_id)

    def _suspend(self, trigger_id: str) -> None:
        error = pb.Error(
            code="TRIGGER_SUSPENDED",
            text=self.suspends,
            request_id=trigger_id,
            newest_sequence=len(self.events.get(trigger_id, ())),
            registered_at=START,
        )
        self._publisher.send_multipart([f"TRIGGER:{trigger_id}".encode(), *frames.encode(error)])

    def _remove(self, trigger_id: str) -> ing.CEPTriggerAck:
        if self.triggers.pop(trigger_id, None) is None:
            return ing.CEPTriggerAck(trigger_id=trigger_id, status=ing.CEPTriggerAck.ERROR, error_message="unknown")
        return ing.CEPTriggerAck(trigger_id=trigger_id)

    def _info(self, request: ing.CEPTriggerRequest) -> pb.TriggerInfo:
        return pb.TriggerInfo(
            trigger_id=request.trigger_id,
            sql_pattern=request.sql_pattern,
            tickers=request.tickers,
            parameters=request.parameters,
            state="suspended" if self.suspends else "active",
            reason=self.suspends,
            registered_at=START,
            events=len(self.events.get(request.trigger_id, ())),
            partitions=self.costs[0],
            kept_bytes=self.costs[1],
            steps=self.costs[2],
            waiting_rows=self.slow[0],
            behind_ns=self.slow[1],
            row_ns=self.slow[2],
        )

    def _replay(self, peer: bytes, query: pb.TopicReplay) -> None:
        """Each trade took a microsecond to the ingestor, and was on the bus with its event after a millisecond."""
        kept: Sequence[Message] = self.events.get(query.topic.removeprefix("TRIGGER:"), [])
        if query.topic == f"TICKS:{TICKER}":
            times = [START + number for number in range(1, self.trades + 1)]
            kept = [pb.TickBatch(ticker=TICKER, timestamp=[time], received_at=[time + 1_000]) for time in times]
        if query.from_sequence > len(kept):
            error = pb.Error(
                code="NOT_KEPT",
                topic=query.topic,
                from_sequence=query.from_sequence,
                newest_sequence=len(kept),
            )
            self._send(peer, error)
            return
        last = min(query.to_sequence or len(kept), len(kept))
        for number in range(query.from_sequence, last + 1):
            body = frames.encode_body(kept[number - 1])
            at = START + 1_000_000
            own = pb.TopicRecord(
                topic=query.topic, sequence=number, body=body, is_final=number == last, published_at=at
            )
            self._send(peer, own)

    def _send(self, peer: bytes, message: object) -> None:
        self._router.send_multipart([peer, *frames.encode(message)])  # type: ignore[arg-type]


@contextmanager
def in_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TriggerRelay]:
    """A relay that commands in `folder` find."""
    relay = TriggerRelay()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CANDLEWRIGHT_CONFIG", raising=False)
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__REQUESTS_BIND", relay.requests)
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND", relay.notifications)
    try:
        yield relay
    finally:
        relay.close()
