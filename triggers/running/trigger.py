"""A registered trigger, and what triggers have in common that may share a stream."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from candlewright_cep.streaming.slots import Lifted, Number
from protobuf import records_pb2 as records
from triggers.texts.alerts import engine_parameters
from triggers.texts.check import CompiledTrigger

__all__ = ["Common", "Pairs", "Text", "Trigger"]

#: Parameters by name, sorted by name.
Pairs = tuple[tuple[str, str], ...]
#: A trigger's SQL, its parameters, and the views that it reads.
Text = tuple[str, Pairs, Pairs]


@dataclass(kw_only=True, slots=True)
class Trigger:
    """One registration. Rows with numbers below `ticks_from`, `bars_from` and `events_from` precede it and are ignored.

    `fired`: by input and ticker the event time (ns) of the last event; `silent`: the last row of a silence that was
    reported. `registered_ns`: when it began here (wall clock); `asked_ns`: when its owner requested it.
    """

    trigger_id: str
    version: int
    sql: str
    parameters: dict[str, str]
    tickers: tuple[str, ...]
    ticks_from: int
    bars_from: int
    reason: str = ""
    events: int = 0
    suppressed: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)
    registered_ns: int = 0
    asked_ns: int = 0
    views: dict[str, str] = field(default_factory=dict)
    events_from: int = 0

    @classmethod
    def of(
        cls,
        registration: records.TriggerRegistration,
        tickers: Iterable[str],
        ticks_from: int,
        *,
        bars_from: int,
        now_ns: int,
        events_from: int = 0,
    ) -> "Trigger":
        """`tickers`: those of the registration that are in this partition."""
        return cls(
            trigger_id=registration.trigger_id,
            version=registration.version,
            sql=registration.sql,
            parameters=engine_parameters(registration.parameters),
            tickers=tuple(dict.fromkeys(tickers)),
            ticks_from=ticks_from,
            bars_from=bars_from,
            registered_ns=now_ns or registration.registered_at,
            asked_ns=registration.registered_at,
            views=dict(registration.views),
            events_from=events_from,
        )

    @property
    def is_active(self) -> bool:
        return not self.reason

    @property
    def text(self) -> Text:
        return self.sql, tuple(sorted(self.parameters.items())), tuple(sorted(self.views.items()))


@dataclass(frozen=True, slots=True)
class Common:
    """What triggers must have in common to share a stream (`key`), and the numbers in which they may differ (`numbers`,
    in the order of the slots).
    """

    key: str
    numbers: tuple[Number, ...]
    compiled: CompiledTrigger
    text: Text
    lifted: Lifted | None

    @classmethod
    def of(cls, compiled: CompiledTrigger, text: Text, *, is_alone: bool) -> "Common":
        lifted = None if is_alone else compiled.query.lifted()
        if lifted is None:
            return cls(repr(text), (), compiled, text, None)
        return cls(f"{lifted.key} {compiled.options}", lifted.values, compiled, text, lifted)

    def prepared(self) -> CompiledTrigger:
        """The query with slots in place of the numbers."""
        if self.lifted is None:
            return self.compiled
        return replace(self.compiled, query=self.compiled.query.with_slots(self.lifted))
