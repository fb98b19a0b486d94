"""Each message gets exactly one answer, whatever a client sends and whatever the bus does."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as hyp

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay import commands as do
from relay import events as ev
from relay.asked import Peer
from relay.settings import SECOND_NS
from relay.state import RelayState
from tests.relay.harness import HOUR, START, config, submit

NOW = 1_800_000_000 * SECOND_NS
IDS = hyp.sampled_from(["a", "b", "", "x#1"])
TIMES = hyp.sampled_from([0, START, START + HOUR, START // SECOND_NS, 2**64 - 1])
TICKERS = hyp.sampled_from(["BTC/USDT.BINANCE", "BTC/USD.NOSUCH", "nonsense", ""])
PERIODS = hyp.sampled_from([0, 60, 61])
FIELDS = {"request_id": IDS, "ticker": TICKERS, "start_time": TIMES, "end_time": TIMES, "period_seconds": PERIODS}
MESSAGES = hyp.one_of(
    hyp.builds(submit, IDS, limit=hyp.sampled_from([None, 0, 5]), client_id=hyp.sampled_from([None, "", "c"])),
    hyp.builds(ing.SubmitHistoricalRequest, **FIELDS),
    hyp.builds(ing.DataRequest, request_id=IDS, ticker=TICKERS, type=hyp.integers(0, 3)),
    hyp.builds(ing.OHLCRequest, **FIELDS),
    hyp.builds(ing.IngestorControl, action=hyp.integers(0, 4), request_id=IDS),
    hyp.builds(ing.CEPTriggerRequest, trigger_id=IDS),
    hyp.builds(cw.TriggerQuery, trigger_id=IDS),
    hyp.builds(cw.TriggerRemove, trigger_id=IDS),
    hyp.builds(cw.RequestStateQuery, request_id=IDS),
    hyp.builds(cw.VenueQuery, venue=hyp.sampled_from(["", "BINANCE", "NOSUCH"])),
    hyp.builds(ing.WorkerReady),
)
FINALS = hyp.builds(ing.HistoryReadyNotification, request_id=IDS.filter(bool), status=hyp.integers(0, 3))


class World:
    """Carries commands out against dictionaries; `works` says which calls of the bus succeed."""

    def __init__(self, works: hyp.DataObject) -> None:
        self.state = RelayState(config())
        self.requests: dict[str, rec.Request] = {}
        self.finals: dict[str, ing.HistoryReadyNotification] = {}
        self.replies: Counter[bytes] = Counter()
        self.queued: list[str] = []
        self._works = works

    def handle(self, event: ev.Event) -> None:
        for command in self.state.handle(event):
            if isinstance(command, do.Reply):
                self.replies[command.peer.identity] += 1
                if getattr(command.message, "notification_topic", "") and not command.message.status:  # type: ignore[attr-defined]
                    self.queued.append(command.message.request_id)  # type: ignore[attr-defined]
            elif isinstance(command, do.ReadRows) or (isinstance(command, do.AskTriggers) and self._accepts()):
                self.replies[command.peer.identity] += 1
            elif isinstance(command, do.AskTriggers):
                self.handle(ev.CommandFailed(command, "BUSY", "No."))
            elif not isinstance(command, do.Announce):
                works = self._works.draw(hyp.booleans())
                self.handle(self._outcome(command) if works else ev.CommandFailed(command, "X", "No."))

    def _accepts(self) -> bool:
        """Decide whether there is room for a question about triggers."""
        return self._works.draw(hyp.booleans())

    def _outcome(self, command: Any) -> ev.Event:
        if isinstance(command, do.Enqueue):
            request_id = command.submission.body.request_id
            known = self.requests.setdefault(request_id, command.submission.request)
            return ev.Enqueued(command.submission, known is command.submission.request, known)
        if isinstance(command, do.LookUp):
            request_id = command.request_id
            found = self.requests.get(request_id), None, self.finals.get(request_id)
            return ev.LookedUp(command.purpose, request_id, *found)
        if isinstance(command, do.PublishControl):
            return ev.ControlPublished(command.peer, command.control)
        assert isinstance(command, do.ListVenues)
        return ev.VenuesListed(command.peer, command.query, {})


@given(hyp.lists(hyp.one_of(MESSAGES, FINALS), max_size=30), hyp.booleans(), hyp.data())
def test_each_message_gets_one_answer(steps: list[Any], is_req: bool, works: hyp.DataObject) -> None:
    world = World(works)
    sent: dict[bytes, Any] = {}
    for number, step in enumerate(steps):
        if isinstance(step, ing.HistoryReadyNotification):
            if step.request_id in world.requests and step.request_id not in world.finals:
                world.finals[step.request_id] = step
                world.handle(ev.FinalArrived(step))
            continue
        identity = b"%d" % number
        sent[identity] = step
        world.handle(ev.MessageReceived(Peer(identity, is_req), step, NOW))
    world.handle(ev.TimePassed(NOW + 2 * HOUR))
    assert not world.state.waiting
    for identity, message in sent.items():
        is_cancel = isinstance(message, ing.IngestorControl) and message.action == ing.IngestorControl.CANCEL
        # A DEALER's cancellation is answered by the final notification.
        assert world.replies[identity] in ((0, 1) if is_cancel and not is_req else (1,)), message
    assert max(Counter(world.queued).values(), default=1) == 1
