"""The faults after which a standby takes over, and how many rounds of each the suite and a long run have.

`FAILOVER_ROUNDS` in the environment splits a long run into shorter ones, and `FAILOVER_SEED` gives them other prices.
"""
# ruff: noqa: T201

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.faults.process import Process

SUITE_ROUNDS = 3
ROUNDS = int(os.environ.get("FAILOVER_ROUNDS", "20"))
SEED = int(os.environ.get("FAILOVER_SEED", "3"))
#: A part that resumes, or reaches the bus again, ends within this time; Spark's JVM takes most of it.
END_SECONDS = 120.0

Fault = Callable[[Process], AbstractContextManager[None]]


@contextmanager
def killed(process: Process) -> Iterator[None]:
    process.process.kill()
    process.process.wait()
    yield


@contextmanager
def stopped(process: Process) -> Iterator[None]:
    """The stopped process resumes while the other one serves, and finds that its term is over."""
    process.process.send_signal(signal.SIGSTOP)
    yield
    process.process.send_signal(signal.SIGCONT)
    assert process.process.wait(END_SECONDS) == 1


@contextmanager
def cut_off(process: Process) -> Iterator[None]:
    """The process is cut off from Redis, which all other processes can reach."""
    process.link.cut()
    yield
    process.link.mend()
    assert process.process.wait(END_SECONDS) == 1


FAULTS: tuple[Fault, ...] = (killed, stopped, cut_off)


def lease_of(config: pytest.Config) -> dict[str, str]:
    """Leases of a role and of a job, as environment: shorter in the suite than the defaults, with which a long run is
    timed.
    """
    if config.option.long:
        return {}
    return {"CANDLEWRIGHT_ROLES__LEASE_SECONDS": "2", "CANDLEWRIGHT_BROKER__LEASE_SECONDS": "4"}


def assert_fast(seconds: Sequence[float], bound: float) -> None:
    print("take-overs:", " ".join(f"{each:.1f}" for each in sorted(seconds)), "s")
    assert max(seconds) < bound
