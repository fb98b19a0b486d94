"""A client of Kafka-Pixy in a separate process, with classes made from the published file as its users do.

`python kafka_pixy_client.py FILE.proto FOLDER ADDRESS`; each line of input is a call as JSON (bytes as hex):
`[method, {field: value}]`; each line of output its answer, or `{"error": [code, text]}`.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import grpc
from grpc_tools import protoc


def main() -> None:
    proto, folder, address = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    folder.mkdir(exist_ok=True)
    shutil.copy(proto, folder / "grpc.proto")
    arguments = ["protoc", f"-I{folder}", f"--python_out={folder}", f"--grpc_python_out={folder}", "grpc.proto"]
    if protoc.main(arguments) != 0:
        raise SystemExit("the compiler refuses the published file")
    sys.path.insert(0, str(folder))
    import grpc_pb2  # type: ignore[import-not-found]
    import grpc_pb2_grpc  # type: ignore[import-not-found]

    stub = grpc_pb2_grpc.KafkaPixyStub(grpc.insecure_channel(address))
    requests = {"Produce": grpc_pb2.ProdRq, "ConsumeNAck": grpc_pb2.ConsNAckRq, "Ack": grpc_pb2.AckRq}
    for line in sys.stdin:
        method, fields = json.loads(line)
        given = {k: bytes.fromhex(v) if k in ("message", "key_value") else v for k, v in fields.items()}
        try:
            answer = getattr(stub, method)(requests[method](**given), timeout=60, wait_for_ready=True)
            found: dict[str, Any] = {field.name: getattr(answer, field.name) for field in answer.DESCRIPTOR.fields}
        except grpc.RpcError as error:
            found = {"error": [error.code().name, error.details()]}
        sys.stdout.write(json.dumps(found, default=bytes.hex) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
