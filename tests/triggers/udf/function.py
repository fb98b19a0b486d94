"""An external function in a separate process, which sums the field x by group.

Its first argument says how it misbehaves; the second names a file in which it notes that it has done so, so that it
does so only once.
"""

import os
import sys
import time
from pathlib import Path

from protobuf import udf_frames
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import EdgeType, OptionInfo, Request, Response, ValueType

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
NOTE = Path(sys.argv[2]) if len(sys.argv) > 2 else None
IS_BATCH = MODE.startswith("batch")
FRAMES = iter(FrameReader(lambda size: os.read(0, size), Request).next, None)


def write(*responses: Response) -> None:
    data = memoryview(b"".join(map(udf_frames.encode, responses)))
    while data:
        data = data[os.write(1, data) :]


def misbehave() -> None:
    if NOTE is not None:
        if NOTE.exists():
            return
        NOTE.touch()
    wrong = Response()
    if MODE == "empty":
        write(wrong)
    elif MODE == "batch-end-alone":
        wrong.end.SetInParent()
        write(wrong)
    elif MODE == "batch-negative":
        wrong.begin.size = -1
        write(wrong)
    elif MODE == "batch-huge":
        wrong.begin.size = 1 << 60
        write(wrong)
    elif MODE == "stream-begin":
        wrong.begin.SetInParent()
        write(wrong)
    elif MODE == "garbage":
        os.write(1, b"\x05\xff\xff\xff\xff\xff")
    elif MODE == "long-frame":
        os.write(1, b"\xff\xff\xff\xff\xff\x7f")
    elif MODE == "crash":
        os._exit(3)
    elif MODE == "half-frame":
        os.write(1, b"\x50\x01")
        os._exit(0)
    elif MODE == "error":
        wrong.error.error = "no more"
        write(wrong)
    elif MODE == "silence":
        time.sleep(3_600)
    elif MODE == "hang":
        # Its work hangs, while a separate thread answers keepalives.
        for request in FRAMES:
            if request.HasField("keepalive"):
                alive = Response()
                alive.keepalive.time = request.keepalive.time
                write(alive)
    elif MODE == "unasked":
        wrong.snapshot.snapshot = b"666"
        write(wrong)
    elif MODE == "log":
        os.write(2, b"x" * 200_000 + b"\n" + b"short\n" * 20_000)


def main() -> None:
    sums: dict[str, int] = {}
    held: list[Response] = []
    for request in FRAMES:
        kind = request.WhichOneof("message")
        response = Response()
        if kind == "info":
            response.info.wants = response.info.provides = EdgeType.BATCH if IS_BATCH else EdgeType.STREAM
            response.info.options["times"].CopyFrom(OptionInfo(valueTypes=[ValueType.INT]))
            response.info.options["label"].CopyFrom(OptionInfo(valueTypes=[ValueType.STRING, ValueType.DURATION]))
        elif kind == "init":
            response.init.success = MODE != "refuse"
            response.init.error = "" if response.init.success else "not today"
        elif kind == "keepalive":
            response.keepalive.time = 0 if MODE == "no-echo" else request.keepalive.time
        elif kind == "snapshot":
            response.snapshot.snapshot = "\n".join(f"{key}\t{sums[key]}" for key in sorted(sums)).encode()
        elif kind == "restore":
            response.restore.success = MODE != "refuse-state"
            if response.restore.success:
                for line in request.restore.snapshot.decode().splitlines():
                    key, value = line.split("\t")
                    sums[key] = int(value)
        elif kind == "point":
            point = request.point
            sums[point.group] = sums.get(point.group, 0) + point.fieldsInt["x"]
            if point.fieldsInt["x"] == 13:
                misbehave()
            response.point.CopyFrom(point)
            response.point.fieldsInt["sum"] = sums[point.group]
            if MODE == "slow":
                time.sleep(0.1)
            if MODE == "flood":
                write(*[response] * 50)
        elif kind == "begin":
            response.begin.CopyFrom(request.begin)
        elif kind == "end":
            response.end.CopyFrom(request.end)
        if MODE == "behind" and kind == "point":
            # Like an agent that passes points on in a separate thread: after the answers that were requested later.
            held.append(response)
            continue
        write(response)
        if kind == "keepalive":
            write(*held)
            held.clear()


main()
