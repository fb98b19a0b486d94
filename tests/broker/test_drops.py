"""Everything that the broker drops is counted, by kind."""

from itertools import count

import pytest

from broker import door
from broker.commands import Command, Dispatch, Note
from broker.events import Kind, SlotOffered, VenueLearned
from broker.metrics import NOTES
from broker.state import BrokerState
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from core.settings import BrokerSettings
from tests.broker.accepted import SECOND, START, accepted

NOW = START + 3_600 * SECOND


class Room:
    """A state whose connection `a` has a slot, and the notes that its frames leave."""

    def __init__(self) -> None:
        numbers = count()
        self.state = BrokerState(BrokerSettings(), lambda: f"{next(numbers):032x}", 0.0, wall_ns=NOW)
        self.state.handle(VenueLearned("TEST", 1_000, 0))
        self.state.handle(SlotOffered(b"a", ("TEST",), (Kind.HISTORICAL,), 0.0))

    def hear(self, message: ing.WorkComplete | ing.WorkReject | ing.DataResponse | cw.TickBatch) -> list[Command]:
        return self.state.handle(door.event_of(b"a", frames.encode(message), 1.0, wall_ns=NOW))

    def notes(self, message: ing.WorkComplete | ing.WorkReject | ing.DataResponse | cw.TickBatch) -> list[str]:
        return [command.what for command in self.hear(message) if isinstance(command, Note)]


def test_ticks_of_a_ticker_without_a_job_are_counted_by_that_name() -> None:
    batch = cw.TickBatch(ticker="A/B.TEST", timestamp=[NOW], price=[1.0], size=[1.0], trade_id=["1"])
    assert Room().notes(batch) == ["ticks_without_job"]
    assert "ticks_without_job" in NOTES


@pytest.mark.parametrize("kind", ["complete", "failure", "reject", "candles"])
def test_frames_of_a_job_that_was_called_complete_are_counted(kind: str) -> None:
    room = Room()
    (job,) = (command for command in room.state.handle(accepted(minutes=1)) if isinstance(command, Dispatch))
    row = cw.OHLCV(open_time=START, open=1, high=1, low=1, close=1, volume=1).SerializeToString()
    candles = ing.DataResponse(request_id="r", ohlc_data=[row])
    assert room.notes(candles) == []
    assert room.notes(ing.WorkComplete(job_id=job.job_id, success=True)) == []
    again = {
        "complete": ing.WorkComplete(job_id=job.job_id, success=True),
        "failure": ing.WorkComplete(job_id=job.job_id, success=False),
        "reject": ing.WorkReject(job_id=job.job_id),
        "candles": candles,
    }
    assert room.notes(again[kind]) == ["late_frame"]
    assert "late_frame" in NOTES
