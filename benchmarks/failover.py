"""Take-over by a standby: seconds from the fault until the standby of a role is ready, with real processes.

Two processes of each part run over one Redis. The holder is killed (kill -9), or stopped (SIGSTOP) and woken after
the other one serves; it must end then. One line for each role and fault; `floor_seconds` is the lease, which has to run
out.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bus.embedded import EmbeddedRedis
from bus.roles import BROKER, DRIVER, REGISTRY, Roles
from core.log import configure_logging

PATIENCE_SECONDS = 300.0
#: The process that has each role.
PARTS = {BROKER: "broker", REGISTRY: "relay", DRIVER: "flink_replacement_spark"}
FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    def __init__(self, part: str, folder: Path, bus_url: str, lease_seconds: float, shared: Path) -> None:
        folder.mkdir()
        self._part, self._port_file = part, folder / "http.port"
        settings = {
            "BUS__URL": bus_url,
            "DATA_DIR": str(folder),
            "ROLES__LEASE_SECONDS": str(lease_seconds),
            "HTTP__BIND": "127.0.0.1:0",
            "HTTP_PORT_FILE": str(self._port_file),
            "LOG__LEVEL": "error",
            "BROKER__BIND": f"tcp://127.0.0.1:{_free_port()}",
            "RELAY__REQUESTS_BIND": f"tcp://127.0.0.1:{_free_port()}",
            "RELAY__NOTIFICATIONS_BIND": f"tcp://127.0.0.1:{_free_port()}",
            "SPARK__CONNECT_BIND": f"127.0.0.1:{_free_port()}",
            "SPARK__MASTER": "local[2]",
            "ICEBERG__URI": str(shared / "catalog.db"),
            "ICEBERG__WAREHOUSE": f"file://{shared / 'warehouse'}",
        }
        self._environment = os.environ | {f"CANDLEWRIGHT_{name}": value for name, value in settings.items()}
        self.start()

    def start(self) -> None:
        self._port_file.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", self._part],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def status(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port_file.read_text()}/status", timeout=5) as page:
                return dict(json.load(page))
        except (OSError, ValueError):
            return {}

    def has_role(self) -> bool:
        status = self.status()
        return bool(status.get("ready")) and status["role"]["epoch"] is not None

    def stands_by(self) -> bool:
        return bool(self.status().get("role", {}).get("standby"))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _until(condition: Any, what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(what)
        threading.Event().wait(0.02)


def run(roles: list[str], rounds: int, lease_seconds: float) -> Iterator[dict[str, Any]]:
    for role in roles:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
            states = Roles(redis.url)
            stack.callback(states.close)
            pair = []
            for name in ("one", "two"):
                pair.append(Process(PARTS[role], folder / name, redis.url, lease_seconds, folder))
                stack.callback(pair[-1].end)
                _until(pair[-1].has_role if name == "one" else pair[-1].stands_by, f"{role} {name}")
            for fault, number in FAULTS.items():
                took = [_take_over(pair, number) for _ in range(rounds)]
                yield {
                    "name": role,
                    "fault": fault,
                    "rows": rounds,
                    "seconds": round(sum(took), 3),
                    "rows_per_second": round(rounds / sum(took), 4),
                    "result_rows": states.all()[role].epoch - 1,
                    "p50_seconds": round(sorted(took)[rounds // 2], 3),
                    "max_seconds": round(max(took), 3),
                    "floor_seconds": lease_seconds,
                }


def _take_over(pair: list[Process], number: signal.Signals) -> float:
    holder = next(each for each in pair if each.has_role())
    (standby,) = (each for each in pair if each is not holder)
    began = time.monotonic()
    holder.process.send_signal(number)
    _until(standby.has_role, "take-over")
    took = time.monotonic() - began
    if number == signal.SIGSTOP:
        holder.process.send_signal(signal.SIGCONT)
    if holder.process.wait(PATIENCE_SECONDS) == 0:
        raise RuntimeError("a process whose term was over ended as if all were well")
    holder.start()
    _until(holder.stands_by, "standby")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roles", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rows", type=int, default=3, help="take-overs of each role and fault")
    parser.add_argument("--lease-seconds", type=float, default=5.0)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    configure_logging("bench", "warning")
    for line in run(asked.roles, asked.rows, asked.lease_seconds):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
