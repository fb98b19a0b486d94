"""The compiled descriptors of RocketMQ's v1 service equal the fixed wire contract."""

import json
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from protobuf.apache.rocketmq.v1 import definition_pb2, service_pb2

_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}
_FILES = (definition_pb2.DESCRIPTOR, service_pb2.DESCRIPTOR)


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
    return name if field.containing_oneof is None else f"{name} (oneof {field.containing_oneof.name})"


def _fields(message: Descriptor) -> dict[str, list[object]]:
    return {field.name: [field.number, _type_of(field)] for field in message.fields}


def test_rocketmq_v1_equals_the_wire_table(shared_data: Path) -> None:
    table = json.loads((shared_data.parent / "seeds" / "003_rocketmq_v1.json").read_text())
    messages = [message for file in _FILES for message in file.message_types_by_name.values()]
    enums = [enum for file in _FILES for enum in file.enum_types_by_name.values()]
    enums += [enum for message in messages for enum in message.enum_types]
    assert {message.full_name: _fields(message) for message in messages} == table["messages"]
    assert {enum.full_name: {v.name: v.number for v in enum.values} for enum in enums} == table["enums"]
    services = {
        service.full_name: {m.name: [m.input_type.full_name, m.output_type.full_name] for m in service.methods}
        for service in service_pb2.DESCRIPTOR.services_by_name.values()
    }
    assert services == table["services"]
    assert [{"file": f.name, "package": f.package} for f in _FILES] == [
        {"file": f["file"], "package": f["package"]} for f in table["files"]
    ]
