"""The results of a micro-batch of one bus partition."""

from dataclasses import dataclass, field

from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from protobuf.records_pb2 import FunctionRows
from triggers.events.firings import Fired
from triggers.records.lookback import LookbackRequest

__all__ = ["TriggerOutput", "TriggerReport"]


@dataclass(frozen=True, slots=True)
class TriggerReport:
    """`state`: active (registered and running), suspended (with the reason) or removed."""

    trigger_id: str
    version: int
    state: str
    reason: str = ""


@dataclass(kw_only=True, slots=True)
class TriggerOutput:
    """The results of one micro-batch.

    `late_rows`: for each ticker the rows that arrived after their watermark, or after that of other tickers' rows which
    a trigger combines with them. `degraded_skips`: matches whose AFTER MATCH SKIP names a row that they do not have.
    `is_changed`: the state has changed. `lookbacks`: those of triggers that begin with
    this call; pass their rows to `look_back` before the next one. `functions`: rows that are not events yet, but input
    of the functions that their triggers name.
    """

    fired: list[Fired] = field(default_factory=list)
    reports: list[TriggerReport] = field(default_factory=list)
    lookbacks: list[LookbackRequest] = field(default_factory=list)
    functions: list[FunctionRows] = field(default_factory=list)
    late_rows: dict[str, int] = field(default_factory=dict)
    degraded_skips: int = 0
    is_changed: bool = False

    @property
    def events(self) -> list[CEPTriggerEvent]:
        """The serialised events of `fired`."""
        return [CEPTriggerEvent.FromString(event.value) for event in self.fired]

    def withdraw(self, trigger_id: str) -> None:
        """A removed trigger takes no past rows."""
        self.lookbacks = [request for request in self.lookbacks if request.trigger_id != trigger_id]
