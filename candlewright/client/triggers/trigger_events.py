"""Events of triggers as the user gets them, and their layout in the messages of their topic."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError, Message

from candlewright.client.notebook.cards import card, rows
from candlewright.wire import streams
from candlewright.wire.errors import BadFrame
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, FieldValue
from candlewright.wire.times import format_nanoseconds

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

#: The values of a column: times are exact, in ns since the epoch (UTC); NULL is None.
Value = str | int | float | bool | bytes | None
Row = dict[str, Value]

#: Events that are remembered to drop duplicates.
KNOWN_EVENTS = 10_000


@dataclass(kw_only=True, frozen=True, slots=True)
class TriggerEvent:
    """A trigger has fired. `time`: event time of the match's last row, in ns since the epoch.

    `rows` has one row a match, or several with ALL ROWS PER MATCH; `columns` are their names in order, `column_types`
    the Flink SQL names of their types. `event_id` stays the same if the event is delivered again; `sequence` is its
    number
    on the topic `TRIGGER:{trigger_id}`; `match_number` is None for triggers without MATCH_RECOGNIZE.
    """

    trigger_id: str
    event_id: str
    ticker: str
    time: int
    match_number: int | None
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    column_types: tuple[str, ...]
    context: Mapping[str, str]
    sequence: int

    @property
    def row(self) -> Row:
        """The single row; raises ValueError for an event of several."""
        if len(self.rows) != 1:
            raise ValueError(f"event {self.event_id} has {len(self.rows)} rows: read `rows`")
        return self.rows[0]

    @classmethod
    def from_message(cls, message: CEPTriggerEvent) -> "TriggerEvent":
        """Raises BadFrame for values that cannot be read."""
        names, kinds = tuple(message.schema.column_names), tuple(message.schema.column_types)
        context = dict(message.context)
        number = context.get("match_number", "")
        return cls(
            trigger_id=message.trigger_id,
            event_id=context.get("event_id", ""),
            ticker=context.get("ticker", ""),
            time=message.timestamp,
            match_number=int(number) if _is_number(number) else None,
            rows=tuple(_row(names, kinds, row.values) for row in message.rows),
            columns=names,
            column_types=kinds,
            context=context,
            sequence=_sequence(message),
        )

    def _repr_html_(self) -> str:
        facts = [self.ticker, format_nanoseconds(self.time), f"event {self.sequence}"]
        return card(self.trigger_id, facts, rows(self.columns, [_shown(self, row) for row in self.rows]))


class Events(tuple[TriggerEvent, ...]):
    """Events that were collected: a tuple that a notebook shows as a table, and that becomes a frame.

    The frame has a row for each row of an event: `event_id`, `fired_at` and `ticker`, then the trigger's own columns.
    """

    __slots__ = ()

    def to_arrow(self) -> "pa.Table":
        import pyarrow as pa

        kinds: dict[str, str] = {}
        for event in self:
            kinds |= dict(zip(event.columns, event.column_types, strict=True))
        found = [(event, row) for event in self for row in event.rows]
        own = {
            "event_id": pa.array([event.event_id for event, _ in found], pa.string()),
            "fired_at": pa.array([event.time for event, _ in found], pa.timestamp("ns", "UTC")),
            "ticker": pa.array([event.ticker for event, _ in found], pa.string()),
        }
        values = {
            name: pa.array([row.get(name) for _, row in found], _arrow_type(kind)) for name, kind in kinds.items()
        }
        return pa.table(own | {name: column for name, column in values.items() if name not in own})

    def to_pandas(self) -> "pd.DataFrame":
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def __repr__(self) -> str:
        return f"<Events {len(self)}>"

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(["fired_at", "ticker", *(name for event in self for name in event.columns)]))
        found = [
            {"fired_at": format_nanoseconds(event.time), "ticker": event.ticker} | _shown(event, row)
            for event in self
            for row in event.rows
        ]
        about = f"{len(self):,} event{'' if len(self) == 1 else 's'}"
        return card(", ".join(sorted({event.trigger_id for event in self})), [about], rows(names, found))


def _arrow_type(kind: str) -> "pa.DataType | None":
    """The Arrow type of a Flink SQL type; None leaves the choice to the values."""
    import pyarrow as pa

    simple = {"STRING": pa.string(), "DOUBLE": pa.float64(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_()}
    return pa.timestamp("ns", "UTC") if kind.startswith("TIMESTAMP") else simple.get(kind)


def _shown(event: TriggerEvent, row: Row) -> dict[str, object]:
    """Times as text."""
    kinds = dict(zip(event.columns, event.column_types, strict=True))
    return {
        name: format_nanoseconds(value) if kinds[name].startswith("TIMESTAMP") and isinstance(value, int) else value
        for name, value in row.items()
    }


class TriggerEvents:
    """The topic `TRIGGER:{trigger_id}`; an event that was published twice is delivered once."""

    def __init__(self, trigger_id: str) -> None:
        self.topic = streams.trigger(trigger_id)
        self._known: OrderedDict[str, None] = OrderedDict()

    def span(self, message: Message) -> tuple[int, int] | None:
        number = _sequence(message) if isinstance(message, CEPTriggerEvent) else 0
        return (number, 1) if number else None

    def items(self, message: Message, skipped: int) -> Iterator[TriggerEvent]:
        assert isinstance(message, CEPTriggerEvent)
        event = TriggerEvent.from_message(message)
        if event.event_id in self._known:
            return
        if event.event_id:
            self._known[event.event_id] = None
            if len(self._known) > KNOWN_EVENTS:
                self._known.popitem(last=False)
        yield event


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _sequence(message: CEPTriggerEvent) -> int:
    text = message.context.get("sequence", "")
    return int(text) if _is_number(text) else 0


def _row(names: Sequence[str], kinds: Sequence[str], values: Sequence[bytes]) -> Row:
    if not len(names) == len(kinds) == len(values):
        raise BadFrame("MALFORMED", f"a row of {len(values)} values for {len(names)} columns of {len(kinds)} types")
    return {name: _value(kind, value) for name, kind, value in zip(names, kinds, values, strict=True)}


def _value(kind: str, data: bytes) -> Value:
    """The column's type decides if the wire is ambiguous: a whole number may be a DOUBLE."""
    try:
        field = FieldValue.FromString(data)
    except DecodeError as error:
        raise BadFrame("MALFORMED", f"a value of type {kind} cannot be read") from error
    member = field.WhichOneof("value")
    if member is None:
        return None
    value: str | int | float | bool | bytes = getattr(field, member)
    if kind in ("DOUBLE", "FLOAT") and member == "int_val":
        return float(value)
    return value
