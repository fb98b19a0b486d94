"""Hypothesis strategies for a hostile or broken sender on the bus: any bytes, and messages with any fields.

`hostile(kind)` generates messages with extreme fields, `corrupted(sound)` a sound message with one field replaced,
`records_like(sound)` both as bytes, and undecodable bytes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

M = TypeVar("M", bound=Message)

_UNSIGNED = st.sampled_from([0, 1, 2, 59, 60, 99, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
_FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf")])
_TEXTS = st.one_of(
    st.sampled_from(
        ["", "A/B.TEST", "BTC/USDT.BINANCE", "0", "9" * 5_000, "x" * 70_000, "\0", "a#1", "²", "-1", "true"]
    ),
    st.text(max_size=20),
)
_MAX_ITEMS = 4


def _ints(low: int, high: int) -> st.SearchStrategy[int]:
    return st.one_of(_UNSIGNED, st.integers(low, high), st.sampled_from([low, -1])).filter(lambda n: low <= n <= high)


_KINDS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_DOUBLE: _FLOATS,
    FieldDescriptor.TYPE_FLOAT: _FLOATS.filter(lambda value: abs(value) < 1e38 or value != value),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: _TEXTS,
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=40),
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 4, 99, 2**31 - 1, -1]),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), _ints(0, 2**64 - 1)),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), _ints(0, 2**32 - 1)),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64),
        _ints(-(2**63), 2**63 - 1),
    ),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32),
        _ints(-(2**31), 2**31 - 1),
    ),
}


def _single(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return _fields(field.message_type)
    return _KINDS[field.type]


def _value(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        names = field.message_type.fields_by_name
        return st.dictionaries(_single(names["key"]), _single(names["value"]), max_size=_MAX_ITEMS)
    if field.is_repeated:
        return st.lists(_single(field), max_size=_MAX_ITEMS)
    return _single(field)


def _fields(descriptor: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields of a message, at most one of each oneof."""
    plain = {field.name: _value(field) for field in descriptor.fields if field.containing_oneof is None}
    parts = [st.fixed_dictionaries({}, optional=plain)]
    for oneof in descriptor.oneofs:
        choices = [st.fixed_dictionaries({field.name: _value(field)}) for field in oneof.fields]
        parts.append(st.one_of(st.just({}), *choices))
    return st.tuples(*parts).map(lambda found: {name: value for part in found for name, value in part.items()})


def hostile(kind: type[M]) -> st.SearchStrategy[M]:
    return _fields(kind.DESCRIPTOR).map(lambda fields: kind(**fields))


def corrupted(sound: M) -> st.SearchStrategy[M]:
    """`sound` with one field, at any depth, replaced by an extreme value."""
    descriptor: Descriptor = sound.DESCRIPTOR
    choices = []
    for field in descriptor.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.message_type is not None and not field.is_repeated:
            if sound.HasField(field.name):
                inner = corrupted(getattr(sound, field.name))
                choices.append(inner.map(lambda value, name=field.name: _with_message(sound, name, value)))
        elif not is_map:
            choices.append(_value(field).map(lambda value, name=field.name: _with(sound, name, value)))
    return st.one_of(*choices)


def _with_message(sound: M, name: str, value: Message) -> M:
    found = _copy(sound)
    getattr(found, name).CopyFrom(value)
    return found


def _with(sound: M, name: str, value: Any) -> M:
    found = _copy(sound)
    found.ClearField(name)
    found.MergeFrom(type(sound)(**{name: value}))
    return found


def _copy(sound: M) -> M:
    found = type(sound)()
    found.CopyFrom(sound)
    return found


def records_like(*sound: Message) -> st.SearchStrategy[bytes]:
    """Serialised records of a topic that holds messages like these: hostile ones, and bytes that are not a message."""
    serialise: Callable[[Message], bytes] = lambda message: message.SerializeToString()  # noqa: E731
    whole = [message.SerializeToString() for message in sound]
    cut = st.sampled_from(whole).flatmap(lambda value: st.integers(0, len(value)).map(lambda end: value[:end]))
    flipped = st.sampled_from(whole).flatmap(
        lambda value: st.tuples(st.integers(0, len(value) - 1), st.integers(0, 255)).map(
            lambda found: value[: found[0]] + bytes((found[1],)) + value[found[0] + 1 :]
        )
    )
    return st.one_of(
        st.binary(max_size=60),
        cut,
        flipped,
        *(corrupted(message).map(serialise) for message in sound),
        *(hostile(type(message)).map(serialise) for message in sound),
    )
