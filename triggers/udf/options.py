"""Checks options of a function against its own description before it is started, as the daemon does."""

from collections.abc import Sequence
from dataclasses import dataclass

from candlewright.wire.errors import CandlewrightError
from protobuf.udf_superset_pb2 import InfoResponse, Option, OptionValue, ValueType

__all__ = ["Call", "Duration", "UdfRefused", "checked_options"]


class UdfRefused(CandlewrightError):
    """The function cannot be used this way; retrying is useless."""


@dataclass(frozen=True, slots=True)
class Duration:
    nanoseconds: int


Value = bool | int | float | str | Duration
#: The name of an option and the arguments of one call.
Call = tuple[str, Sequence[Value]]


def checked_options(info: InfoResponse, calls: Sequence[Call]) -> list[Option]:
    """In the order of `calls`; an integer is not a double, as in a TICKscript. Raises UdfRefused."""
    found = []
    for name, arguments in calls:
        if name not in info.options:
            raise UdfRefused(f"the function has no option {name!r}; it has {', '.join(sorted(info.options)) or 'none'}")
        wanted = list(info.options[name].valueTypes)
        if len(arguments) != len(wanted):
            raise UdfRefused(f"the option {name} takes {len(wanted)} arguments, not {len(arguments)}")
        option = Option(name=name, values=[_value(argument) for argument in arguments])
        for place, (value, kind) in enumerate(zip(option.values, wanted, strict=True), 1):
            if value.type != kind:
                expected, given = ValueType.Name(kind), ValueType.Name(value.type)
                raise UdfRefused(f"argument {place} of the option {name} is {given}, expected {expected}")
        found.append(option)
    return found


def _value(value: Value) -> OptionValue:
    if isinstance(value, Duration):
        return OptionValue(type=ValueType.DURATION, durationValue=value.nanoseconds)
    if isinstance(value, bool):
        return OptionValue(type=ValueType.BOOL, boolValue=value)
    if isinstance(value, int):
        return OptionValue(type=ValueType.INT, intValue=value)
    if isinstance(value, float):
        return OptionValue(type=ValueType.DOUBLE, doubleValue=value)
    return OptionValue(type=ValueType.STRING, stringValue=value)
