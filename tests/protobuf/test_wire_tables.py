"""The compiled descriptors equal the fixed wire contract, and the committed classes equal the files."""

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from protobuf import generate, ingestor_pb2

_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def _messages(descriptors: list[Descriptor]) -> dict[str, dict[str, list[object]]]:
    found = {}
    for descriptor in descriptors:
        if descriptor.GetOptions().map_entry:
            continue
        found[descriptor.full_name] = {f.name: [f.number, _type_of(f)] for f in descriptor.fields}
        found |= _messages(list(descriptor.nested_types))
    return found


def _type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{_type_of(key)}, {_type_of(value)}>"
    if field.message_type is not None:
        name = field.message_type.full_name
    elif field.enum_type is not None:
        name = field.enum_type.full_name
    else:
        name = _SCALARS[field.type]
    if field.is_repeated:
        return f"repeated {name}"
    oneof = field.containing_oneof
    if oneof is not None and oneof.name.startswith("_"):
        return f"optional {name}"
    return f"{name} (oneof {oneof.name})" if oneof is not None else name


def _enums() -> dict[str, dict[str, int]]:
    enums: list[EnumDescriptor] = list(ingestor_pb2.DESCRIPTOR.enum_types_by_name.values())
    for message in ingestor_pb2.DESCRIPTOR.message_types_by_name.values():
        enums += message.enum_types
    return {enum.full_name: {value.name: value.number for value in enum.values} for enum in enums}


def test_ingestor_messages_equal_the_wire_table(shared_data: Path) -> None:
    table = json.loads((shared_data.parent / "seeds" / "004_ingestor.json").read_text())
    assert _messages(list(ingestor_pb2.DESCRIPTOR.message_types_by_name.values())) == table["messages"]
    assert _enums() == table["enums"]
    assert ingestor_pb2.DESCRIPTOR.package == table["files"][0]["package"]
    assert table["files"][0]["syntax"] == "proto3"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_committed_classes_are_what_the_files_generate(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    generated = sorted(tmp_path.rglob("*_pb2.py*"))
    assert generated
    for file in generated:
        name = file.relative_to(tmp_path)
        assert (generate.ROOT / name).read_text() == file.read_text(), name
