"""Records as the arguments of `lua/publish.lua`, and its reply as positions."""

from collections.abc import Sequence
from functools import partial
from itertools import repeat

from bus.api import Position, Record, SequenceStamp
from bus.redis.store import bulks
from bus.routing import encode_headers
from candlewright.wire.errors import BusError

#: Redis accepts no more arguments in one command.
_MAX_ARGUMENTS = 1_000_000
#: Limits of the consecutive records that become one entry: reading one of them fetches all from Redis.
_PACK_RECORDS = 128
_PACK_BYTES = 16 << 10


def packed(records: Sequence[Record], chosen: Sequence[int], head: tuple[int, bytes]) -> tuple[int, bytes]:
    """The number of arguments and their bytes in wire format. `chosen`: the partition of each record; `head`: the
    arguments before the records, packed.

    Raises BusError if there are too many records for one call.
    """
    count, first = head
    parts = [first]
    by_partition: dict[int, list[Record]] = {}
    if chosen.count(chosen[0]) == len(chosen):
        by_partition[chosen[0]] = list(records)
    else:
        for partition, record in zip(chosen, records, strict=True):
            by_partition.setdefault(partition, []).append(record)
    for partition, group in by_partition.items():
        parts.append(bulks(partition, len(group)))
        count += 2
        if (keyed := _all_keyed(group)) is not None:
            parts += keyed[0]
            count += keyed[1]
            continue
        at = 0
        while at < len(group):
            record = group[at]
            value = record.value
            at += 1
            key = record.key
            if (stamp := record.sequence) is not None and key is not None and not record.headers:
                values = _run(group, at - 1)
                for part in _packs(values):
                    parts.append(_stamped(stamp, key, part[0]) if len(part) == 1 else _pack(stamp, key, part))
                    count += 7
                at += len(values) - 1
            elif record.sequence is not None or record.headers:
                special = _special(record)
                parts.append(bulks(*special))
                count += len(special)
            elif key is None:
                parts.append(b"$1\r\n-\r\n$%d\r\n%b\r\n" % (len(value), value))
                count += 2
            else:
                parts.append(_keyed(key, value))
                count += 3
    if count > _MAX_ARGUMENTS:
        raise BusError(f"{len(records)} records are too many for one call")
    return count, b"".join(parts)


def packed_head(arguments: Sequence[bytes | str | int]) -> tuple[int, bytes]:
    """For `packed`."""
    return len(arguments), bulks(*arguments)


def positions(chosen: Sequence[int], reply: Sequence[bytes]) -> list[Position]:
    """One position per record, from partitions and their first offsets; none for a partition that is not there, because
    the call repeats one with other records.
    """
    following = {int(partition): int(offset) for partition, offset in zip(reply[::2], reply[1::2], strict=True)}
    if len(following) == 1:
        ((partition, first),) = following.items()
        # A named tuple's own constructor takes three times as long.
        places = zip(repeat(partition), range(first, first + len(chosen)), strict=False)
        return list(map(partial(tuple.__new__, Position), places))
    found = []
    for partition in chosen:
        offset = following.get(partition)
        if offset is not None:
            following[partition] = offset + 1
            found.append(Position(partition, offset))
    return found


def _special(record: Record) -> list[bytes | str | int]:
    flags = "-"
    arguments: list[bytes | str | int] = []
    if record.sequence is not None:
        flags += "s"
        stamp = record.sequence
        arguments += (stamp.name, stamp.count, stamp.tag, stamp.context_tag)
    if record.headers:
        flags += "h"
        arguments.append(encode_headers(record.headers))
    if record.key is not None:
        flags += "k"
        arguments.append(record.key)
    return [flags, *arguments, record.value]


def _stamped(stamp: SequenceStamp, key: bytes, value: bytes) -> bytes:
    """`_special` for the records of stream topics, in one step."""
    name, number = stamp.name.encode(), b"%d" % stamp.count
    return b"$3\r\n-sk\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(name), name, len(number), number, len(stamp.tag), stamp.tag, len(stamp.context_tag), stamp.context_tag,
        len(key), key, len(value), value,
    )  # fmt: skip


def _all_keyed(group: Sequence[Record]) -> tuple[list[bytes], int] | None:
    """Records that have only keys, in packs, and the number of arguments; None for others."""
    if len(group) == 1 or group[0].sequence is not None:
        return None
    values, keys, headers, _, _, stamps = zip(*group, strict=True)
    if None in keys or any(headers) or any(stamps):
        return None
    parts: list[bytes] = []
    count = start = 0
    for part in _packs(values):
        end = start + len(part)
        if len(part) == 1:
            parts.append(_keyed(keys[start], part[0]))
            count += 3
        else:
            parts.append(_keyed_pack(keys[start:end], part))
            count += 6
        start = end
    return parts, count


def _keyed(key: bytes, value: bytes) -> bytes:
    return b"$1\r\nk\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)


def _run(group: Sequence[Record], at: int) -> list[bytes]:
    """The value at `at`, and those of the following records that differ only in their values."""
    _, key, _, _, _, stamp = group[at]
    end = at + 1
    if stamp is not None and stamp.count == 1 and not stamp.context_tag:
        # A quick check, which is cheaper than the comparison.
        while end < len(group) and (other := group[end]).sequence is stamp and other.key is key and not other.headers:
            end += 1
    return [record.value for record in group[at:end]]


def _packs(values: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Cut into parts of about equal length, each small enough for one entry unless it is a single value."""
    if len(values) == 1 or (len(values) <= _PACK_RECORDS and sum(map(len, values)) <= _PACK_BYTES):
        return [values]
    half = len(values) // 2
    return _packs(values[:half]) + _packs(values[half:])


def _pack(stamp: SequenceStamp, key: bytes, values: Sequence[bytes]) -> bytes:
    """Consecutive records with one stamp and key, as one entry."""
    arguments = ("*", stamp.name, stamp.tag, key, len(values), _lengths(values), b"".join(values))
    return bulks(*arguments)


def _keyed_pack(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    """Consecutive records without numbers, as one entry."""
    arguments = ("+", len(values), _lengths(keys), b"".join(keys), _lengths(values), b"".join(values))
    return bulks(*arguments)


def _lengths(texts: Sequence[bytes]) -> bytes:
    return " ".join(map(str, map(len, texts))).encode()
