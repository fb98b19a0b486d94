"""Checks a registered trigger: its text against the real inputs, its options; collects warnings."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import pyarrow as pa

from bus.api import partition_of
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import Diagnosis, Limits, StreamInput, StreamQuery, TriggerRejected, compile_stream, diagnose
from candlewright_cep.binding.binder import closest
from candlewright_cep.binding.recovery import reworded
from candlewright_cep.planning.doubts import OfTickers
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.plans import (
    Filter,
    Group,
    Join,
    Match,
    Narrowed,
    Plan,
    Project,
    Renamed,
    Scan,
    Union,
)
from candlewright_cep.streaming.stages.stages import is_lookup
from candlewright_cep.syntax.tokens import TokenKind, tokenize
from core.settings import TriggersSettings
from triggers.events.chained import EVENTS, EVENTS_LABEL, TRIGGER_EVENTS, named_triggers
from triggers.texts.alerts import ALERT_PARAMETERS, AlertAsked, engine_parameters
from triggers.udf.asked import FunctionAsked

__all__ = [
    "INPUTS",
    "LIVE_INPUTS",
    "OPTIONS",
    "CheckedTrigger",
    "CompiledTrigger",
    "TriggerOptions",
    "TriggerRules",
    "check_trigger",
    "compile_trigger",
    "diagnose_trigger",
    "is_joint",
    "warnings_for",
]

_TIME = pa.timestamp("ns", "UTC")


def _texts(name: str, *values: str) -> pa.Field:
    """A column of these texts, so that a comparison with another one gets a warning."""
    return pa.field(name, pa.string(), metadata={"values": ",".join(values)})


#: The columns of the tables of the same names; times have the precision of the trades.
INPUTS = {
    "ticks": StreamInput(
        pa.schema(
            [
                ("ticker", pa.string()),
                ("trade_id", pa.string()),
                ("ts", _TIME),
                ("ts_ns", pa.int64()),
                ("price", pa.float64()),
                ("size", pa.float64()),
                _texts("side", "buy", "sell", "unknown"),
                ("received_at", _TIME),
            ]
        ),
        ("ts", "ts_ns"),
    ),
    "ohlc": StreamInput(
        pa.schema(
            [
                ("ticker", pa.string()),
                ("period_seconds", pa.int32()),
                ("open_time", _TIME),
                ("open", pa.float64()),
                ("high", pa.float64()),
                ("low", pa.float64()),
                ("close", pa.float64()),
                ("volume", pa.float64()),
                ("quote_volume", pa.float64()),
                ("trade_count", pa.int64()),
                _texts("source", "exchange", "ticks", "derived", "archive"),
                ("complete", pa.bool_()),
                ("updated_at", _TIME),
            ]
        ),
        ("open_time",),
        period_column="period_seconds",
    ),
}
#: The inputs of a running trigger. Over stored rows, `trigger_events` is a table like any other.
LIVE_INPUTS = INPUTS | {TRIGGER_EVENTS: EVENTS}
#: Errors of texts over trades that would be valid over bars, which were probably meant.
_OF_BARS = {
    f"unknown column '{name}'" for name in INPUTS["ohlc"].schema.names if name not in INPUTS["ticks"].schema.names
}
_ID_CHARACTERS = 200
_TICKERS = 10_000
_PARAMETERS = 100
_SECOND = 1_000_000_000
#: Parameters with a predefined meaning.
OPTIONS = {
    "period_seconds": "only bars of this period; a bare condition then reads ohlc",
    "revisions": "true: a corrected bar is a further row",
    "cooldown_seconds": "suppress further events of a ticker for this long after one, in event time",
    "deadman_seconds": "fire when no row of a ticker has arrived for this long, by the platform's clock",
    "lookback_seconds": "the trigger first sees the rows of its tickers from this long before its registration",
}


@dataclass(kw_only=True, frozen=True, slots=True)
class TriggerRules:
    """Limits of triggers.

    `idle_ns`: quiet time after which a ticker's partition closes, 0 = never. `retained_rows`: kept rows per trigger and
    ticker. `kept_partitions`: kept PARTITION BY values per trigger. `partitions`: of the topics `ticks` and `ohlc`; 0 =
    one engine sees all tickers. `share_ns`: processor time of a step that a trigger may take before it alone falls
    behind, 0 = unlimited; `waiting_rows`: how many rows may then wait.
    """

    watermark_delay_ns: int = 0
    idle_ns: int = 0
    retained_rows: int = Limits().retained_rows
    max_triggers: int = 100_000
    partitions: int = 0
    kept_partitions: int = Limits().partitions
    share_ns: int = 0
    waiting_rows: int = 100_000
    #: Names that `alert_to` may use; None = not checked.
    destinations: frozenset[str] | None = None

    @classmethod
    def of(
        cls, settings: TriggersSettings, partitions: int = 0, destinations: frozenset[str] | None = None
    ) -> "TriggerRules":
        return cls(
            watermark_delay_ns=round(settings.watermark_delay_seconds * _SECOND),
            idle_ns=round(settings.idle_seconds * _SECOND),
            retained_rows=settings.max_rows_per_key,
            max_triggers=settings.max_triggers,
            partitions=partitions,
            kept_partitions=settings.max_partitions,
            waiting_rows=settings.max_waiting_rows,
            destinations=destinations,
        )


@dataclass(frozen=True, slots=True)
class TriggerOptions:
    """Options of a trigger; 0 = not given. `function`: the external function that its rows go through. A trigger with a
    function does not share its stream, so the function is not part of what triggers must have in common.
    """

    period_seconds: int = 0
    revisions: bool = False
    cooldown_ns: int = 0
    deadman_ns: int = 0
    lookback_ns: int = 0
    function: FunctionAsked | None = field(default=None, repr=False)

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "TriggerOptions":
        """Raises TriggerRejected for invalid values."""
        if not parameters:
            return cls()
        period = _seconds(parameters, "period_seconds")
        if period != int(period):
            raise TriggerRejected("the parameter period_seconds is not a whole number")
        revisions = parameters.get("revisions", "false").strip().lower()
        if revisions not in ("true", "false"):
            raise TriggerRejected("the parameter revisions is neither true nor false")
        cooldown, deadman, lookback = (
            round(_seconds(parameters, name) * _SECOND)
            for name in ("cooldown_seconds", "deadman_seconds", "lookback_seconds")
        )
        function = FunctionAsked.of(parameters)
        if function is not None and cooldown:
            raise TriggerRejected(
                "cooldown_seconds cannot be combined with udf: the function itself decides how often to emit events"
            )
        return cls(int(period), revisions == "true", cooldown, deadman, lookback, function)


def warnings_for(warnings: Sequence[str], tickers: Sequence[str]) -> tuple[str, ...]:
    """Those that apply to these tickers; none means all."""
    return tuple(warning for warning in warnings if not isinstance(warning, OfTickers) or warning.applies_to(tickers))


@dataclass(frozen=True)
class CompiledTrigger:
    """A compiled text and its options.

    `is_stateless`: each row decides alone, so nothing can happen without a row. `numbers_hold`: results carry the
    arrival numbers of the rows that they come from. `columns`: those of the input that it reads; None for all.
    """

    query: StreamQuery
    options: TriggerOptions
    is_stateless: bool
    numbers_hold: bool
    columns: frozenset[str] | None = None

    @cached_property
    def is_on_bars(self) -> bool:
        """Whether its results belong to bars; one that joins may also read trades."""
        return self.query.input_name == "ohlc"

    @cached_property
    def is_on_events(self) -> bool:
        """Whether it reads the events of triggers, and nothing else."""
        return self.query.joined is None and self.query.input_name == TRIGGER_EVENTS

    @cached_property
    def reads_events(self) -> bool:
        """Whether it reads the events of triggers, alone or in a join."""
        return self.is_on_events or EVENTS_LABEL in self.labels

    @property
    def sources(self) -> tuple[str, ...]:
        """The triggers whose events it reads; empty for the events of every trigger over trades and bars."""
        if self.query.joined is None:
            return named_triggers(self.query.nodes) if self.is_on_events else ()
        named = [named_triggers(nodes) for leaf, nodes in self.query.joined.inputs() if leaf.name == TRIGGER_EVENTS]
        return tuple(sorted({name for names in named for name in names})) if all(named) else ()

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """The inputs of a text that joins: 0 for trades, EVENTS_LABEL, otherwise the period of the bars; the input that
        its results belong to comes first. Empty for other texts.
        """
        if self.query.joined is None:
            return ()
        leaves = self.query.joined.leaves()
        return tuple(dict.fromkeys(EVENTS_LABEL if x.name == TRIGGER_EVENTS else x.period for x in leaves))

    @property
    def reads_trades(self) -> bool:
        return 0 in self.labels if self.labels else not (self.is_on_bars or self.is_on_events)

    @property
    def periods(self) -> tuple[int, ...]:
        """The periods of bars that it names; 0 if it names none."""
        return tuple(label for label in self.labels if label != EVENTS_LABEL) or (self.options.period_seconds,)

    @property
    def looks_back(self) -> bool:
        """Whether stored rows are used: a row that decides alone needs no past."""
        return self.options.lookback_ns > 0 and not self.is_stateless

    @property
    def shared_views(self) -> tuple[int, ...]:
        """`StreamQuery.views` that are computed once for all triggers."""
        return () if self._has_own_rows else self.query.views

    @property
    def shared(self) -> tuple[int, ...]:
        """`StreamQuery.shared`: what is computed once for all triggers."""
        return () if self._has_own_rows else self.query.shared

    @property
    def _has_own_rows(self) -> bool:
        """Rows of joins by time, events and a look-back come to each trigger in an order of its own, and a cooldown may
        need the rows one by one.
        """
        is_own = self.query.joined is not None or self.reads_events or self.looks_back
        if self.options.cooldown_ns:
            is_own |= takes_turns(self.query) or groups_rows(self.query)
        return is_own

    def warnings_for(self, tickers: Sequence[str]) -> tuple[str, ...]:
        """The warnings about its text; no tickers means all."""
        return warnings_for(self.query.warnings, tickers)

    @cached_property
    def runs_alone(self) -> bool:
        """Whether it shares its stream with no other trigger."""
        is_joined = self.query.joined is not None
        is_special = is_joined or self.is_on_events or self.options.function is not None
        return self.query.needs_merge or self.looks_back or is_special


@dataclass(frozen=True, slots=True)
class CheckedTrigger:
    """A valid trigger. `warnings`: for its acknowledgement. `is_joint`: it combines the rows of several bus partitions,
    so its id must be in TABLE_JOINT_TRIGGERS before its control is published. `function`: still to be checked
    against the operator's settings.
    """

    warnings: tuple[str, ...]
    is_joint: bool
    function: FunctionAsked | None = None


def check_trigger(
    request: CEPTriggerRequest,
    rules: TriggerRules | None = None,
    others: int = 0,
    *,
    views: Mapping[str, str] | None = None,
) -> CheckedTrigger:
    """Check a trigger that would run beside `others` registered ones. `views`: texts that it may read.

    Raises TriggerRejected for errors in the text and its parameters, InvalidRequest for everything else.
    """
    rules = rules or TriggerRules()
    if not 0 < len(request.trigger_id) <= _ID_CHARACTERS:
        raise InvalidRequest(f"a trigger needs an id of at most {_ID_CHARACTERS} characters")
    if others >= rules.max_triggers:
        raise InvalidRequest(f"{others} triggers are registered, {rules.max_triggers} are allowed")
    if len(request.tickers) > _TICKERS:
        raise InvalidRequest(f"a trigger names at most {_TICKERS} tickers; none at all means all")
    if any(not 0 < len(ticker) <= _ID_CHARACTERS for ticker in request.tickers):
        raise InvalidRequest(f"a ticker has 1 to {_ID_CHARACTERS} characters")
    if len(request.parameters) > _PARAMETERS:
        raise InvalidRequest(f"a trigger has at most {_PARAMETERS} parameters")
    compiled = compile_trigger(request.sql_pattern, dict(request.parameters), rules, views=views)
    if compiled.options.lookback_ns and not request.tickers:
        raise TriggerRejected(
            "lookback_seconds needs named tickers: the past of all tickers is not read",
            hint="name the tickers, or leave lookback_seconds out",
        )
    if request.trigger_id in compiled.sources:
        raise TriggerRejected("the trigger reads its own events", hint="name other triggers in trigger_id = '...'")
    function = compiled.options.function
    # The columns of a function's output are known only once it runs.
    columns = None if function is not None else [name for name, _ in compiled.query.columns]
    AlertAsked.of(request.parameters).check(columns, rules.destinations)
    unsaid = request.parameters.keys() - dict(() if function is None else function.parameters).keys()
    warnings = (*compiled.warnings_for(request.tickers), *_unused(request.sql_pattern, unsaid))
    if compiled.options.lookback_ns and not compiled.looks_back:
        warnings += ("lookback_seconds changes nothing: this text looks at one row alone",)
    return CheckedTrigger(warnings, is_joint(compiled, request.tickers, rules.partitions), function)


def diagnose_trigger(
    request: CEPTriggerRequest, rules: TriggerRules | None = None, views: Mapping[str, str] | None = None
) -> Diagnosis:
    """All errors of a trigger's text, or its warnings. Raises InvalidRequest for everything else."""

    def check(sql: str) -> tuple[str, ...]:
        asked = CEPTriggerRequest()
        asked.CopyFrom(request)
        asked.sql_pattern = sql
        return check_trigger(asked, rules, views=views).warnings

    return diagnose(request.sql_pattern, check)


