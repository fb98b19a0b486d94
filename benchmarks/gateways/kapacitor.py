"""Points per second through the function `ohlc` over its pipes, against a function that echoes each point.

Both are separate processes that use the same frames and go through one session each: init, all points as a daemon sends
them, and a snapshot. The answer to the snapshot stops the clock, because everything before it has been answered by
then. Rounds alternate; rates are medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateways.kapacitor.function import Batch
from gateways.kapacitor.server import serve_process
from gateways.kapacitor.session import FunctionKind
from protobuf import udf_frames
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import Option, OptionValue, Point, Request, Response, ValueType

ROOT = Path(__file__).resolve().parents[2]
_SECOND = 1_000_000_000
_PERIOD_SECONDS = 60
_START = 1_704_067_200 * _SECOND
_COMMANDS = {
    "floor": (sys.executable, "-m", "benchmarks.gateways.kapacitor", "--echo"),
    "ohlc": (sys.executable, "-m", "candlewright", "kapacitor-udf", "ohlc"),
}


class _Echo:
    """The floor: frames in and out, without any work."""

    counts: Mapping[str, int] = {}

    def take(self, points: Sequence[Point]) -> list[Response]:
        return [Response(point=point) for point in points]

    def take_batch(self, batch: Batch) -> list[Response]:
        return []

    def pass_time(self, now_ns: int) -> list[Response]:
        return []

    def finish(self) -> list[Response]:
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes | None) -> None:
        """It has no state."""

    def close(self) -> None:
        """It has no state to restore."""


#: It gets the options of `ohlc`.
_ECHO = FunctionKind("echo", {"period": (ValueType.DURATION,)}, lambda options, *, is_batch: _Echo())


def run(points: int = 100_000, groups: int = 4, per_second: int = 20, *, rounds: int = 3) -> dict[str, Any]:
    """`rows`: points through `ohlc` in all rounds; `result_rows`: bars returned, one per minute and group.

    `per_second`: points of a group in a second of event time.
    """
    option = OptionValue(type=ValueType.DURATION, durationValue=_PERIOD_SECONDS * _SECOND)
    init, snapshot = Request(), Request()
    init.init.options.append(Option(name="period", values=[option]))
    snapshot.snapshot.SetInParent()
    frames = b"".join(map(udf_frames.encode, [*_trades(points, groups, per_second), snapshot]))
    seconds: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    used: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    results = dict.fromkeys(_COMMANDS, 0)
    for _ in range(rounds):
        for name, command in _COMMANDS.items():
            taken, cpu_seconds, found = _one_life(command, init, frames)
            seconds[name].append(taken)
            used[name].append(cpu_seconds)
            results[name] += found
    rate = {name: points / statistics.median(taken) for name, taken in seconds.items()}
    return {
        "rows": points * rounds,
        "seconds": round(sum(seconds["ohlc"]), 4),
        "rows_per_second": round(rate["ohlc"]),
        "result_rows": results["ohlc"],
        "floor_rows_per_second": round(rate["floor"]),
        "floor_result_rows": results["floor"],
        "ratio": round(rate["ohlc"] / rate["floor"], 3),
        # CPU time of the function alone, without its start.
        "cpu_microseconds": {name: round(statistics.median(own) / points * 1e6, 2) for name, own in used.items()},
    }


def _trades(points: int, groups: int, per_second: int) -> Iterator[Request]:
    for number in range(points):
        point = Point(
            time=_START + number // groups * _SECOND // per_second, name="trades", database="market",
            retentionPolicy="autogen", group=f"symbol=S{number % groups}", dimensions=["symbol"],
            tags={"symbol": f"S{number % groups}"},
            fieldsDouble={"price": 100 + number * 7919 % 1_000 / 100, "volume": 0.001 * (1 + number % 997)},
        )  # fmt: skip
        yield Request(point=point)


def _one_life(command: Sequence[str], init: Request, frames: bytes) -> tuple[float, float, int]:
    """Seconds and CPU seconds from the first point to the answer after the last, and the number of received points."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as process,
    ):  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            reader = FrameReader(process.stdout.read, Response)
            source = process.stdin

            def send(data: bytes) -> None:
                rest = memoryview(data)
                while rest:
                    rest = rest[source.write(rest) or 0 :]

            send(udf_frames.encode(init))
            answer = reader.next()
            if answer is None or not answer.init.success:
                raise RuntimeError(f"{command[-1]} does not start: {answer}")
            before, started = _cpu_seconds(process.pid), time.perf_counter()
            sender = threading.Thread(target=send, args=(frames,))
            sender.start()
            found = 0
            while (answer := reader.next()) is not None and not answer.HasField("snapshot"):
                found += answer.HasField("point")
            taken, after = time.perf_counter() - started, _cpu_seconds(process.pid)
            sender.join()
            if answer is None:
                raise RuntimeError(f"{command[-1]} ended early")
            return taken, after - before, found
        finally:
            process.kill()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", choices=["json"], default="json")
    parser.add_argument("--points", type=int, default=100_000, help="of a round")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--per-second", type=int, default=20, help="points of a group in a second of event time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.echo:
        serve_process(_ECHO, is_batch=False)
        return
    print(json.dumps(run(asked.points, asked.groups, asked.per_second, rounds=asked.rounds)))


if __name__ == "__main__":
    main()
