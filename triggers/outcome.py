"""What a micro-batch of one bus partition brings about."""

from dataclasses import dataclass, field

from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from triggers.events import Fired
from triggers.lookback import LookbackRequest
from triggers.udf.rows import FunctionInput

__all__ = ["TriggerOutput", "TriggerReport"]


@dataclass(frozen=True, slots=True)
class TriggerReport:
    """`state`: active (registered and running), suspended (with the reason) or removed."""

    trigger_id: str
    version: int
    state: str
    reason: str = ""


@dataclass(slots=True)
class TriggerOutput:
    """`late_rows`: per ticker the rows that came behind their watermark, or behind that of the rows of other tickers
    which a trigger takes together with them. `is_changed`: the state is another now.
    `lookbacks`: of triggers that begin with this call; `look_back` takes their rows before the next one. `functions`:
    rows that are not events yet, but go through the functions that their triggers name.
    """

    fired: list[Fired] = field(default_factory=list)
    reports: list[TriggerReport] = field(default_factory=list)
    lookbacks: list[LookbackRequest] = field(default_factory=list)
    functions: list[FunctionInput] = field(default_factory=list)
    late_rows: dict[str, int] = field(default_factory=dict)
    is_changed: bool = False

    @property
    def events(self) -> list[CEPTriggerEvent]:
        """What `fired` says."""
        return [CEPTriggerEvent.FromString(event.value) for event in self.fired]

    def withdraw(self, trigger_id: str) -> None:
        """A trigger that is gone takes no past rows."""
        self.lookbacks = [request for request in self.lookbacks if request.trigger_id != trigger_id]
