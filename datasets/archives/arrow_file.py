"""Reads Arrow files (feather) of unknown origin, after checking how large they are when unpacked.

Each message has a flatbuffer (format/Message.fbs and format/Schema.fbs of Apache Arrow) with the location of each
buffer in its body. In a compressed record batch, each buffer begins with its unpacked size, which Arrow's reader does
not exceed.
"""

import os
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from datasets.archives.files import BadFile

_MAGIC, _MAGIC_V1, _END = b"ARROW1\0\0", b"FEA1", b"ARROW1"
_SIZE = struct.Struct("<q")
# ---- numbers of fields in their flatbuffer tables
_HEADER_KIND, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3


def read_table(file: Path, source: BinaryIO, max_bytes: int) -> pa.Table:
    """The file's rows. Raises BadFile if they exceed `max_bytes` when unpacked, and Arrow's errors if the file is
    damaged.
    """
    if (size := os.fstat(source.fileno()).st_size) > max_bytes:
        raise BadFile(file, f"it has {size >> 20:,} MiB, over {max_bytes >> 20:,}")
    begin = source.read(len(_MAGIC))
    if begin.startswith(_MAGIC_V1):
        raise BadFile(file, "it has the format Feather V1, which is obsolete and cannot be read safely: write it as V2")
    if begin != _MAGIC:
        raise pa.ArrowInvalid("it does not begin like one")
    source.seek(-len(_END), os.SEEK_END)
    if source.read() != _END:
        raise pa.ArrowInvalid("its end marker is missing")
    source.seek(len(_MAGIC))
    if (size := _unpacked_bytes(source)) > max_bytes:
        raise BadFile(file, f"it unpacks to {size >> 20:,} MiB, over {max_bytes >> 20:,}")
    # Read the messages whose size was checked, in order, not those that the footer refers to.
    source.seek(len(_MAGIC))
    with pa.ipc.open_stream(source) as stream:
        return stream.read_all()


def _unpacked_bytes(source: BinaryIO) -> int:
    try:
        return sum(
            _unpacked(memoryview(message.metadata), memoryview(message.body or b""))
            for message in pa.ipc.MessageReader.open_stream(source)
        )
    except (struct.error, IndexError, ValueError) as error:
        raise pa.ArrowInvalid(f"a message cannot be read: {error}") from error


def _unpacked(metadata: memoryview, body: memoryview) -> int:
    message = _at(metadata, 0)
    kind = _field(metadata, message, _HEADER_KIND)
    header = _field(metadata, message, _HEADER)
    if not kind or not header or metadata[kind] not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return 0
    batch = _at(metadata, header)
    if metadata[kind] == _DICTIONARY_BATCH:
        batch = _at(metadata, _field(metadata, batch, _DATA))
    buffers = _field(metadata, batch, _BUFFERS)
    if not buffers or not _field(metadata, batch, _COMPRESSION):
        return len(body)
    vector = _at(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, vector)
    places = np.frombuffer(metadata, np.int64, 2 * count, vector + 4).reshape(-1, 2)
    sizes = [(_SIZE.unpack_from(body, offset)[0], length) for offset, length in places.tolist() if length]
    # A size of -1 means that this buffer is not compressed.
    return sum(length if size < 0 else size for size, length in sizes)


def _field(data: memoryview, table: int, number: int) -> int:
    """The position of a field of a flatbuffer table; 0 if the field is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * number
    if place >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + offset if offset else 0


def _at(data: memoryview, place: int) -> int:
    """The target of the flatbuffer reference at `place`."""
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)
