"""The published udf.proto equals the fixed wire contract, and the superset only adds what later daemons have."""

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from protobuf import generate, udf_superset_pb2

_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_DOUBLE: "double",
}

Table = dict[str, dict[str, list[object]]]


def _type_of(field: FieldDescriptor) -> str:
    message, enum, oneof = field.message_type, field.enum_type, field.containing_oneof
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields
        return f"map<{_type_of(key)}, {_type_of(value)}>"
    name = message.full_name if message is not None else enum.full_name if enum is not None else _SCALARS[field.type]
    if field.is_repeated:
        return f"repeated {name}"
    return f"{name} (oneof {oneof.name})" if oneof is not None else name


def _messages(descriptors: list[Descriptor]) -> Table:
    return {one.full_name: {f.name: [f.number, _type_of(f)] for f in one.fields} for one in descriptors}


@pytest.fixture
def published(tmp_path: Path) -> FileDescriptor:
    """The file as a stock compiler reads it, in a pool of its own."""
    from grpc_tools import protoc

    out = tmp_path / "set"
    arguments = ["protoc", f"-I{generate.ROOT}", f"--descriptor_set_out={out}", "protobuf/udf.proto"]
    assert protoc.main(arguments) == 0
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    return pool.FindFileByName("protobuf/udf.proto")


def test_published_udf_equals_the_wire_table(shared_data: Path, published: FileDescriptor) -> None:
    table = json.loads((shared_data.parent / "seeds" / "002_kapacitor_udf.json").read_text())
    assert published.package == table["files"][0]["package"]
    assert table["files"][0]["syntax"] == "proto3"
    assert _messages(list(published.message_types_by_name.values())) == table["messages"]
    enums = published.enum_types_by_name.values()
    assert {enum.full_name: {v.name: v.number for v in enum.values} for enum in enums} == table["enums"]
    assert not published.services_by_name


def test_superset_adds_what_later_daemons_send_and_changes_nothing(published: FileDescriptor) -> None:
    before = _messages(list(published.message_types_by_name.values()))
    after = _messages(list(udf_superset_pb2.DESCRIPTOR.message_types_by_name.values()))
    assert before.keys() == after.keys()
    added = {
        name: {field: kind for field, kind in fields.items() if field not in before[name]}
        for name, fields in after.items()
        if fields != before[name]
    }
    assert added == {
        "udf.InitRequest": {"taskID": [2, "string"], "nodeID": [3, "string"]},
        "udf.BeginBatch": {"size": [4, "int64"], "byName": [5, "bool"]},
        "udf.Point": {"byName": [11, "bool"], "fieldsBool": [12, "map<string, bool>"]},
        "udf.EndBatch": {"byName": [5, "bool"]},
    }
    for name, fields in before.items():
        assert fields.items() <= after[name].items(), name
