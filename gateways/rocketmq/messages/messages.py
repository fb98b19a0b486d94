"""Converts messages to records of the bus, and back.

The body is the record's value, so that clients of other protocols can read it. Tag, keys, message id and kind are
headers with RocketMQ's names; everything else the sender set is one JSON header. All these names are reserved, so that
no user attribute can be mistaken for one.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from bus import topics
from bus.api import Record, StoredRecord
from bus.messaging import ORDER_HEADER
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from gateways.records import MAX_AHEAD_NS, as_published, record_of
from gateways.rocketmq.door.status import INVALID_ARGUMENT, Refused
from gateways.rocketmq.messages.names import MAX_TOPIC_CHARACTERS
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition

MAX_BODY_BYTES = 4 << 20
#: The most that gzip adds to a body of that size.
_GZIP_BYTES = 4 << 10
#: Tag, keys, properties and everything else except the body.
_MAX_REST_BYTES = 64 << 10
TAG, KEYS, MESSAGE_ID, KIND = "TAGS", "KEYS", "UNIQ_KEY", "MSG_TYPE"
#: Headers of a dead letter: its origin and its attempts.
REAL_TOPIC, REAL_QUEUE, ORIGIN_ID, ATTEMPTS = "REAL_TOPIC", "REAL_QID", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME"
RESERVED = frozenset(
    {
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "MSG_REGION",
        "TRACE_ON",
        "UNIQ_KEY",
        "EXTEND_UNIQ_INFO",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "INNER_MULTI_QUEUE_OFFSET",
    }
)
_PLATFORM = frozenset({topics.TICKS, topics.OHLC, topics.TRIGGER_EVENTS, topics.NOTIFICATIONS})
_OWN = frozenset({TAG, KEYS, MESSAGE_ID, KIND, ORDER_HEADER})


def check(message: definition.Message) -> None:
    """Raises Refused INVALID_ARGUMENT for an invalid message."""
    system = message.system_attribute
    if not system.message_id:
        raise Refused(INVALID_ARGUMENT, "the message has no message_id")
    taken = sorted(RESERVED & message.user_attribute.keys())
    if taken:
        raise Refused(INVALID_ARGUMENT, f"the property name {taken[0]} is reserved")
    size = len(message.body)
    if size > MAX_BODY_BYTES + (_GZIP_BYTES if system.body_encoding == definition.GZIP else 0):
        raise Refused(INVALID_ARGUMENT, f"the body has {size} bytes; {MAX_BODY_BYTES} are allowed")
    if message.ByteSize() - size > _MAX_REST_BYTES:
        raise Refused(INVALID_ARGUMENT, f"tag, keys and properties together have more than {_MAX_REST_BYTES} bytes")
    if "|" in system.tag:
        raise Refused(INVALID_ARGUMENT, "a tag cannot contain |, which separates tags in a subscription")
    given = system.body_digest
    if given.checksum:
        expected = checksum(given.type, message.body)
        is_same = given.checksum.upper() == expected
        if given.type == definition.CRC32:
            is_same = given.checksum.upper().lstrip("0") == expected.lstrip("0")
        if not is_same:
            raise Refused(INVALID_ARGUMENT, "the body_digest does not match the body")


def checksum(kind: int, body: bytes) -> str:
    """Upper-case hexadecimal; of CRC32 without leading zeros, as clients compute it. Raises Refused."""
    if kind == definition.CRC32:
        return f"{zlib.crc32(body):X}"
    if kind == definition.MD5:
        return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    if kind == definition.SHA1:
        return hashlib.sha1(body, usedforsecurity=False).hexdigest().upper()
    raise Refused(INVALID_ARGUMENT, f"unknown digest type {kind}")


def to_record(
    topic: str, message: definition.Message, partition: int | None, *, max_ahead_ns: int = MAX_AHEAD_NS
) -> Record:
    """The record to publish on `topic`. Raises Refused INVALID_ARGUMENT if `gateways.records` refuses it."""
    body = message.body
    if topic in _PLATFORM and message.system_attribute.body_encoding == definition.GZIP:
        body = _unzipped(body)
    try:
        return record_of(
            topic,
            body,
            partition=partition,
            headers=_headers(message),
            max_ahead_ns=max_ahead_ns,
            max_topic_bytes=MAX_TOPIC_CHARACTERS,
        )
    except InvalidRequest as error:
        raise Refused(INVALID_ARGUMENT, str(error)) from error


def _unzipped(body: bytes) -> bytes:
    unzip = zlib.decompressobj(wbits=31)
    try:
        plain = unzip.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise Refused(INVALID_ARGUMENT, "the body is not gzip, as its encoding claims") from error
    if not unzip.eof or len(plain) > MAX_BODY_BYTES:
        raise Refused(INVALID_ARGUMENT, "the gzip body is incomplete, or too large when unpacked")
    return plain


def _headers(message: definition.Message) -> dict[str, str]:
    system = message.system_attribute
    rest: dict[str, object] = {}
    if system.message_group:
        rest["group"] = system.message_group
    if system.body_encoding == definition.GZIP:
        rest["gzip"] = True
    if system.HasField("born_timestamp"):
        rest["born_ms"] = system.born_timestamp.ToMilliseconds()
    for name, value in (
        ("born_host", system.born_host),
        ("producer_group", system.producer_group.name),
        ("producer_namespace", system.producer_group.resource_namespace),
        ("trace", system.trace_context),
        ("digest", system.body_digest.type),
    ):
        if value:
            rest[name] = value
    if system.HasField("delivery_timestamp"):
        rest["due_ms"] = system.delivery_timestamp.ToMilliseconds()
    elif system.HasField("delay_level"):
        rest["delay_level"] = system.delay_level
    if any(" " in key for key in system.keys):
        rest["keys"] = list(system.keys)
    headers = dict(message.user_attribute)
    headers[MESSAGE_ID] = system.message_id
    headers[KIND] = definition.MessageType.Name(system.message_type)
    if system.tag:
        headers[TAG] = system.tag
    if system.keys:
        headers[KEYS] = " ".join(system.keys)
    if rest:
        headers[ORDER_HEADER] = json.dumps(rest, separators=(",", ":"))
    return headers


def from_record(record: StoredRecord, resource: definition.Resource, store_host: str) -> definition.Message:
    """Any writer's record as a message, complete except for the fields of a delivery."""
    body = as_published(record)
    message = definition.Message(topic=resource, body=body)
    system = message.system_attribute
    system.message_id = f"{record.topic}-{record.partition}-{record.offset}"
    system.store_timestamp.FromMilliseconds(record.timestamp_ms)
    system.born_timestamp.FromMilliseconds(record.timestamp_ms)
    system.store_host = store_host
    system.partition_id = record.partition
    system.partition_offset = record.offset
    if record.topic in _PLATFORM:
        _describe(record, message)
    else:
        _read_headers(record, message)
    system.body_digest.checksum = checksum(system.body_digest.type, body)
    return message