def _unused(sql: str, parameters: Set[str]) -> tuple[str, ...]:
    """A sentence for each unused parameter: a misspelt name would otherwise be ignored silently."""
    named = {token.text for token in tokenize(sql, Limits()) if token.kind is TokenKind.PARAMETER}
    known = OPTIONS.keys() | ALERT_PARAMETERS | named
    found = sorted(parameters - known)
    hints = (closest(name, known) for name in found)
    return tuple(
        f"nothing uses the parameter {name[:60]}" + (f"; {hint}" if hint else "")
        for name, hint in zip(found, hints, strict=True)
    )


def takes_turns(query: StreamQuery) -> bool:
    """Whether results of several partitions of a ticker may be decided in any order."""
    return query.joined is None and not query.needs_merge and any(map(_decides_apart, query.nodes))


def _decides_apart(node: Plan) -> bool:
    if isinstance(node, Match):
        return len(node.recognize.partition) > 1
    looks_ahead = isinstance(node, Over) and (
        node.window.frame.upper.kind.endswith("FOLLOWING") or any(each.name == "LEAD" for each in node.functions)
    )
    return looks_ahead and isinstance(node, Over) and len(node.window.partition) > 1


def groups_rows(query: StreamQuery) -> bool:
    """Whether it has windows, several of which may end in one step."""
    return any(isinstance(node, Group) for node in query.nodes)


