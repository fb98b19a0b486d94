"""The interface of a function to the session that runs it, and what both know about points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from candlewright.wire.errors import CandlewrightError
from protobuf.udf_superset_pb2 import BeginBatch, EndBatch, Option, Point, Response, ValueType

__all__ = [
    "BOOL",
    "DURATION",
    "INT",
    "STRING",
    "Batch",
    "Function",
    "Options",
    "OptionsRefused",
    "field_of",
    "header_of",
    "number_of",
]

BOOL, INT, STRING, DURATION = ValueType.BOOL, ValueType.INT, ValueType.STRING, ValueType.DURATION
_MEMBERS = {
    ValueType.BOOL: "boolValue",
    ValueType.INT: "intValue",
    ValueType.DOUBLE: "doubleValue",
    ValueType.STRING: "stringValue",
    ValueType.DURATION: "durationValue",
}
Value = bool | int | float | str


class OptionsRefused(CandlewrightError):
    """Options that a function cannot work with; the text is shown to the user who enabled the task."""


@dataclass(frozen=True, slots=True)
class Batch:
    begin: BeginBatch
    points: Sequence[Point]
    end: EndBatch

    @classmethod
    def of(cls, begin: BeginBatch, points: Sequence[Point], end: EndBatch) -> "Batch":
        """A batch takes its name, tags and group from the returned end; if the end lacks one, the begin's is used. It
        is by name if either says so.
        """
        whole = EndBatch()
        whole.CopyFrom(end)
        whole.name = end.name or begin.name
        whole.group = end.group or begin.group
        if not end.tags:
            whole.tags.update(begin.tags)
        whole.byName = end.byName or begin.byName
        return cls(begin, points, whole)


class Function(Protocol):
    """One use of a function in one task, called by one thread. `counts`: of what happened, for the log."""

    @property
    def counts(self) -> Mapping[str, int]: ...

    def take(self, points: Sequence[Point]) -> list[Response]:
        """Take points of a stream, in order. How they are divided into calls must not affect the output."""
        ...

    def take_batch(self, batch: Batch) -> list[Response]: ...

    def pass_time(self, now_ns: int) -> list[Response]:
        """The wall clock, at a keepalive of a daemon that sends nothing else at the moment."""
        ...

    def finish(self) -> list[Response]:
        """The input has ended."""
        ...

    def snapshot(self) -> bytes:
        """The state after everything taken; empty if there is none."""
        ...

    def restore(self, state: bytes | None) -> None:
        """Continue from a snapshot, or with None after one that cannot be read; input in between is lost in both cases.

        Raises ValueError for a state that does not fit the options.
        """
        ...

    def close(self) -> None:
        """This use has ended, normally or not."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a task, checked against those that a function has: by name, the values of each call in order."""

    calls: Mapping[str, Sequence[Sequence[Value]]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Sequence[Option], offered: Mapping[str, Sequence[ValueType]]) -> "Options":
        """Raises OptionsRefused for unknown names, and for wrong counts and types."""
        calls: dict[str, list[Sequence[Value]]] = {}
        for option in given:
            types = offered.get(option.name)
            if types is None:
                raise OptionsRefused(f"there is no option {option.name!r}")
            if [value.type for value in option.values] != list(types):
                wanted = ", ".join(ValueType.Name(kind) for kind in types)
                raise OptionsRefused(f"the option {option.name} takes ({wanted})")
            values: list[Value] = []
            for value in option.values:
                if value.WhichOneof("value") != _MEMBERS[value.type]:
                    raise OptionsRefused(f"a value of the option {option.name} is not of its type")
                values.append(getattr(value, _MEMBERS[value.type]))
            calls.setdefault(option.name, []).append(values)
        return cls(calls)

    def every(self, name: str) -> Sequence[Sequence[Value]]:
        return self.calls.get(name, ())

    def text(self, name: str, default: str = "") -> str:
        """The text of the last call, as in the daemon's own nodes."""
        return str(self.calls[name][-1][0]) if name in self.calls else default

    def number(self, name: str, default: int = 0) -> int:
        return int(self.calls[name][-1][0]) if name in self.calls else default


def field_of(point: Point, name: str) -> Value | None:
    """The value of a field; if a name is in two maps, the one that the daemon would take."""
    if name in point.fieldsBool:
        return point.fieldsBool[name]
    if name in point.fieldsDouble:
        return point.fieldsDouble[name]
    if name in point.fieldsInt:
        return point.fieldsInt[name]
    if name in point.fieldsString:
        return point.fieldsString[name]
    return None


def number_of(value: Value | None) -> float | None:
    """An integer or a double as a number; None for everything else, including a boolean, which Python treats as an
    integer.
    """
    if isinstance(value, float):
        return value
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else None


def header_of(point: Point, name: str = "") -> Point:
    """What a result needs to be in the group of `point`: no time, no fields, and only the tags of the group. `name`:
    another name for results.
    """
    header = Point(
        name=name or point.name,
        database=point.database,
        retentionPolicy=point.retentionPolicy,
        group=point.group,
        dimensions=point.dimensions,
        byName=point.byName,
    )
    for dimension in point.dimensions:
        if dimension in point.tags:
            header.tags[dimension] = point.tags[dimension]
    return header
