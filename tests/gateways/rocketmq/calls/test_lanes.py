import asyncio
from collections.abc import Sequence

import pytest

from candlewright.wire.errors import BusUnavailable
from gateways.rocketmq.calls import lanes
from gateways.rocketmq.calls.lanes import Lane, Room
from gateways.rocketmq.door.status import RESOURCE_EXHAUSTED, Refused


class Work:
    """Each batch waits for `go`, and fails where an item is below zero."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()

    async def __call__(self, items: list[int]) -> Sequence[int]:
        self.batches.append(items)
        await self.go.wait()
        if min(items) < 0:
            raise BusUnavailable("no server")
        return [10 * item for item in items]


async def begun(work: Work, lane: Lane[int, int], *items: int) -> list["asyncio.Task[int]"]:
    """Calls, of which the first one's batch is under way."""
    tasks = [asyncio.create_task(lane.do(item, 1)) for item in items]
    while not work.batches:
        await asyncio.sleep(0)
    return tasks


async def test_items_that_wait_during_a_batch_form_the_next_one() -> None:
    work, room = Work(), Room()
    lane = Lane(work, room)
    tasks = await begun(work, lane, 1, 2, 3)
    late = asyncio.create_task(lane.do(4, 1))
    await asyncio.sleep(0)
    work.go.set()
    assert await asyncio.gather(*tasks, late) == [10, 20, 30, 40]
    assert work.batches == [[1, 2, 3], [4]]
    assert (lane.is_idle, room.items, room.bytes) == (True, 0, 0)


async def test_a_failing_batch_fails_only_its_own_calls() -> None:
    work = Work()
    lane = Lane(work, Room())
    (bad,) = await begun(work, lane, -1)
    good = asyncio.create_task(lane.do(5))
    await asyncio.sleep(0)
    work.go.set()
    with pytest.raises(BusUnavailable):
        await bad
    assert await good == 50


async def test_a_call_that_is_given_up_before_its_turn_is_not_done() -> None:
    work = Work()
    lane = Lane(work, Room())
    tasks = await begun(work, lane, 1)
    given_up, last = asyncio.create_task(lane.do(2)), asyncio.create_task(lane.do(3))
    await asyncio.sleep(0)
    given_up.cancel()
    work.go.set()
    assert await asyncio.gather(*tasks, last) == [10, 30]
    assert work.batches == [[1], [3]]


async def test_batches_and_waiting_items_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_BATCH_ITEMS", 2)
    monkeypatch.setattr(lanes, "_MAX_WAITING", 4)
    work = Work()
    lane = Lane(work, Room())
    tasks = await begun(work, lane, 1, 2, 3, 4)
    with pytest.raises(Refused) as caught:
        await lane.do(5)
    assert caught.value.code == RESOURCE_EXHAUSTED
    work.go.set()
    await asyncio.gather(*tasks)
    assert work.batches == [[1, 2], [3, 4]]
