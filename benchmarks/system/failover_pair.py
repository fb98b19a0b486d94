"""Two processes of one part over one Redis, one with the role and one standing by; and their take-overs' figures."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring.process_tree import cpu_seconds_of
from benchmarks.measuring.spark_master import TWO_CORES
from bus.roles import BROKER, DRIVER, REGISTRY, Roles

PATIENCE_SECONDS = 300.0
#: The process that has each role.
PARTS = {BROKER: "broker", REGISTRY: "relay", DRIVER: "flink_replacement_spark"}
FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on_cluster(master: str) -> dict[str, str]:
    """Settings of two drivers, neither of which may take every core."""
    return {"SPARK__MASTER": master, "SPARK__MAX_CORES": "4"}


class Process:
    """`folder` is its data directory; tables are in `shared`. `settings` by their environment names."""

    def __init__(self, part: str, folder: Path, bus_url: str, *, shared: Path, **settings: str) -> None:
        folder.mkdir()
        self._part, self._port_file = part, folder / "http.port"
        # Its seat: as under `up`, it gets a role back without waiting for the lease of the process before it.
        self.settings = {
            "SUPERVISED": str(folder),
            "BUS__URL": bus_url,
            "DATA_DIR": str(folder),
            "HTTP__BIND": "127.0.0.1:0",
            "HTTP_PORT_FILE": str(self._port_file),
            "LOG__LEVEL": "error",
            "BROKER__BIND": f"tcp://127.0.0.1:{free_port()}",
            "RELAY__REQUESTS_BIND": f"tcp://127.0.0.1:{free_port()}",
            "RELAY__NOTIFICATIONS_BIND": f"tcp://127.0.0.1:{free_port()}",
            "SPARK__CONNECT_BIND": f"127.0.0.1:{free_port()}",
            "SPARK__MASTER": TWO_CORES,
            "ICEBERG__URI": str(shared / "catalog.db"),
            "ICEBERG__WAREHOUSE": f"file://{shared / 'warehouse'}",
        } | settings
        self._environment = os.environ | {f"CANDLEWRIGHT_{name}": value for name, value in self.settings.items()}
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

    def is_ready(self) -> bool:
        return bool(self.status().get("ready"))

    def has_role(self) -> bool:
        status = self.status()
        return bool(status.get("ready")) and status["role"]["epoch"] is not None

    def stands_by(self) -> bool:
        """Whether it stands by, and is warm if its role requires that."""
        role = self.status().get("role", {})
        return bool(role.get("standby") and role.get("warm", True))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Times by the monotonic clock: the fault, the beginning of the next term, and the readiness of its holder."""

    began: float
    taken: float
    ready: float
    #: Of who has it now, from `taken` to `ready`.
    cpu_seconds: float

    @property
    def detection_seconds(self) -> float:
        return self.taken - self.began

    @property
    def after_detection_seconds(self) -> float:
        return self.ready - self.taken

    @property
    def seconds(self) -> float:
        return self.ready - self.began


class Pair:
    def __init__(self, role: str, stack: ExitStack, folder: Path, *, bus_url: str, **settings: str) -> None:
        self.role = role
        self._states = Roles(bus_url)
        stack.callback(self._states.close)
        self.processes: list[Process] = []
        for name in ("one", "two"):
            self.processes.append(Process(PARTS[role], folder / f"{role}-{name}", bus_url, shared=folder, **settings))
            stack.callback(self.processes[-1].end)
            newest = self.processes[-1]
            until(newest.has_role if name == "one" else newest.stands_by, f"{role} {name}")

    def rows(
        self, rounds: int, lease_seconds: float, look: Callable[[TakeOver], object] = lambda _: None
    ) -> Iterator[dict[str, Any]]:
        """One row for each fault. The driver has one more without a standby: it is restarted after kill -9."""
        for fault in FAULTS:
            yield self._row(fault, lease_seconds, [self._take_over(fault, look) for _ in range(rounds)])
        if self.role == DRIVER:
            found = [self._restart(look) for _ in range(rounds)]
            yield self._row("killed", lease_seconds, found) | {"standby": False}

    def _row(self, fault: str, lease_seconds: float, found: list[TakeOver]) -> dict[str, Any]:
        took = [each.seconds for each in found]
        return {
            "name": self.role,
            "fault": fault,
            "standby": True,
            "rows": len(found),
            "seconds": round(sum(took), 3),
            "rows_per_second": round(len(took) / sum(took), 4),
            "result_rows": len(found),
            "p50_seconds": round(sorted(took)[len(took) // 2], 3),
            "max_seconds": round(max(took), 3),
            "detection_seconds": round(max(each.detection_seconds for each in found), 3),
            "after_detection_seconds": round(max(each.after_detection_seconds for each in found), 3),
            "cpu_seconds": round(max(each.cpu_seconds for each in found), 2),
            "machine_load": round(os.getloadavg()[0], 1),
            "floor_seconds": lease_seconds if fault == "stopped" else 0.0,
        }

    def _take_over(self, fault: str, look: Callable[[TakeOver], object]) -> TakeOver:
        """`look` is called before the stopped process resumes and ends; afterwards both processes run again."""
        holder, standby = self._holder_and_standby()
        epoch, began = self._epoch, time.monotonic()
        holder.process.send_signal(FAULTS[fault])
        found = self._wait_for(standby, epoch, began)
        look(found)
        if FAULTS[fault] == signal.SIGSTOP:
            holder.process.send_signal(signal.SIGCONT)
        if holder.process.wait(PATIENCE_SECONDS) == 0:
            raise RuntimeError("a process whose term was over exited with success")
        holder.start()
        until(holder.stands_by, "standby")
        return found

    def _restart(self, look: Callable[[TakeOver], object]) -> TakeOver:
        holder, standby = self._holder_and_standby()
        standby.end()
        epoch, began = self._epoch, time.monotonic()
        holder.end()
        holder.start()
        found = self._wait_for(holder, epoch, began)
        look(found)
        standby.start()
        until(standby.stands_by, "standby")
        return found

    def _wait_for(self, successor: Process, epoch: int, began: float) -> TakeOver:
        until(lambda: self._epoch > epoch, "the next term")
        taken, processor = time.monotonic(), cpu_seconds_of([successor.process.pid])
        until(successor.has_role, "take-over")
        return TakeOver(began, taken, time.monotonic(), cpu_seconds_of([successor.process.pid]) - processor)

    def _holder_and_standby(self) -> tuple[Process, Process]:
        holder = next(each for each in self.processes if each.has_role())
        (standby,) = (each for each in self.processes if each is not holder)
        return holder, standby

    @property
    def _epoch(self) -> int:
        """Of the last term that began."""
        return self._states.all()[self.role].epoch


def until(condition: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(what)
        threading.Event().wait(0.02)
