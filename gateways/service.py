"""A gRPC service built from its compiled descriptor, without generated server code."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

#: Keyed by (client streams, server streams).
_KINDS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def handlers_of(
    service: ServiceDescriptor, behaviours: Mapping[str, Callable[..., Any]], name: str = ""
) -> grpc.GenericRpcHandler:
    """Serve `behaviours` (a coroutine function or asynchronous generator by method) under `name`, by default the
    service's own. A method without one is answered UNIMPLEMENTED. Raises KeyError if the service lacks a method.
    """
    methods = service.methods_by_name
    handlers = {
        method: _KINDS[methods[method].client_streaming, methods[method].server_streaming](
            behaviour,
            request_deserializer=GetMessageClass(methods[method].input_type).FromString,
            response_serializer=GetMessageClass(methods[method].output_type).SerializeToString,
        )
        for method, behaviour in behaviours.items()
    }
    return grpc.method_handlers_generic_handler(name or service.full_name, handlers)
