"""A small daemon for tests: drives a function in another process as kapacitord does, over pipes or a socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from protobuf import udf_frames
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import Option, OptionValue, Point, Request, Response, ValueType

COMMAND = (sys.executable, "-m", "candlewright", "kapacitor-udf")
SECOND = 1_000_000_000
Value = bool | int | float | str


def option(name: str, *values: Value | tuple[str, int]) -> Option:
    """A tuple ("ns", n) is a duration."""
    found = Option(name=name)
    for value in values:
        if isinstance(value, tuple):
            found.values.append(OptionValue(type=ValueType.DURATION, durationValue=value[1]))
        elif isinstance(value, bool):
            found.values.append(OptionValue(type=ValueType.BOOL, boolValue=value))
        elif isinstance(value, int):
            found.values.append(OptionValue(type=ValueType.INT, intValue=value))
        elif isinstance(value, float):
            found.values.append(OptionValue(type=ValueType.DOUBLE, doubleValue=value))
        else:
            found.values.append(OptionValue(type=ValueType.STRING, stringValue=value))
    return found


def seconds(count: float) -> tuple[str, int]:
    return ("ns", round(count * SECOND))


def point(time: int, fields: Mapping[str, Value], name: str = "trades", **tags: str) -> Point:
    """A point of a stream grouped by all of its tags."""
    made = Point(time=time, name=name, database="market", retentionPolicy="autogen", dimensions=sorted(tags), tags=tags)
    made.group = ",".join(f"{tag}={tags[tag]}" for tag in sorted(tags))
    for field, value in fields.items():
        if isinstance(value, bool):
            made.fieldsBool[field] = value
        elif isinstance(value, int):
            made.fieldsInt[field] = value
        elif isinstance(value, float):
            made.fieldsDouble[field] = value
        else:
            made.fieldsString[field] = value
    return made


def request(kind: str, **fields: object) -> Request:
    found = Request()
    member = getattr(found, kind)
    member.SetInParent()
    for name, value in fields.items():
        setattr(member, name, value)
    return found


def init(options: Sequence[Option]) -> Request:
    found = Request()
    found.init.options.extend(options)
    found.init.taskID, found.init.nodeID = "task", "ohlc2"
    return found


def batch(points: Sequence[Point], tmax: int, name: str = "trades", **tags: str) -> list[Request]:
    """Begin, points and end; the points as the daemon sends them in a batch, without fields of begin and end."""
    begin, end = Request(), Request()
    group = ",".join(f"{tag}={tags[tag]}" for tag in sorted(tags))
    begin.begin.name = end.end.name = name
    begin.begin.group = end.end.group = group
    begin.begin.tags.update(tags)
    end.end.tags.update(tags)
    end.end.tmax = tmax
    begin.begin.size = len(points)
    inner = []
    for one in points:
        bare = Point(time=one.time, group=group, tags=one.tags)
        bare.fieldsDouble.update(one.fieldsDouble)
        bare.fieldsInt.update(one.fieldsInt)
        inner.append(Request(point=bare))
    return [begin, *inner, end]


class Daemon:
    """One use of a function: `arguments` of the command for a process, or a connection to `path`."""

    def __init__(self, *arguments: str, path: Path | None = None, cwd: Path | None = None, **environment: str) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        if path is not None:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(str(path))
            self._socket.settimeout(60)
            self.frames = FrameReader(self._socket.recv, Response)
            return
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=cwd,
            env={**os.environ, **environment},
            bufsize=0,
        )
        output = self._pipe(self.process.stdout)
        self.frames = FrameReader(output.read, Response)

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

    def send(self, requests: Iterable[Request]) -> None:
        self.send_bytes(b"".join(map(udf_frames.encode, requests)))

    def send_bytes(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.sendall(data)
            return
        assert self.process is not None
        pipe = self._pipe(self.process.stdin)
        rest = memoryview(data)
        while rest:
            rest = rest[pipe.write(rest) :]

    def receive(self) -> Response:
        found = self.frames.next()
        assert found is not None, "the function closed its output"
        return found

    def ask(self, asked: Request) -> Response:
        self.send([asked])
        return self.receive()

    def points_until(self, kind: str) -> tuple[list[Response], Response]:
        """The points before an answer of one kind, and that answer."""
        before = []
        while (found := self.receive()).WhichOneof("message") != kind:
            before.append(found)
        return before, found

    def close_input(self) -> list[Response]:
        """Ends politely; returns everything that still arrives."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_WR)
        elif self.process is not None:
            self._pipe(self.process.stdin).close()
        return list(iter(self.frames.next, None))

    def wait(self) -> tuple[int, str]:
        """Exit code and log of the process, whose output has ended."""
        assert self.process is not None
        log = self._pipe(self.process.stderr).read().decode()
        return self.process.wait(30), log

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._socket is not None:
            self._socket.close()
        if self.process is not None:
            self.process.kill()
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()
            self.process.wait()