def is_joint(compiled: CompiledTrigger, tickers: Sequence[str], partitions: int) -> bool:
    """Whether rows of several of `partitions` are combined; no tickers means all."""
    if not compiled.query.needs_merge or partitions <= 1:
        return False
    return not tickers or len({partition_of(ticker.encode(), partitions) for ticker in tickers}) > 1


def compile_trigger(
    sql: str,
    parameters: Mapping[str, str],
    rules: TriggerRules,
    *,
    default_table: str = "",
    views: Mapping[str, str] | None = None,
    is_checked: bool = False,
) -> CompiledTrigger:
    """Compile a trigger's text.

    `default_table`: the input of a bare condition; if empty, it depends on `period_seconds`. `views`: the texts of
    views by name. `is_checked`: see `compile_stream`. Raises TriggerRejected.
    """
    values = tuple(sorted(engine_parameters(parameters).items()))
    return _compiled(
        sql,
        values,
        tuple(sorted((views or {}).items())),
        _limits(rules.retained_rows, rules.kept_partitions),
        partitions_close=rules.idle_ns > 0,
        default_table=default_table,
        is_checked=is_checked,
    )


@lru_cache
def _limits(retained_rows: int, partitions: int) -> Limits:
    return Limits(retained_rows=retained_rows, partitions=partitions)


