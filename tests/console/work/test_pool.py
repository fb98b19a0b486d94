"""Workers: what happens to a call when its worker dies or fails."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from console.operation import Call
from console.problems import Problem
from console.routes.worked import done_by_worker
from console.work import pool
from console.work.pool import Workers
from tests.console.calls import settings_in

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    workers = Workers(settings_in(tmp_path))
    yield workers
    await workers.close()


SLOW = "SELECT count(*) FROM range(10000000) a, range(1000000) b WHERE a.range + b.range = 7"


def query(sql: str) -> dict[str, object]:
    return {"sql": sql, "limit": 1, "form": "json"}


async def test_a_worker_that_died_while_idle_gets_no_call(workers: Workers) -> None:
    await workers.run("language", {})
    (idle,) = workers._idle
    os.kill(idle.process.pid, signal.SIGKILL)
    await idle.process.wait()
    _, body = await workers.run("language", {})
    assert b"MATCH_RECOGNIZE" in body


async def test_an_unexpected_error_is_not_reported_as_a_lack_of_memory(workers: Workers) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'no such task'"):
        await workers.run("no such task", {})
    (before,) = workers._idle
    await workers.run("language", {})
    assert [before] == [*workers._idle]


async def test_a_worker_killed_during_a_call_is_replaced(workers: Workers) -> None:
    await workers.run("query", query("SELECT 1 AS one"))
    (worker,) = workers._idle
    asking = asyncio.create_task(workers.run("query", query(SLOW)))
    while workers._idle:
        await asyncio.sleep(0)
    os.kill(worker.process.pid, signal.SIGKILL)
    with pytest.raises(Problem, match="memory"):
        await asking
    _, body = await workers.run("query", query("SELECT 2 AS two"))
    assert b'"two":2' in body


async def test_work_without_its_own_limit_ends_after_the_longest_time(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await workers.run("query", query("SELECT 1 AS one"))
    (worker,) = workers._idle
    monkeypatch.setattr(pool, "_LONGEST_SECONDS", 1.0)
    monkeypatch.setattr(pool, "_GRACE_SECONDS", 0.0)
    with pytest.raises(Problem, match="longer than 1 seconds; name a shorter range"):
        await workers.run("query", query(SLOW))
    assert await worker.process.wait() == -signal.SIGKILL


async def test_a_caller_that_hangs_up_ends_its_worker(workers: Workers) -> None:
    await workers.run("query", query("SELECT 1 AS one"))
    (worker,) = workers._idle

    async def receive() -> dict[str, str]:
        while workers._idle:
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    services = SimpleNamespace(workers=workers)
    call = cast(Call, SimpleNamespace(request=SimpleNamespace(receive=receive), services=services))
    with pytest.raises(Problem, match="gone"):
        await done_by_worker(call, "query", query(SLOW))
    assert await worker.process.wait() == -signal.SIGKILL
    assert not workers._idle
