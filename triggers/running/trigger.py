"""A registered trigger, and what triggers have in common that may share a stream."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from candlewright_cep.matching.glance import Glance
from candlewright_cep.planning.plans import Match
from candlewright_cep.streaming import glances
from candlewright_cep.streaming.slots import Lifted, Number
from protobuf import records_pb2 as records
from triggers.texts.alerts import engine_parameters
from triggers.texts.check import CompiledTrigger

__all__ = ["Common", "Pairs", "Text", "Trigger", "glance_of", "text_of"]

#: Parameters by name, sorted by name.
Pairs = tuple[tuple[str, str], ...]
#: A trigger's SQL, its parameters, and the views that it reads.
Text = tuple[str, Pairs, Pairs]


def text_of(written: Sequence[Any]) -> Text:
    """A text that was saved as JSON; that of an older version has no views."""
    sql, parameters, views = (*written, [])[:3]
    return sql, _pairs(parameters), _pairs(views)


def _pairs(written: Sequence[Sequence[str]]) -> Pairs:
    return tuple((name, value) for name, value in written)


@dataclass(kw_only=True, slots=True)
class Trigger:
    """One registration. Rows with numbers below `ticks_from`, `bars_from` and `events_from` precede it and are ignored.

    `fired`: by input and ticker the event time (ns) of the last event; `silent`: the last row of a silence that was
    reported. `registered_ns`: when it began here (wall clock); `asked_ns`: when its owner requested it. `place`: in the
    order of registration.
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
    place: int = 0

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

    def first_row(self, compiled: CompiledTrigger) -> int:
        """The number of the first row of the input that it may see."""
        if compiled.is_on_events:
            return self.events_from
        return self.bars_from if compiled.is_on_bars else self.ticks_from

    @property
    def text(self) -> Text:
        return self.sql, tuple(sorted(self.parameters.items())), tuple(sorted(self.views.items()))


@dataclass(frozen=True, slots=True)
class Common:
    """What triggers must have in common to share a stream (`key`), and the numbers in which they may differ (`numbers`,
    in the order of the slots). `views`: the number of nodes and the key of each view that is computed once for all
    triggers that read it, innermost first.
    """

    key: str
    numbers: tuple[Number, ...]
    compiled: CompiledTrigger
    text: Text
    lifted: Lifted | None
    views: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, compiled: CompiledTrigger, text: Text, *, is_alone: bool, shares_views: bool | None = None) -> "Common":
        """`shares_views`: None if it may decide."""
        views = () if shares_views is False else _views(compiled)
        if shares_views is None and views and not is_alone and _rests(compiled, views[-1][0]):
            views = ()
        # A view has its own numbers for all that read it.
        count = views[-1][0] if views else 0
        lifted = None if is_alone else compiled.query.lifted(since=count)
        if lifted is None:
            return cls(repr(text), (), compiled, text, None, views)
        key = f"{lifted.key} {compiled.options}"
        return cls(f"{key} {count}" if views else key, lifted.values, compiled, text, lifted, views)

    def prepared(self) -> CompiledTrigger:
        """The query with slots in place of the numbers."""
        return self.compiled if self.lifted is None else _with_slots(self.compiled, self.lifted)


def glance_of(compiled: CompiledTrigger) -> Glance | None:
    """For a text that shares its stream: tells whether new rows can matter; None if it must be fed every row."""
    if compiled.runs_alone or compiled.is_stateless or compiled.options.revisions:
        return None
    return glances.glance_of(compiled.query)


def _rests(compiled: CompiledTrigger, count: int) -> bool:
    """Whether the rows that matter to a pattern after a view of `count` nodes are decided from the input, together with
    other patterns.
    """
    if any(isinstance(node, Match) for node in compiled.query.nodes[:count]):
        return False
    lifted = compiled.query.lifted()
    return lifted is not None and glance_of(_with_slots(compiled, lifted)) is not None


def _with_slots(compiled: CompiledTrigger, lifted: Lifted) -> CompiledTrigger:
    return replace(compiled, query=compiled.query.with_slots(lifted))


def _views(compiled: CompiledTrigger) -> tuple[tuple[int, str], ...]:
    query, options = compiled.query, compiled.options
    keys = [(count, query.key_of(count)) for count in compiled.shared]
    fed = compiled.is_stateless, options.period_seconds, options.revisions
    return tuple((count, f"{key} {fed}") for count, key in keys if key is not None)