@lru_cache(maxsize=256)
def _compiled(
    sql: str,
    parameters: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
    limits: Limits,
    *,
    partitions_close: bool,
    default_table: str,
    is_checked: bool,
) -> CompiledTrigger:
    values = dict(parameters)
    options = TriggerOptions.of(values)
    try:
        query = compile_stream(
            sql,
            LIVE_INPUTS,
            values,
            default_table=default_table or ("ohlc" if options.period_seconds else "ticks"),
            limits=limits,
            partitions_close=partitions_close,
            is_in_order=not options.revisions,
            period_seconds=options.period_seconds,
            views=dict(views),
            is_checked=is_checked,
        )
    except TriggerRejected as error:
        if options.period_seconds or "ohlc" in sql.lower():
            raise
        reworded(_about_bars)
        raise _about_bars(error) from error
    if query.joined is not None:
        _check_joined(options)
    elif query.input_name == TRIGGER_EVENTS:
        _check_chained(options)
    stateless = all(isinstance(node, Scan | Union | Filter | Project | Renamed | Narrowed) for node in query.nodes)
    joins = [node for node in query.nodes if isinstance(node, Join) and not is_lookup(node)]
    holds = not any(isinstance(node, Group) for node in query.nodes) and (query.joined is not None or not joins)
    is_stateless = stateless and not query.needs_merge
    # Past rows differ from live ones in columns that the text need not name.
    columns = None if options.lookback_ns else query.columns_read
    return CompiledTrigger(query, options, is_stateless, holds, columns)


