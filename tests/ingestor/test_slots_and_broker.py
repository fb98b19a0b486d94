"""The slot counts of broker and ingestor, side by side: they must agree after every job."""

from itertools import count

import pytest

from broker import door as broker_door
from broker.commands import Command, Dispatch, SendHeartbeats, StopWork
from broker.events import ClockTicked, RealtimeAccepted, SnapshotAccepted, VenueLearned
from broker.state import BrokerState
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from core.settings import BrokerSettings
from ingestor import commands as ingestor_commands
from ingestor import door
from ingestor import events as ingestor_events
from ingestor.state import IngestorState, SlotPlan

NOW_NS = 1_700_000_000_000_000_000
DEADLINE_NS = NOW_NS + 3_600_000_000_000
PLAN = SlotPlan(venues=("BINANCE",), historical=2, realtime=3)


class Pair:
    """One broker and one ingestor that exchange encoded frames."""

    def __init__(self, settings: BrokerSettings | None = None) -> None:
        numbers = count()
        self.broker = BrokerState(settings or BrokerSettings(), lambda: f"{next(numbers):032x}", 0.0, wall_ns=NOW_NS)
        self.broker.handle(VenueLearned("BINANCE", candles_per_page=1_000, depth_candles=0))
        self.ingestor = IngestorState(PLAN)
        self.ingestor.handle(ingestor_events.Started(0.0))
        self.to_broker(self.ingestor.handle(ingestor_events.VenueReady("BINANCE", 0.0)))

    def to_broker(self, commands: list[ingestor_commands.Command], at: float = 1.0) -> list[Command]:
        said: list[Command] = []
        for command in commands:
            if isinstance(command, ingestor_commands.Send):
                event = broker_door.event_of(b"peer", frames.encode(command.message), at, wall_ns=NOW_NS)
                said += self.broker.handle(event)
        return said

    def run(self, commands: list[Command]) -> int:
        """Give the dispatches among `commands` to the ingestor, whose jobs succeed; returns how many there were."""
        jobs = 0
        for command in commands:
            if isinstance(command, Dispatch):
                message = door.message_of([frames.VERSION, broker_door.dispatch_body(command)])
                assert isinstance(message, ing.DataRequest)
                self.ingestor.handle(door.dispatch_of(1, message, 1.0))
                prices = cw.Snapshot(ticker=message.ticker, request_id=message.request_id)
                self.to_broker(self.ingestor.handle(ingestor_events.JobSucceeded(command.job_id, (prices,), 1.0)))
                jobs += 1
        return jobs

    def broker_slots(self) -> dict[str, int]:
        return {name: free for name, free in self.broker.slots.counts().items() if free}


@pytest.mark.parametrize("snapshots", [1, 2, 10])
def test_snapshots_leave_every_slot_to_its_offered_kind(snapshots: int) -> None:
    pair = Pair()
    assert pair.broker_slots() == pair.ingestor.offered() == {"BINANCE:historical": 2, "BINANCE:realtime": 3}
    for number in range(snapshots):
        accepted = SnapshotAccepted(
            request_id=f"s{number}",
            ticker="BTC/USDT.BINANCE",
            venue="BINANCE",
            client_id="client",
            deadline_ns=DEADLINE_NS,
            offset=number,
        )
        assert pair.run(pair.broker.handle(accepted)) == 1
        assert pair.broker_slots() == pair.ingestor.offered() == {"BINANCE:historical": 2, "BINANCE:realtime": 3}


@pytest.mark.parametrize("lease_seconds", [0.6, 2.0, 60.0])
def test_a_job_keeps_its_lease_though_the_ingestor_has_another_setting(lease_seconds: float) -> None:
    pair = Pair(BrokerSettings(lease_seconds=lease_seconds))
    wanted = RealtimeAccepted(
        request_id="r",
        ticker="BTC/USDT.BINANCE",
        venue="BINANCE",
        client_id="client",
        include_ohlc=False,
        ohlc_period_seconds=(),
    )
    (dispatch,) = (command for command in pair.broker.handle(wanted) if isinstance(command, Dispatch))
    message = door.message_of([frames.VERSION, broker_door.dispatch_body(dispatch)])
    assert isinstance(message, ing.DataRequest)
    pair.ingestor.handle(door.dispatch_of(1, message, 0.0))
    pair.ingestor.handle(ingestor_events.JobExpects(dispatch.job_id, 1_000.0))
    for tick in range(1, 301):
        at = tick / 10
        said = pair.broker.handle(ClockTicked(at, NOW_NS + tick * 100_000_000))
        assert not any(isinstance(command, StopWork) for command in said)
        pair.to_broker(pair.ingestor.handle(ingestor_events.Ticked(at)), at)
        for _ in (command for command in said if isinstance(command, SendHeartbeats)):
            pair.ingestor.handle(ingestor_events.Heard(1, at))
            pair.to_broker(pair.ingestor.handle(ingestor_events.HeartbeatCame(1, at)), at)
