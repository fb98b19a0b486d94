"""Results: the gRPC status stays OK, and every reply has a `common` with one of these codes."""

from google.rpc import code_pb2, status_pb2

from candlewright.wire.errors import CandlewrightError
from protobuf.apache.rocketmq.v1 import service_pb2 as service

OK = code_pb2.OK
INVALID_ARGUMENT = code_pb2.INVALID_ARGUMENT
DEADLINE_EXCEEDED = code_pb2.DEADLINE_EXCEEDED
NOT_FOUND = code_pb2.NOT_FOUND
PERMISSION_DENIED = code_pb2.PERMISSION_DENIED
RESOURCE_EXHAUSTED = code_pb2.RESOURCE_EXHAUSTED
OUT_OF_RANGE = code_pb2.OUT_OF_RANGE
INTERNAL = code_pb2.INTERNAL
UNAVAILABLE = code_pb2.UNAVAILABLE
UNAUTHENTICATED = code_pb2.UNAUTHENTICATED


class Refused(CandlewrightError):
    """A call answered with `code` and a sentence for the client."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def common(code: int = OK, text: str = "OK") -> service.ResponseCommon:
    return service.ResponseCommon(status=status_pb2.Status(code=code, message=text))


def name_of(code: int) -> str:
    return str(code_pb2.Code.Name(code))
