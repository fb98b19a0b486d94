"""Waiting for a turn counts as a sign of life, and a wait that is given up uses no turn."""

import asyncio

import pytest

from ingestor import progress
from ingestor.progress import Progress


async def test_a_job_that_waits_for_its_turn_shows_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TURN_SECONDS", 0.01)
    said: list[float] = []
    gate = asyncio.Lock()
    await gate.acquire()

    async def wait() -> bool:
        async with Progress(said.append).turn(gate):
            return gate.locked()

    waiting = asyncio.create_task(wait())
    while len(said) < 3:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    gate.release()
    assert await waiting
    assert not gate.locked()


@pytest.mark.parametrize("is_free", [True, False])
async def test_a_job_that_is_stopped_while_it_waits_keeps_no_turn(is_free: bool) -> None:
    gate = asyncio.Semaphore(1)
    await gate.acquire()

    async def wait() -> None:
        async with Progress().turn(gate):
            raise AssertionError("it was stopped")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if is_free:
        # Its turn came at the same moment.
        gate.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not is_free:
        gate.release()
    async with asyncio.timeout(5):
        await gate.acquire()


async def test_a_waiter_that_is_stopped_with_all_tasks_does_not_give_back_a_turn() -> None:
    gate = asyncio.Lock()
    await gate.acquire()

    async def wait() -> None:
        async with Progress().turn(gate):
            raise AssertionError("it was stopped")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gate.locked()


async def test_a_failure_inside_gives_the_turn_back() -> None:
    gate = asyncio.Semaphore(1)
    with pytest.raises(ValueError, match="inside"):
        async with Progress().turn(gate):
            raise ValueError("inside")
    assert not gate.locked()
