"""`candlewright dead-letters`: records that a part could not process, and their replay to their topics."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from google.protobuf.message import DecodeError

from bus import Log, dead_letters, topics
from bus.api import Bus, Record
from candlewright.cli.output import Output, json_line, print_rows, say
from candlewright.wire.errors import BusError, CandlewrightError, InvalidRequest, OffsetOutOfRange
from candlewright.wire.times import format_nanoseconds
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.records.bus import open_bus
from gateways.records import is_platform, record_of
from protobuf import records_pb2 as rec

_SHOWN_BYTES = 2_000


def list_letters(
    part: str | None, topic: str | None, limit: int, *, output: Output, data_dir: Path | None, config: Path | None
) -> None:
    with open_bus(settings_for(config, data_dir)) as bus:
        found = [(number, letter) for number, letter in dead_letters.kept(bus) if _fits(letter, part, topic)]
        tallies = [tally for tally in dead_letters.tallies(bus) if _fits(tally.newest, part, topic)]
    rows = [_row(number, letter) for number, letter in found[-limit:]]
    print_rows(rows, output, columns=["number", "at", "part", "topic", "reason", "bytes"], empty="no dead letters")
    if output is Output.table:
        if len(found) > limit:
            say(f"the newest {limit} of {len(found)}: --limit shows more")
        ever = sum(tally.count for tally in tallies)
        if ever > len(found):
            say(f"{ever} records were put aside in total; only the newest are kept")
        for tally in sorted(tallies, key=lambda each: -each.count):
            newest = tally.newest
            say(f"{tally.count} of {newest.topic} by {newest.part}: {newest.kind or newest.reason}")


def show(number: int, output: Output, data_dir: Path | None, *, config: Path | None) -> None:
    with open_bus(settings_for(config, data_dir)) as bus:
        letter = _letter(bus, number)
    row = _row(number, letter) | {"key": _text(letter.key) if letter.HasField("key") else None}
    row |= {"message": _message(letter), "record": letter.record}
    if output is Output.json:
        print(json_line(row))
        return
    hexadecimal = letter.record[:_SHOWN_BYTES].hex(" ")
    row["record"] = hexadecimal + (" …" if len(letter.record) > _SHOWN_BYTES else "")
    for name, value in row.items():
        if value is not None:
            print(f"{name:<10} {value}")


def replay(
    numbers: Sequence[int],
    *,
    is_all: bool,
    part: str | None,
    topic: str | None,
    output: Output,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    """Exit code 1 if a letter could not be replayed; the others were."""
    if bool(numbers) == is_all:
        raise typer.BadParameter("name the letters by their numbers, or all of them by --all")
    if (part or topic) and not is_all:
        raise typer.BadParameter("--part and --topic choose from --all")
    rows: list[dict[str, Any]] = []
    with open_bus(settings_for(config, data_dir)) as bus:
        if is_all:
            chosen = [found for found in dead_letters.kept(bus) if _fits(found[1], part, topic)]
        else:
            chosen = [(number, _letter(bus, number)) for number in dict.fromkeys(numbers)]
        for number, letter in chosen:
            rows.append({"number": number, "topic": letter.topic, "outcome": _replayed(bus, number, letter)})
    print_rows(rows, output, columns=["number", "topic", "outcome"], empty="no dead letters")
    if any(row["outcome"] not in (_REPLAYED, _BEFORE) for row in rows):
        raise typer.Exit(1)


_REPLAYED, _BEFORE = "replayed", "was replayed before"


def _replayed(bus: Bus, number: int, letter: rec.DeadLetter) -> str:
    """Its outcome, in words."""
    if letter.record_bytes > len(letter.record):
        return f"only its first {len(letter.record)} of {letter.record_bytes} bytes are kept"
    if not bus.partitions(letter.topic):
        return f"topic {letter.topic} does not exist"
    try:
        record = _record(letter)
    except InvalidRequest as error:
        return f"it is still not a record of {letter.topic}: {error}"
    try:
        is_new = dead_letters.replay(bus, letter, record)
    except BusError as error:
        return str(error)
    return _REPLAYED if is_new else _BEFORE


def _record(letter: rec.DeadLetter) -> Record:
    """On topics that clients read, it gets a number like any other record; on others it is published unchanged. Raises
    InvalidRequest.
    """
    key = letter.key if letter.HasField("key") else None
    partition = letter.partition if letter.HasField("partition") else None
    if not is_platform(letter.topic) or letter.topic == topics.NOTIFICATIONS:
        return Record(letter.record, key=key, partition=partition)
    return record_of(letter.topic, letter.record)


def _letter(bus: Log, number: int) -> rec.DeadLetter:
    """Raises CandlewrightError."""
    try:
        found = next(dead_letters.kept(bus, number), None)
    except OffsetOutOfRange:
        found = None
    if found is None or found[0] != number:
        raise CandlewrightError(
            f"dead letter {number} was not found; `candlewright dead-letters list` shows all of them"
        )
    return found[1]


def _fits(letter: rec.DeadLetter, part: str | None, topic: str | None) -> bool:
    return part in (None, letter.part) and topic in (None, letter.topic)


def _row(number: int, letter: rec.DeadLetter) -> dict[str, Any]:
    return {
        "number": number,
        "at": format_nanoseconds(letter.at),
        "part": letter.part,
        "topic": letter.topic,
        "partition": letter.partition if letter.HasField("partition") else None,
        "offset": letter.offset if letter.HasField("offset") else None,
        "reason": letter.reason,
        "kind": letter.kind,
        "bytes": letter.record_bytes,
    }


def _message(letter: rec.DeadLetter) -> str | None:
    """The record as text, if it can be decoded."""
    topic = topics.TOPICS.get(letter.topic)
    if topic is None or topic.message is None:
        return None
    try:
        return " ".join(str(topic.message.FromString(letter.record)).split())[:_SHOWN_BYTES]
    except DecodeError:
        return None


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
