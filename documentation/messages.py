# ruff: noqa: E501  (tables of prose)
"""Messages: frames, their routes and limits, and the fields of each message with the comments of its .proto file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from candlewright.wire.frames import FRAMES
from candlewright.wire.streams import TOPICS
from documentation.markdown import code, page, table
from documentation.source import ROOT

FILES = ("ingestor.proto", "candlewright.proto")
_OPENING = re.compile(r"\s*(message|enum|oneof) (\w+) \{")
_FIELD = re.compile(r"\s*((?:repeated |optional )?[\w.<>, ]+?)\s+(\w+) = (\d+)[^;]*;\s*(?://\s*(.*))?")
_VALUE = re.compile(r"\s*(\w+) = (\d+);\s*(?://\s*(.*))?")
INTRODUCTION = """
A message is two frames: the version (one byte, `0x01`) and the body: one byte with the type, then the Protocol Buffers
message. On the notification socket a topic frame comes first. A REQ client's empty delimiter is accepted and echoed.
A frame that cannot be decoded is answered with an [`Error`](errors.md#errors-on-the-wire). Times are nanoseconds since the
epoch, UTC; a candle is keyed by its open time; ranges are half-open, `[start, end)`.
"""


@dataclass
class Block:
    kind: str
    name: str
    text: str
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)


def topics(blocks: list[Block]) -> Iterator[tuple[str, ...]]:
    for topic in TOPICS:
        messages = ", ".join(link(message.DESCRIPTOR.name, blocks) for message in topic.messages)
        yield code(topic.form), messages, topic.contents, "the id's owner" if topic.is_private else "everyone"


def markdown() -> str:
    blocks = [block for name in FILES for block in parsed(ROOT / "protobuf" / name)]
    frames = [
        (
            code(f"0x{row.type_id:02X}"),
            link(row.message.DESCRIPTOR.name, blocks),
            ", ".join(sorted(f"{sender} → {receiver}" for sender, receiver in row.routes)),
            f"{row.max_bytes >> 10} KiB",
        )
        for row in FRAMES
    ]
    parts = [
        INTRODUCTION,
        "## Topics",
        "Subscriptions match by prefix, as always with ZeroMQ, so compare the whole topic frame. Stream topics are numbered from 1 without"
        " holes, so a client sees any gap and asks for it with TopicReplay.",
        table(("topic", "messages", "contents", "with keys on, read by"), topics(blocks)),
        "## Frames",
        table(("type", "message", "from → to", "at most"), frames),
        "## Fields",
    ]
    for block in blocks:
        parts += [f"### {block.name}", block.text]
        parts.append(table(("number", "name", "type" if block.kind == "message" else "", "meaning"), block.rows))
    return page("Topics and messages", *parts)


def link(name: str, blocks: list[Block]) -> str:
    return f"[{name}](#{name.lower()})" if any(block.name == name for block in blocks) else name


def parsed(path: Path) -> Iterator[Block]:
    """The messages and enums of a .proto file. A nested one has its parent's name in front."""
    open_blocks: list[Block] = []
    comment: list[str] = []
    for line in path.read_text().splitlines():
        text = line.strip()
        if text.startswith("//"):
            comment.append(text.lstrip("/ "))
            continue
        opening, found = _OPENING.match(line), _FIELD.match(line) or _VALUE.match(line)
        if opening:
            kind, name = opening.groups()
            if kind == "oneof":
                open_blocks.append(open_blocks[-1])
            else:
                prefix = f"{open_blocks[-1].name}." if open_blocks else ""
                open_blocks.append(Block(kind, prefix + name, " ".join(comment)))
        elif text.startswith("}") and open_blocks:
            closed = open_blocks.pop()
            if closed not in open_blocks:
                yield closed
        elif found and open_blocks:
            *kind_and_name, number, beside = found.groups()
            kind = kind_and_name[0].strip() if len(kind_and_name) == 2 else ""
            meaning = " ".join([*comment, beside or ""]).strip()
            open_blocks[-1].rows.append((number, code(kind_and_name[-1]), code(kind), meaning))
        comment = []
