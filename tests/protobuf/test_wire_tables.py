"""The published files equal the fixed wire contracts, the compiled files only add to them, and the committed classes
are those that the files generate.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc_tools
import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import status_pb2

from protobuf import generate, source_superset_pb2, udf_superset_pb2

_SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}
#: Where a stock compiler finds our files, and those of Google that they import.
_FOLDERS = (
    generate.ROOT / "protobuf",
    Path(grpc_tools.__file__).parent / "_proto",
    Path(status_pb2.__file__).parent.parent.parent,
)

Table = dict[str, dict[str, list[object]]]


def _published(names: Iterable[str], folder: Path) -> list[FileDescriptor]:
    """The files as a stock compiler reads them, in a separate descriptor pool."""
    from grpc_tools import protoc

    out = folder / "set"
    arguments = ["protoc", *(f"-I{each}" for each in _FOLDERS), f"--descriptor_set_out={out}", "--include_imports"]
    assert protoc.main([*arguments, *names]) == 0
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(out.read_bytes()).file:
        assert file.syntax == "proto3"
        pool.Add(file)  # type: ignore[no-untyped-call]
    return [pool.FindFileByName(name) for name in names]


def _type_of(field: FieldDescriptor) -> str:
    message, enum, oneof = field.message_type, field.enum_type, field.containing_oneof
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields
        return f"map<{_type_of(key)}, {_type_of(value)}>"
    name = message.full_name if message is not None else enum.full_name if enum is not None else _SCALARS[field.type]
    if field.is_repeated:
        return f"repeated {name}"
    if oneof is None:
        return name
    return f"optional {name}" if oneof.name.startswith("_") else f"{name} (oneof {oneof.name})"


def _all_messages(descriptors: Iterable[Descriptor]) -> list[Descriptor]:
    own = [each for each in descriptors if not each.GetOptions().map_entry]
    return own + [nested for each in own for nested in _all_messages(each.nested_types)]


def _messages(*files: FileDescriptor) -> Table:
    found = [each for file in files for each in _all_messages(file.message_types_by_name.values())]
    return {each.full_name: {f.name: [f.number, _type_of(f)] for f in each.fields} for each in found}


def _enums(*files: FileDescriptor) -> dict[str, dict[str, int]]:
    found: list[EnumDescriptor] = [each for file in files for each in file.enum_types_by_name.values()]
    for file in files:
        found += [e for each in _all_messages(file.message_types_by_name.values()) for e in each.enum_types]
    return {each.full_name: {value.name: value.number for value in each.values} for each in found}


def _services(*files: FileDescriptor) -> dict[str, dict[str, list[str]]]:
    def side(*, is_stream: bool, message: Descriptor) -> str:
        return f"{'stream ' if is_stream else ''}{message.full_name}"

    return {
        service.full_name: {
            method.name: [
                side(is_stream=method.client_streaming, message=method.input_type),
                side(is_stream=method.server_streaming, message=method.output_type),
            ]
            for method in service.methods
        }
        for file in files
        for service in file.services_by_name.values()
    }


@pytest.mark.parametrize(
    "seed", ["000_numaflow_source", "001_kafka_pixy", "002_kapacitor_udf", "003_rocketmq_v1", "004_ingestor"]
)
def test_published_files_equal_the_wire_table(shared_data: Path, tmp_path: Path, seed: str) -> None:
    table: dict[str, Any] = json.loads((shared_data.parent / "seeds" / f"{seed}.json").read_text())
    files = _published([file["file"] for file in table["files"]], tmp_path)
    assert [file.package for file in files] == [file["package"] for file in table["files"]]
    assert _messages(*files) == table["messages"]
    assert _enums(*files) == table["enums"]
    assert _services(*files) == table["services"]


def test_numaflow_superset_adds_to_the_published_source_and_takes_nothing_away(tmp_path: Path) -> None:
    (published,) = _published(["source.proto"], tmp_path)
    before, after = _messages(published), _messages(source_superset_pb2.DESCRIPTOR)
    # A list on the wire where the published file has one: its number and type stay.
    assert before.pop("source.v1.AckRequest.Request") == {"offset": [1, "source.v1.Offset"]}
    assert after.pop("source.v1.AckRequest.Request") == {"offsets": [1, "repeated source.v1.Offset"]}
    for name, fields in before.items():
        assert fields.items() <= after[name].items(), name
    (methods,) = _services(published).values()
    assert methods.items() <= _services(source_superset_pb2.DESCRIPTOR)["source.v1.Source"].items()


def test_the_kapacitor_superset_adds_fields_of_later_daemons_and_changes_none(tmp_path: Path) -> None:
    (published,) = _published(["udf.proto"], tmp_path)
    before, after = _messages(published), _messages(udf_superset_pb2.DESCRIPTOR)
    added = {
        "udf.InitRequest": {"taskID": [2, "string"], "nodeID": [3, "string"]},
        "udf.BeginBatch": {"size": [4, "int64"], "byName": [5, "bool"]},
        "udf.Point": {"byName": [11, "bool"], "fieldsBool": [12, "map<string, bool>"]},
        "udf.EndBatch": {"byName": [5, "bool"]},
    }
    assert after == {name: fields | added.get(name, {}) for name, fields in before.items()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_committed_classes_equal_the_generated_ones(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    generated = sorted(tmp_path.rglob("*_pb2.py*"))
    assert generated
    for file in generated:
        name = file.relative_to(tmp_path)
        assert (generate.ROOT / name).read_text() == file.read_text(), name
