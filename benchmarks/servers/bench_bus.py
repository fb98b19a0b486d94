"""Publish and read through the bus, against raw Redis commands of the same size on the same server.

The floor of publishing is a plain pipelined `XADD key *` of the same key and value, with as many per round trip as the
bus puts in one call; the floor of reading is XRANGE with the same count. Both use plain redis-py. `wire_*` is a harder
comparison, out of reach of any client: the same commands prepared in advance, with answers counted but not parsed.
"""

import argparse
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import redis

from benchmarks.measuring.output import add_output, show
from bus.api import Record
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from bus.redis.store import pack
from core.log import configure_logging

_TURN = 20_000

Fsync = Literal["always", "everysec", "no"]


def run(rows: int = 200_000, batch: int = 500, value_bytes: int = 120, *, fsync: Fsync = "always") -> dict[str, Any]:
    """One round of publishing and reading `rows` records of `value_bytes`, with `batch` records per call.

    `ratio` is the smaller of the two ratios to the floors; `rows_per_second` covers both directions together.
    """
    values = [b"%0*d" % (value_bytes, n) for n in range(rows)]
    keys = [b"TICKER%03d/USDT.BINANCE" % (n % 100) for n in range(rows)]
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder), fsync=fsync) as server:
        bus = RedisBus(server.url)
        client = redis.Redis.from_url(server.url)
        bus.create_topic("bench", 1)
        records = [Record(value, key=key) for key, value in zip(keys, values, strict=True)]
        warm = min(rows, 10 * batch)
        bus.publish("warm", records[:warm])
        _publish_raw(client, "raw:warm", keys[:warm], values[:warm], batch)

        wire = _Wire(server)
        packed = _packed(keys, values, batch)
        wire_publish = _timed(lambda: [wire.exchange(commands, 2 * batch) for commands in packed])
        packed.clear()
        floor_publish = publish = 0.0
        # Alternate, so that a momentary load slows down both.
        for start in range(0, rows, _TURN):
            raw, ours = _publish_both(client, bus, records[start : start + _TURN], batch)
            floor_publish += raw
            publish += ours
        pages = _pages(client, "raw:log", rows)
        wire_read = _timed(lambda: [wire.exchange(command, lines) for command, lines in pages])
        floor_read, read, found = _read_both(client, bus)
        wire.close()
        client.close()
        bus.close()
    assert [record[1] for record in found] == values, "the records read differ from those published"
    seconds = publish + read
    return {
        "rows": rows,
        "seconds": round(seconds, 4),
        "rows_per_second": round(rows / seconds),
        "result_rows": len(found),
        "floor_rows_per_second": round(rows / (floor_publish + floor_read)),
        "ratio": round(min(floor_publish / publish, floor_read / read), 3),
        "publish_rows_per_second": round(rows / publish),
        "publish_floor_rows_per_second": round(rows / floor_publish),
        "publish_ratio": round(floor_publish / publish, 3),
        "read_rows_per_second": round(rows / read),
        "read_floor_rows_per_second": round(rows / floor_read),
        "read_ratio": round(floor_read / read, 3),
        "wire_publish_rows_per_second": round(rows / wire_publish),
        "wire_read_rows_per_second": round(rows / wire_read),
        "batch": batch,
        "value_bytes": value_bytes,
        "fsync": fsync,
    }


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _publish_both(client: redis.Redis, bus: RedisBus, records: list[Record], batch: int) -> tuple[float, float]:
    """Seconds of XADD and seconds of the bus."""
    keys = [record.key or b"" for record in records]
    values = [record.value for record in records]
    floor = _timed(lambda: _publish_raw(client, "raw:log", keys, values, batch))
    return floor, _timed(lambda: _publish(bus, records, batch))


def _publish(bus: RedisBus, records: list[Record], batch: int) -> None:
    for start in range(0, len(records), batch):
        bus.publish("bench", records[start : start + batch])


def _read_both(client: redis.Redis, bus: RedisBus) -> tuple[float, float, list[tuple[bytes | None, bytes]]]:
    """Seconds of XRANGE, seconds of the bus, and what the bus read; pages in turn."""
    found: list[tuple[bytes | None, bytes]] = []
    floor = seconds = 0.0
    last = "-"
    while True:
        started = time.perf_counter()
        entries: list[Any] = client.xrange("raw:log", min=last, count=1_000)  # type: ignore[assignment]
        between = time.perf_counter()
        records = bus.read("bench", 0, len(found))
        seconds += time.perf_counter() - between
        floor += between - started
        if not records:
            return floor, seconds, found
        last = f"({entries[-1][0].decode()}"
        found += [(record.key, record.value) for record in records]


def _publish_raw(client: redis.Redis, stream: str, keys: list[bytes], values: list[bytes], batch: int) -> None:
    for start in range(0, len(values), batch):
        pipeline = client.pipeline(transaction=False)
        for key, value in zip(keys[start : start + batch], values[start : start + batch], strict=True):
            pipeline.xadd(stream, {"k": key, "v": value})
        pipeline.execute()


def _read_raw(client: redis.Redis, stream: str) -> list[Any]:
    found: list[Any] = []
    last = "-"
    while entries := client.xrange(stream, min=last, count=1_000):
        found += entries  # type: ignore[arg-type]
        last = f"({found[-1][0].decode()}"
    return found


class _Wire:
    """A socket that counts answers by their line ends, without parsing them."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self._socket = socket.create_connection((server.host, server.port))
        password = server.url.partition("@")[0].rpartition(":")[2]
        self.exchange(pack(("AUTH", password)), 1)

    def exchange(self, packed: bytes, lines: int) -> bytes:
        """Sends, then receives until `lines` line ends have arrived; returns the last bytes received."""
        self._socket.sendall(packed)
        received = b""
        while lines > 0:
            received = self._socket.recv(1 << 18)
            lines -= received.count(b"\n")
        return received

    def close(self) -> None:
        self._socket.close()


def _packed(keys: list[bytes], values: list[bytes], batch: int) -> list[bytes]:
    commands = [pack(("XADD", "raw:wire", "*", "k", *pair)) for pair in _interleaved(keys, values)]
    return [b"".join(commands[start : start + batch]) for start in range(0, len(commands), batch)]


def _interleaved(keys: list[bytes], values: list[bytes]) -> list[tuple[bytes, str, bytes]]:
    return [(key, "v", value) for key, value in zip(keys, values, strict=True)]


def _pages(client: redis.Redis, stream: str, rows: int) -> list[tuple[bytes, int]]:
    starts = [entry[0] for entry in _read_raw(client, stream)][::1_000]
    # An entry is 12 lines: two arrays, and five bulk strings of two lines each.
    return [
        (pack(("XRANGE", stream, start, "+", "COUNT", 1_000)), 1 + 12 * min(1_000, rows - index * 1_000))
        for index, start in enumerate(starts)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--value-bytes", type=int, default=120)
    parser.add_argument("--fsync", choices=("always", "everysec", "no"), default="always")
    add_output(parser)
    asked = parser.parse_args()
    configure_logging("bench", "warning")
    result = run(asked.rows, asked.batch, asked.value_bytes, fsync=asked.fsync)
    show(result, asked.output)


if __name__ == "__main__":
    main()
