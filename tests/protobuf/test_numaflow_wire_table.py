"""The published source.proto equals the fixed wire contract, and the superset that is served is wire-equal to it."""

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from protobuf import generate, source_superset_pb2

_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}

Table = dict[str, dict[str, list[object]]]


def _type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{_type_of(key)}, {_type_of(value)}>"
    if field.message_type is not None:
        name = field.message_type.full_name
    else:
        name = field.enum_type.full_name if field.enum_type is not None else _SCALARS[field.type]
    if field.is_repeated:
        return f"repeated {name}"
    oneof = field.containing_oneof
    return f"optional {name}" if oneof is not None and oneof.name.startswith("_") else name


def _messages(descriptors: list[Descriptor]) -> Table:
    found: Table = {}
    for descriptor in descriptors:
        if not descriptor.GetOptions().map_entry:
            found[descriptor.full_name] = {f.name: [f.number, _type_of(f)] for f in descriptor.fields}
            found |= _messages(list(descriptor.nested_types))
    return found


def _methods(service: ServiceDescriptor) -> dict[str, list[str]]:
    def side(is_stream: bool, message: Descriptor) -> str:
        return f"{'stream ' if is_stream else ''}{message.full_name}"

    return {
        method.name: [
            side(method.client_streaming, method.input_type),
            side(method.server_streaming, method.output_type),
        ]
        for method in service.methods
    }


@pytest.fixture
def published(tmp_path: Path) -> FileDescriptor:
    """The file as a stock compiler reads it, in a pool of its own."""
    from grpc_tools import protoc

    own = Path(protoc.__file__).parent / "_proto"
    out = tmp_path / "set"
    arguments = ["protoc", f"-I{generate.ROOT}", f"-I{own}", f"--descriptor_set_out={out}", "--include_imports"]
    assert protoc.main([*arguments, "protobuf/source.proto"]) == 0
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    return pool.FindFileByName("protobuf/source.proto")


def test_published_source_equals_the_wire_table(shared_data: Path, published: FileDescriptor) -> None:
    table = json.loads((shared_data.parent / "seeds" / "000_numaflow_source.json").read_text())
    assert published.package == table["files"][0]["package"]
    messages = list(published.message_types_by_name.values())
    assert _messages(messages) == table["messages"]
    enums = [enum for message in messages for nested in message.nested_types for enum in nested.enum_types]
    assert {e.full_name: {v.name: v.number for v in e.values} for e in enums} == table["enums"]
    assert {s.full_name: _methods(s) for s in published.services_by_name.values()} == table["services"]


def test_superset_adds_to_the_published_source_and_takes_nothing_away(published: FileDescriptor) -> None:
    before = _messages(list(published.message_types_by_name.values()))
    after = _messages(list(source_superset_pb2.DESCRIPTOR.message_types_by_name.values()))
    # A list on the wire where the published file has one: its number and type stay.
    assert before.pop("source.v1.AckRequest.Request") == {"offset": [1, "source.v1.Offset"]}
    assert after.pop("source.v1.AckRequest.Request") == {"offsets": [1, "repeated source.v1.Offset"]}
    for name, fields in before.items():
        assert fields.items() <= after[name].items(), name
    methods = _methods(published.services_by_name["Source"])
    assert methods.items() <= _methods(source_superset_pb2.DESCRIPTOR.services_by_name["Source"]).items()
