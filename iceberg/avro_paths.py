"""Rewrites the paths in a table's Avro files and nothing else; all other values are copied in their encoded form.
Format: the Apache Avro specification, "Object Container Files".

A manifest list names manifests and their sizes; a manifest names data files.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_PATHS = frozenset({"manifest_path", "file_path", "referenced_data_file"})
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_POSITION_DELETES = 1


class BadAvro(ValueError):
    pass


def is_manifest_list(content: bytes) -> bool:
    """Whether this is a manifest list, by its schema. Raises BadAvro if it cannot be read."""
    metadata, _ = _header(content)
    return bool(json.loads(metadata["avro.schema"])["name"] == "manifest_file")


def with_paths(content: bytes, change: Callable[[str], str], size_of: Callable[[str], int | None]) -> bytes:
    """The file with `change` applied to each path. `size_of` returns the size of the manifest with this new path, or
    None if its size has not changed. Raises BadAvro if the file cannot be read.
    """
    metadata, start = _header(content)
    name = metadata.get(AVRO_CODEC_KEY, "null")
    if name not in KNOWN_CODECS:
        raise BadAvro(f"compressed by {name}")
    codec = KNOWN_CODECS[name]
    schema = json.loads(metadata["avro.schema"])
    sync = content[start - _SYNC_BYTES : start]
    found = [content[:start]]
    place = start
    while place < len(content):
        count, place = _long(content, place)
        size, place = _long(content, place)
        block = content[place : place + size]
        place += size + _SYNC_BYTES
        if len(block) < size or content[place - _SYNC_BYTES : place] != sync:
            raise BadAvro("it is truncated")
        changed = _Block(codec.decompress(block) if codec else block, change, size_of).with_paths(schema, count)
        written = codec.compress(changed)[0] if codec else changed
        found += [_encoded(count), _encoded(len(written)), written, sync]
    return b"".join(found)


class _Block:
    """A cursor over the records of one block, which are read once, in order."""

    def __init__(self, data: bytes, change: Callable[[str], str], size_of: Callable[[str], int | None]) -> None:
        self._data = data
        self._change = change
        self._size_of = size_of
        self._place = self._copied = 0
        self._out = bytearray()
        self._named: dict[str, Any] = {}
        self._manifest = ""

    def with_paths(self, schema: Any, count: int) -> bytes:
        for _ in range(count):
            self._pass(schema, "")
        if self._place != len(self._data):
            raise BadAvro("a block does not fit its schema")
        self._out += self._data[self._copied :]
        return bytes(self._out)

    def _pass(self, schema: Any, name: str) -> None:
        """Advance past one value of type `schema`, the field `name` of its record."""
        if isinstance(schema, list):
            self._pass(schema[self._next_long()], name)
            return
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            self._pass(kind, name)
        elif kind in ("int", "long", "enum"):
            self._pass_number(name)
        elif kind in ("string", "bytes"):
            self._pass_text(name)
        elif kind in _FIXED_BYTES:
            self._place += _FIXED_BYTES[kind]
        else:
            self._pass_composite(schema, kind)

    def _pass_composite(self, schema: Any, kind: str) -> None:
        if kind == "record":
            self._named[schema["name"]] = schema
            for field in schema["fields"]:
                self._pass(field["type"], field["name"])
        elif kind == "fixed":
            self._named[schema["name"]] = schema
            self._place += schema["size"]
        elif kind == "array":
            self._pass_items(schema["items"])
        elif kind == "map":
            self._pass_items("string", schema["values"])
        elif kind in self._named:
            self._pass(self._named[kind], "")
        else:
            raise BadAvro(f"unknown type {kind!r}")

    def _pass_items(self, *schemas: Any) -> None:
        while count := self._next_long():
            if count < 0:
                self._next_long()
            for _ in range(abs(count)):
                for schema in schemas:
                    self._pass(schema, "")

    def _pass_number(self, name: str) -> None:
        start = self._place
        value = self._next_long()
        if name == "manifest_length":
            size = self._size_of(self._manifest)
            if size is not None and size != value:
                self._replace(start, _encoded(size))
        elif name == "content" and value == _POSITION_DELETES and not self._manifest:
            raise BadAvro("it names position delete files, whose rows contain paths too")

    def _pass_text(self, name: str) -> None:
        start = self._place
        size = self._next_long()
        begin, self._place = self._place, self._place + size
        if name not in _PATHS:
            return
        path = self._data[begin : self._place].decode()
        changed = self._change(path)
        if name == "manifest_path":
            self._manifest = changed
        if changed != path:
            text = changed.encode()
            self._replace(start, _encoded(len(text)) + text)

    def _next_long(self) -> int:
        value, self._place = _long(self._data, self._place)
        return value

    def _replace(self, start: int, value: bytes) -> None:
        self._out += self._data[self._copied : start] + value
        self._copied = self._place


def _header(content: bytes) -> tuple[Mapping[str, str], int]:
    """The file's metadata, and the offset of its first block."""
    if not content.startswith(MAGIC):
        raise BadAvro("it is not an Avro file")
    metadata: dict[str, str] = {}
    place = len(MAGIC)
    while True:
        count, place = _long(content, place)
        if count == 0:
            return metadata, place + _SYNC_BYTES
        if count < 0:
            _, place = _long(content, place)
        for _ in range(abs(count)):
            key, place = _text(content, place)
            metadata[key], place = _text(content, place)


def _text(data: bytes, place: int) -> tuple[str, int]:
    size, place = _long(data, place)
    return data[place : place + size].decode(), place + size


def _long(data: bytes, place: int) -> tuple[int, int]:
    """A zigzag-encoded integer, and the offset after it."""
    value = shift = 0
    try:
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), place
            shift += 7
    except IndexError as error:
        raise BadAvro("it is truncated") from error


def _encoded(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