def _read_headers(record: StoredRecord, message: definition.Message) -> None:
    system, headers = message.system_attribute, record.headers
    for name, value in headers.items():
        if name not in _OWN:
            message.user_attribute[_text(name)] = _text(value)
    if headers.get(MESSAGE_ID):
        system.message_id = _text(headers[MESSAGE_ID])
    system.tag = _text(headers.get(TAG, ""))
    if KEYS in headers:
        system.keys.extend(_text(headers[KEYS]).split(" "))
    elif record.key:
        # From writers that speak another protocol.
        system.keys.append(record.key.decode(errors="replace"))
    kind = headers.get(KIND, "")
    if kind in definition.MessageType.keys():  # noqa: SIM118
        system.MergeFrom(definition.SystemAttribute(message_type=kind))
    try:
        rest = json.loads(headers.get(ORDER_HEADER, "{}"))
    except ValueError:
        return
    if not isinstance(rest, dict):
        return
    try:
        system.message_group = rest.get("group", "")
        if rest.get("gzip"):
            system.body_encoding = definition.GZIP
        system.born_host = rest.get("born_host", "")
        system.trace_context = rest.get("trace", "")
        if "producer_group" in rest:
            system.producer_group.name = rest["producer_group"]
            system.producer_group.resource_namespace = rest.get("producer_namespace", "")
        if "born_ms" in rest:
            system.born_timestamp.FromMilliseconds(rest["born_ms"])
        if "due_ms" in rest:
            system.delivery_timestamp.FromMilliseconds(rest["due_ms"])
        elif "delay_level" in rest:
            system.delay_level = rest["delay_level"]
        if "keys" in rest:
            system.ClearField("keys")
            system.keys.extend(rest["keys"])
        if rest.get("digest") in (definition.MD5, definition.SHA1):
            system.body_digest.type = rest["digest"]
    except (TypeError, ValueError, ArithmeticError):
        # A writer of another protocol used the header for something else.
        return


def _describe(record: StoredRecord, message: definition.Message) -> None:
    """Tag, keys and attributes of the platform's own messages, so that they can be filtered."""
    system = message.system_attribute
    name = (record.key or b"").decode(errors="replace")
    system.tag = name
    if name:
        system.keys.append(name)
    try:
        found = _attributes(record.topic, record.value, name)
    except (DecodeError, ValueError, ArithmeticError):
        found = {}
    for attribute, value in found.items():
        message.user_attribute[attribute] = value


def _attributes(topic: str, value: bytes, name: str) -> Mapping[str, str]:
    if topic == topics.TICKS:
        return {"ticker": name, "venue": name.rpartition(".")[2]}
    if topic == topics.OHLC:
        bar = cw.OHLCV.FromString(value)
        return {
            "ticker": bar.ticker,
            "venue": bar.ticker.rpartition(".")[2],
            "period_seconds": str(bar.period_seconds),
            "open_time": datetime.fromtimestamp(bar.open_time // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "source": bar.source,
            "complete": str(bar.complete).lower(),
            "revision": str(bar.revision),
        }
    if topic == topics.TRIGGER_EVENTS:
        event = ing.CEPTriggerEvent.FromString(value)
        return {"trigger_id": event.trigger_id, "ticker": event.context.get("ticker", "")}
    notice = ing.HistoryReadyNotification.FromString(value)
    return {
        "request_id": notice.request_id,
        "ticker": notice.ticker,
        "period_seconds": str(notice.period_seconds),
        "status": ing.HistoryReadyNotification.NotificationStatus.Name(notice.status),
    }


def _text(value: str) -> str:
    """Writers of other protocols may have put non-text bytes in a header."""
    return value.encode("utf-8", "replace").decode()


def timestamp(milliseconds: int) -> Timestamp:
    made = Timestamp()
    made.FromMilliseconds(milliseconds)
    return made
