"""Processes of a running platform that are killed or stopped at random: parts, and those that Spark starts."""

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring.process_tree import family
from tests.faults.harness import Platform, until

SPARK = "flink_replacement_spark"
#: The longest stop (s): longer than the leases of the platform that is hurt.
LONGEST_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Hurt:
    """`process`: a part, or `jvm` or `worker` of the Spark driver. `stop_seconds`: 0 for kill -9."""

    process: str
    stop_seconds: float

    def __str__(self) -> str:
        return f"stop {self.process} for {self.stop_seconds:.1f} s" if self.stop_seconds else f"kill -9 {self.process}"


def hurts_of(choice: random.Random, rounds: int) -> list[Hurt]:
    """One for each round; of every fourteen, each process is killed once and stopped once."""
    processes = (SPARK, "jvm", "worker", "relay", "broker", "redis", "ingestor")
    every = [(process, is_stopped) for process in processes for is_stopped in (False, True)]
    found = [*every * (rounds // len(every)), *choice.sample(every, rounds % len(every))]
    choice.shuffle(found)
    return [Hurt(process, choice.uniform(0.2, LONGEST_STOP_SECONDS) if stop else 0.0) for process, stop in found]


def hurt(platform: Platform, what: Hurt, choice: random.Random) -> None:
    """Returns once a part that was killed has been started again, and a stopped process resumes."""
    if what.process in ("jvm", "worker"):
        pid = until(lambda: _of_spark(platform, what.process, choice), 120, f"Spark has a {what.process}")
    elif what.stop_seconds:
        pid = until(lambda: platform.part(_part(what, choice))["pid"], 60, f"{what.process} runs")
    else:
        platform.kill(_part(what, choice))
        return
    # It may have ended by itself, because its part did.
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP if what.stop_seconds else signal.SIGKILL)
        if what.stop_seconds:
            time.sleep(what.stop_seconds)
            os.kill(pid, signal.SIGCONT)


def _part(what: Hurt, choice: random.Random) -> str:
    return choice.choice(("ingestor-1", "ingestor-2", "ingestor-3")) if what.process == "ingestor" else what.process


def _of_spark(platform: Platform, kind: str, choice: random.Random) -> int | None:
    """A process of the driver's JVM: itself, or one of the Python processes that it has started."""
    driver = platform.part(SPARK)["pid"]
    if driver is None:
        return None
    prefix = "java" if kind == "jvm" else "python"
    found = [pid for pid in family([driver]) if pid != driver and _name(pid).startswith(prefix)]
    return choice.choice(found) if found else None


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
