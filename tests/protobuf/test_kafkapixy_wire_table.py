"""kafkapixy.proto equals the fixed wire contract."""

import json
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from protobuf import kafkapixy_pb2

_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


def test_kafka_pixy_messages_and_methods_equal_the_wire_table(shared_data: Path) -> None:
    table = json.loads((shared_data.parent / "seeds" / "001_kafka_pixy.json").read_text())
    file = kafkapixy_pb2.DESCRIPTOR
    assert (Path(file.name).name, file.package) == (table["files"][0]["file"], table["files"][0]["package"])
    assert {
        name: {field.name: [field.number, _SCALARS[field.type]] for field in message.fields}
        for name, message in file.message_types_by_name.items()
    } == table["messages"]
    assert {
        name: {method.name: [method.input_type.full_name, method.output_type.full_name] for method in service.methods}
        for name, service in file.services_by_name.items()
    } == table["services"]
    (service,) = file.services_by_name.values()
    assert not any(method.client_streaming or method.server_streaming for method in service.methods)
    assert not file.enum_types_by_name
