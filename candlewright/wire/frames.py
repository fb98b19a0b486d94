"""The table of frames, and their only encoder and decoder.

A message on a socket is two frames: the version byte, and a body of one type id byte plus the protobuf message. A bus
record that can have several types is such a body.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from google.protobuf.message import DecodeError, Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame, SizeLimitExceeded

VERSION = b"\x01"

KIB = 1 << 10
MIB = 1 << 20
#: The largest frame that a ROUTER accepts (ZMQ_MAXMSGSIZE): the largest limit of the table plus some room to answer.
MAX_FRAME_BYTES = 17 * MIB


class Party(StrEnum):
    CLIENT = "client"
    RELAY = "relay"
    BROKER = "broker"
    INGESTOR = "ingestor"
    TOPIC = "topic"


Route = tuple[Party, Party]
_TO_RELAY: Route = (Party.CLIENT, Party.RELAY)
_TO_CLIENT: Route = (Party.RELAY, Party.CLIENT)
_ON_TOPIC: Route = (Party.RELAY, Party.TOPIC)
_TO_BROKER: Route = (Party.INGESTOR, Party.BROKER)
_TO_INGESTOR: Route = (Party.BROKER, Party.INGESTOR)


@dataclass(frozen=True, slots=True)
class FrameType:
    type_id: int
    message: type[Message]
    routes: frozenset[Route]
    max_bytes: int


def _row(type_id: int, message: type[Message], max_bytes: int, *routes: Route) -> FrameType:
    return FrameType(type_id, message, frozenset(routes), max_bytes)


DATA_REQUEST = 0x01
INGESTOR_CONTROL = 0x02
DISPATCH = 0x24

FRAMES: tuple[FrameType, ...] = (
    _row(DATA_REQUEST, ing.DataRequest, 64 * KIB, _TO_RELAY),
    _row(INGESTOR_CONTROL, ing.IngestorControl, 64 * KIB, _TO_RELAY, _TO_CLIENT, _TO_INGESTOR),
    _row(0x03, ing.DataResponse, 16 * MIB, _TO_BROKER),
    _row(0x10, ing.SubmitHistoricalRequest, 64 * KIB, _TO_RELAY),
    _row(0x11, ing.SubmitResponse, 64 * KIB, _TO_CLIENT),
    _row(0x12, ing.HistoryReadyNotification, 64 * KIB, _ON_TOPIC),
    _row(0x13, ing.OHLCRequest, 64 * KIB, _TO_RELAY),
    _row(0x14, ing.Response, MIB, _TO_CLIENT),
    _row(0x15, ing.CEPTriggerRequest, MIB, _TO_RELAY),
    _row(0x16, ing.CEPTriggerAck, 64 * KIB, _TO_CLIENT),
    _row(0x17, ing.CEPTriggerEvent, 16 * MIB, _ON_TOPIC),
    _row(0x20, ing.WorkerReady, 64 * KIB, _TO_BROKER),
    _row(0x21, ing.WorkComplete, 64 * KIB, _TO_BROKER),
    _row(0x22, ing.WorkHeartbeat, 4 * KIB, _TO_BROKER),
    _row(0x23, ing.WorkReject, 64 * KIB, _TO_BROKER),
    _row(DISPATCH, ing.DataRequest, 64 * KIB, _TO_INGESTOR),
    _row(0x25, ing.WorkStop, 4 * KIB, _TO_INGESTOR),
    _row(0x40, cw.Error, 64 * KIB, _TO_CLIENT, _TO_INGESTOR, _ON_TOPIC),
    _row(0x41, cw.Tick, 4 * KIB, _TO_BROKER),
    _row(0x42, cw.TickBatch, 16 * MIB, _TO_BROKER, _ON_TOPIC),
    _row(0x43, cw.OHLCV, 4 * KIB, _ON_TOPIC),
    _row(0x44, cw.Snapshot, 4 * KIB, _TO_BROKER, _ON_TOPIC),
    _row(0x45, cw.TriggerQuery, 4 * KIB, _TO_RELAY),
    _row(0x46, cw.TriggerList, 16 * MIB, _TO_CLIENT),
    _row(0x47, cw.TriggerRemove, 4 * KIB, _TO_RELAY),
    _row(0x48, cw.RequestStateQuery, 4 * KIB, _TO_RELAY),
    _row(0x49, cw.RequestState, 64 * KIB, _TO_CLIENT),
    _row(0x4A, cw.TopicReplay, 4 * KIB, _TO_RELAY),
    _row(0x4B, cw.TopicRecord, 16 * MIB, _TO_CLIENT),
    _row(0x4C, cw.RefreshHistoricalRequest, 64 * KIB, _TO_RELAY),
    _row(0x4E, cw.HistoryEnd, MIB, _TO_BROKER),
    _row(0x4F, cw.WorkProgress, 4 * KIB, _TO_BROKER),
    _row(0x50, cw.VenueQuery, 4 * KIB, _TO_RELAY),
    _row(0x51, cw.VenueList, 16 * MIB, _TO_CLIENT),
    _row(0x52, cw.StoredQuery, 4 * KIB, _TO_RELAY),
    _row(0x53, cw.StoredRows, 16 * MIB, _TO_CLIENT),
    _row(0x54, cw.ViewRequest, MIB, _TO_RELAY),
    _row(0x55, cw.ViewAck, MIB, _TO_CLIENT),
    _row(0x56, cw.ViewQuery, 4 * KIB, _TO_RELAY),
    _row(0x57, cw.ViewList, 16 * MIB, _TO_CLIENT),
    _row(0x58, cw.ViewRemove, 4 * KIB, _TO_RELAY),
)

_BY_ID = {row.type_id: row for row in FRAMES}
_ID_OF = {row.message: row.type_id for row in FRAMES if row.type_id != DISPATCH}


def type_id_of(message: type[Message]) -> int:
    return _ID_OF[message]


def fits(message: type[Message], value: bytes) -> bool:
    """Whether a serialised `message` is short enough for its receiver."""
    return len(value) < _BY_ID[_ID_OF[message]].max_bytes


def encode_body(message: Message, type_id: int | None = None) -> bytes:
    """One type id byte plus the message; pass `type_id` only if a class has two (a dispatch is a DataRequest)."""
    chosen = _ID_OF[type(message)] if type_id is None else type_id
    return bytes((chosen,)) + message.SerializeToString()


def encode(message: Message, type_id: int | None = None) -> list[bytes]:
    """The two frames of `message`."""
    return [VERSION, encode_body(message, type_id)]


def decode_body(body: bytes, routes: Iterable[Route] | None = None) -> Message:
    """The message of a body that may travel on one of `routes` (None: any).

    Raises only BadFrame, whatever the bytes.
    """
    if not body:
        raise BadFrame("MALFORMED", "an empty body has no type")
    row = _BY_ID.get(body[0])
    if row is None:
        raise BadFrame("UNKNOWN_TYPE", f"no message has the type 0x{body[0]:02x}")
    if routes is not None and row.routes.isdisjoint(routes):
        raise BadFrame("UNEXPECTED_TYPE", f"{row.message.DESCRIPTOR.name} (0x{body[0]:02x}) is not accepted here")
    if len(body) > row.max_bytes:
        raise SizeLimitExceeded(len(body), row.max_bytes)
    message = row.message()
    try:
        message.ParseFromString(body[1:])
    except DecodeError as error:
        raise BadFrame("MALFORMED", f"this is not a valid {row.message.DESCRIPTOR.name}") from error
    return message


def decode(frames: Sequence[bytes], routes: Iterable[Route] | None = None) -> Message:
    """The message of the two frames [version, body]; raises only BadFrame, whatever the frames."""
    if len(frames) != 2:
        raise BadFrame("MALFORMED", f"a message has 2 frames, version and body; this one has {len(frames)}")
    if frames[0] != VERSION:
        raise BadFrame("UNKNOWN_VERSION", f"version {frames[0][:8].hex() or 'missing'} is not supported (expected 01)")
    return decode_body(frames[1], routes)


#: The routes that each server accepts.
CLIENT_TO_RELAY = (_TO_RELAY,)
INGESTOR_TO_BROKER = (_TO_BROKER,)
BROKER_TO_INGESTOR = (_TO_INGESTOR,)
RELAY_TO_CLIENT = (_TO_CLIENT,)
ON_TOPIC = (_ON_TOPIC,)
