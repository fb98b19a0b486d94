"""One use of a function, without input and output: requests in, responses out."""

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from gateways.kapacitor.function import Batch, Function, Options, OptionsRefused
from protobuf.udf_superset_pb2 import BeginBatch, EdgeType, OptionInfo, Point, Request, Response, ValueType

__all__ = ["FunctionKind", "MakeFunction", "Refused", "Session", "info_of"]

_VERSION = 1
#: The version, and a checksum of the rest.
_HEAD = struct.Struct("<BI")


#: A daemon that waits for the answer to init, or has not yet read a refusal, may ask for a snapshot.
_WITHOUT_FUNCTION = ("info", "init", "keepalive", "snapshot")


class Refused(Exception):
    """The daemon violated the protocol; the text ends the task."""


class MakeFunction(Protocol):
    def __call__(self, options: Options, *, is_batch: bool) -> Function:
        """Raises OptionsRefused."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionKind:
    """An available function. `options`: by name, the types of one call's arguments; `make` may import what takes
    long.
    """

    name: str
    options: Mapping[str, Sequence[ValueType]]
    make: MakeFunction


def info_of(kind: FunctionKind, *, is_batch: bool) -> Response:
    """The description of the function, made without importing it."""
    response = Response()
    edge = EdgeType.BATCH if is_batch else EdgeType.STREAM
    response.info.wants = response.info.provides = edge
    for name, types in kind.options.items():
        response.info.options[name].CopyFrom(OptionInfo(valueTypes=types))
    return response


def _ignore(event: str, **_: object) -> None:
    pass


@dataclass(kw_only=True, slots=True)
class Session:
    """`say`: writes one line to the log, an event and its values."""

    kind: FunctionKind
    is_batch: bool = False
    say: Callable[..., None] = _ignore
    function: Function | None = None
    _is_refused: bool = False
    _begin: BeginBatch | None = None
    _points: list[Point] = field(default_factory=list)

    def answer(self, requests: Sequence[Request], now_ns: int = 0) -> list[Response]:
        """Responses to consecutive `requests`, except keepalives: those must not wait for their turn, and only pass the
        time here. Raises Refused.
        """
        responses: list[Response] = []
        for kind, run in groupby(requests, key=lambda request: request.WhichOneof("message")):
            if self._is_refused and kind not in _WITHOUT_FUNCTION:
                continue
            if kind == "point":
                responses += self._take([request.point for request in run])
            else:
                for request in run:
                    responses += self._one(kind or "", request, now_ns)
        return responses

    def finish(self) -> list[Response]:
        """The daemon has closed the input. Output of an unfinished batch is dropped."""
        if self.function is None:
            return []
        if self._begin is not None:
            self.say("unfinished_batch_dropped", points=len(self._points))
        return self.function.finish()

    def close(self) -> None:
        """Call once, however the use has ended."""
        if self.function is not None:
            self.function.close()
            self.say("finished", **self.function.counts)

    def _one(self, kind: str, request: Request, now_ns: int) -> list[Response]:
        response = Response()
        if kind == "info":
            return [info_of(self.kind, is_batch=self.is_batch)]
        if kind == "keepalive":
            # The bars of a batch are emitted at its own end.
            return [] if self.function is None or self.is_batch else self.function.pass_time(now_ns)
        if kind == "init":
            self._init(request, response)
            return [response]
        if kind == "snapshot" and self._is_refused:
            response.snapshot.SetInParent()
            return [response]
        function = self._running(kind)
        if kind == "snapshot":
            state = function.snapshot()
            response.snapshot.snapshot = _HEAD.pack(_VERSION, zlib.crc32(state)) + state if state else b""
            return [response]
        if kind == "restore":
            self._restore(function, request.restore.snapshot)
            response.restore.success = True
            return [response]
        if not self.is_batch:
            raise Refused(f"received {kind} instead of points of a stream")
        if kind == "begin":
            if self._begin is not None:
                raise Refused("a batch began inside another one")
            self._begin, self._points = request.begin, []
            return []
        if kind == "end":
            begin, points = self._begin, self._points
            if begin is None:
                raise Refused("a batch ended that never began")
            self._begin, self._points = None, []
            return function.take_batch(Batch.of(begin, points, request.end))
        raise Refused("a request had no known content")

    def _init(self, request: Request, response: Response) -> None:
        if self.function is not None:
            response.init.error = "the function was already initialised"
            return
        try:
            options = Options.of(request.init.options, self.kind.options)
            self.function = self.kind.make(options, is_batch=self.is_batch)
        except OptionsRefused as error:
            response.init.error = f"{self.kind.name}: {error}"
            self._is_refused = True
            return
        response.init.success = True
        self.say("initialised", task=request.init.taskID, node=request.init.nodeID)

    def _restore(self, function: Function, snapshot: bytes) -> None:
        """Never fails, because a failure would end the task at each of its starts until a user deletes it. A state that
        other code has made may be unreadable in any way.
        """
        if not snapshot:
            return
        try:
            version, checksum = _HEAD.unpack_from(snapshot)
            state = snapshot[_HEAD.size :]
            if version != _VERSION:
                raise ValueError(f"its version is {version}")
            if zlib.crc32(state) != checksum:
                raise ValueError("it is damaged")
            function.restore(state)
        except Exception as error:  # See above.
            self.say("snapshot_not_used", bytes=len(snapshot), reason=f"{type(error).__name__}: {error}")
            function.restore(None)

    def _take(self, points: list[Point]) -> list[Response]:
        function = self._running("point")
        if not self.is_batch:
            return function.take(points)
        if self._begin is None:
            raise Refused("a point came outside a batch")
        self._points += points
        return []

    def _running(self, kind: str) -> Function:
        if self.function is None:
            raise Refused(f"{kind or 'an empty request'} came before init")
        return self.function