def _about_bars(error: TriggerRejected) -> TriggerRejected:
    if error.message not in _OF_BARS:
        return error
    hint = "a column of bars: give the parameter period_seconds, such as 60, or write a SELECT FROM ohlc"
    return TriggerRejected(error.message, error.line, error.column, hint=hint)


def _check_chained(options: TriggerOptions) -> None:
    """Raises TriggerRejected for options that apply only to trades and bars."""
    asked = {
        "revisions": options.revisions,
        "deadman_seconds": options.deadman_ns > 0,
        "lookback_seconds": options.lookback_ns > 0,
        "udf": options.function is not None,
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise TriggerRejected(f"{name} is not possible for a text over {TRIGGER_EVENTS}")


def _check_joined(options: TriggerOptions) -> None:
    """Raises TriggerRejected for options that apply to a single input."""
    asked = {
        "revisions": options.revisions,
        "deadman_seconds": options.deadman_ns > 0,
        "lookback_seconds": options.lookback_ns > 0,
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise TriggerRejected(f"{name} is not possible for a text that joins inputs by time")


def _seconds(parameters: Mapping[str, str], name: str) -> float:
    text = parameters.get(name)
    if text is None:
        return 0
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value <= 10 * 366 * 86_400:
        raise TriggerRejected(f"the parameter {name} is not a number of seconds")
    return value
