"""A lease is renewed by a process of its own, exactly for as long as its holder lives and runs."""

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psutil
import pytest
import redis

from bus.redis.embedded import find_redis_server
from bus.renewing import Renewer
from bus.roles import BROKER, Roles
from tests.faults.harness import until

LEASE_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
#: It sleeps for the seconds that it reads, without letting another thread run Python.
HOLDER = """
import ctypes, sys, threading
from bus.redis.embedded import find_redis_server
from bus.roles import BROKER, Keeper
keeper = Keeper.of(sys.argv[1], BROKER, float(sys.argv[2]))
keeper.wait(threading.Event())
print("holds", flush=True)
for line in sys.stdin:
    ctypes.PyDLL(None).sleep(int(line))
    print("awake", flush=True)
keeper.close()
"""

pytestmark = pytest.mark.processes


@pytest.fixture
def roles(redis_url: str) -> Iterator[Roles]:
    with closing(Roles(redis_url)) as made:
        yield made


@contextmanager
def holding(url: str, lease_seconds: float = LEASE_SECONDS) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLDER, url, str(lease_seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "holds\n"
            renewer_of(process)
            yield process
        finally:
            process.kill()


def renewer_of(holder: "subprocess.Popen[str]") -> psutil.Process:
    found = until(lambda: psutil.Process(holder.pid).children(), PATIENCE_SECONDS, "the process that renews")
    assert isinstance(found[0], psutil.Process)
    return found[0]


def let_sleep(holder: "subprocess.Popen[str]", seconds: int) -> None:
    assert holder.stdin is not None
    holder.stdin.write(f"{seconds}\n")
    holder.stdin.flush()


def is_held(roles: Roles) -> bool:
    return bool(roles.all()[BROKER].holder)


def assert_held(roles: Roles, seconds: float) -> None:
    never = threading.Event()
    for _ in range(round(seconds / 0.05)):
        assert is_held(roles)
        never.wait(0.05)


def test_a_holder_whose_threads_are_late_for_longer_than_its_lease_keeps_it(redis_url: str, roles: Roles) -> None:
    with holding(redis_url, lease_seconds=10) as holder:
        # The process that renews has begun.
        assert_held(roles, 2)
        let_sleep(holder, 11)
        assert_held(roles, 11)
        assert holder.stdout is not None and holder.stdout.readline() == "awake\n"
        assert roles.all()[BROKER].epoch == 1


def test_a_holder_that_hangs_loses_its_lease(redis_url: str, roles: Roles) -> None:
    with holding(redis_url) as holder:
        let_sleep(holder, 600)
        until(lambda: not is_held(roles), PATIENCE_SECONDS, "the lease ends")
        assert renewer_of(holder).is_running()


def test_a_stopped_holder_loses_its_lease_and_a_running_one_gets_it_back(redis_url: str, roles: Roles) -> None:
    with holding(redis_url) as holder:
        holder.send_signal(signal.SIGSTOP)
        until(lambda: not is_held(roles), PATIENCE_SECONDS, "the lease ends")
        assert renewer_of(holder).is_running()
        holder.send_signal(signal.SIGCONT)
        until(lambda: is_held(roles), PATIENCE_SECONDS, "it is renewed")


def test_a_killed_holder_leaves_its_role_at_once(redis_url: str, roles: Roles) -> None:
    with holding(redis_url, lease_seconds=600) as holder:
        renewer = renewer_of(holder)
        assert_held(roles, 1)
        holder.kill()
        until(lambda: not is_held(roles), PATIENCE_SECONDS, "the role is released")
        until(lambda: not renewer.is_running(), PATIENCE_SECONDS, "the process that renews ends")
        assert roles.acquire(BROKER, "two", 60) is not None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_holder_needs_no_process_that_renews(redis_url: str, roles: Roles, number: signal.Signals) -> None:
    with holding(redis_url, lease_seconds=5) as holder:
        renewer = renewer_of(holder)
        assert_held(roles, 2)
        renewer.send_signal(number)
        assert_held(roles, 8)
        assert (renewer_of(holder).pid == renewer.pid) == (number != signal.SIGKILL)
        if number == signal.SIGSTOP:
            renewer.send_signal(signal.SIGCONT)
        assert roles.all()[BROKER].epoch == 1


def test_a_process_that_ends_before_its_orders_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception used to end the holder."""
    start = subprocess.Popen

    def ended(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        process = start([sys.executable, "-c", ""], **options)
        process.wait()
        return process

    monkeypatch.setattr(subprocess, "Popen", ended)
    with closing(Renewer({})) as renewer:
        assert not any(renewer.beat() for _ in range(4))


def test_a_renewal_that_fails_is_repeated_over_a_new_connection_and_the_end_releases_the_role(
    redis_url: str, roles: Roles
) -> None:
    term = roles.acquire(BROKER, "one", 60)
    assert term is not None
    renewer = roles.renewer(term, 60)
    assert renewer is not None
    with closing(renewer), redis.Redis.from_url(redis_url) as admin:
        for _ in range(2):
            admin.hset(f"cw:role:{BROKER}", "until", "0")
            until(lambda: renewer.beat() and is_held(roles), PATIENCE_SECONDS, "a renewal")
            admin.client_kill_filter(_type="normal", skipme=True)
    until(lambda: not is_held(roles), PATIENCE_SECONDS / 2, "the role is released")


def test_a_lease_is_renewed_as_a_user_in_a_database_over_a_unix_socket() -> None:
    # The path of a socket may have a hundred characters, which pytest's own folders may exceed.
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis"
        command = [str(find_redis_server()), "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        command += ["--user", "someone", "on", ">secret", "~cw:*", "+@all", "--user", "default", "off"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            url = f"unix://someone:secret@{path}?db=3"
            with closing(Roles(url, retry_seconds=PATIENCE_SECONDS)) as roles:
                term = roles.acquire(BROKER, "one", 60)
                assert term is not None
                renewer = roles.renewer(term, 1)
                assert renewer is not None
                with closing(renewer):
                    until(renewer.beat, PATIENCE_SECONDS, "a renewal")
                until(lambda: not is_held(roles), PATIENCE_SECONDS, "the role is released")
            server.terminate()
